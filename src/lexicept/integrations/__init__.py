"""Indexes inside other libraries' retrieval interfaces.

Each module imports the library of the module's name, the only place in lexicept. An adapter
searches an opened index; changes by other processes show after ``index.refresh()``.
"""
