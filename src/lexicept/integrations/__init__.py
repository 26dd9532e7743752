"""Indexes inside other libraries' retrieval interfaces.

Each module imports the library of the module's name, the only place in lexicept. The retrievers of
three libraries are all named ``LexiceptRetriever``: a user has one library, where the name tells
the retriever from others. An adapter searches an opened index; changes by other processes show
after ``index.refresh()``.
"""
