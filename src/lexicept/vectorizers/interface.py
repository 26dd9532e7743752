"""The interface of vectorizers: texts to term frequencies (tf) over one vocabulary."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Protocol, cast

import scipy.sparse as sp

from lexicept.errors import IndexFormatError, InputError
from lexicept.explanation.contributions import Span

# Named, not imported: searching words must not import torch.
VECTORIZERS = {
    "words": ("lexicept.vectorizers.words", "WordVectorizer"),
    "concepts": ("lexicept.vectorizers.concepts", "ConceptVectorizer"),
}


class Vectorizer(Protocol):
    """Turns texts into tf over one vocabulary."""

    name: str
    grows: bool
    """Whether documents can add dimensions."""

    @property
    def size(self) -> int:
        """Number of dimensions."""

    @property
    def terms(self) -> Sequence[str]:
        """What a person sees for each dimension."""

    def documents(self, texts: Sequence[str]) -> sp.csr_array:
        """CSR [n, size]; may add dimensions where the vocabulary grows."""

    def queries(self, texts: Sequence[str]) -> sp.csr_array:
        """CSR [n, size]; never adds dimensions."""

    def spans(
        self, text: str, dimensions: Sequence[int], task: Literal["query", "document"]
    ) -> dict[int, tuple[Span, ...]]:
        """The characters of a text that fire each of these dimensions of it, in order."""

    def save(self, folder: Path) -> None:
        """Write what ``load`` needs into an existing folder."""

    @classmethod
    def load(cls, folder: Path) -> Vectorizer:
        """Read it back."""


def load_vectorizer(name: str, folder: Path) -> Vectorizer:
    """A saved vectorizer.

    Raises:
        IndexFormatError: a vocabulary of an unknown kind.
        InputError: what it runs on is not installed, or it can't be loaded.
    """
    if name not in VECTORIZERS:
        raise IndexFormatError(f"{folder}: no vocabulary of the kind {name!r} is known")
    module, kind = VECTORIZERS[name]
    try:
        found = getattr(importlib.import_module(module), kind)
    except ModuleNotFoundError as error:
        missing = f"{error.name} missing: pip install 'lexicept[{name}]'"
        raise InputError(f"{folder}: {missing}, or search the words alone") from None
    return cast(Vectorizer, found.load(folder))
