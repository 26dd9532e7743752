"""Indexes inside other libraries' retrieval interfaces.

Each module imports the library of its name; nothing else in lexicept does. An adapter searches an
opened index; changes by other processes show after ``index.refresh()``.
"""
