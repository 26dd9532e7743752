"""Indexes inside other libraries' retrieval interfaces.

Each module imports its library; the rest of lexicept imports none of them. An adapter
searches the generation of the index that was opened and does not follow updates: open the index
again, and make another.
"""
