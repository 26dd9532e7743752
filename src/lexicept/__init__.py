"""Words and concepts in one inverted index: learned sparse retrieval, explained.

Names are imported when they are first used, so that what needs no network never imports torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lexicept.corpora import Document as Document
    from lexicept.corpora import read_documents as read_documents
    from lexicept.errors import LexiceptError as LexiceptError
    from lexicept.index.builder import IndexBuilder as IndexBuilder
    from lexicept.index.reader import Index as Index
    from lexicept.vectors import SparseVectors as SparseVectors

_HOMES = {
    "Document": "lexicept.corpora",
    "Index": "lexicept.index.reader",
    "IndexBuilder": "lexicept.index.builder",
    "LexiceptError": "lexicept.errors",
    "SparseVectors": "lexicept.vectors",
    "read_documents": "lexicept.corpora",
}

__all__ = [
    "Document",
    "Index",
    "IndexBuilder",
    "LexiceptError",
    "SparseVectors",
    "read_documents",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'lexicept' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
