"""Indexes inside other libraries' retrieval interfaces.

Each module imports its library; the rest of lexicept imports none of them. An adapter searches the
opened index that it was given, and sees that one's changes: those of other processes after
``refresh``.
"""
