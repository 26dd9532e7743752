"""Loading of saved vectorizers, without torch where possible."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import cast

from lexicept.encoding.encoded import EncodedConcepts
from lexicept.encoding.vectorizer import KINDS, Vectorizer
from lexicept.errors import IndexFormatError, InputError


def load_vectorizer(name: str, folder: Path) -> Vectorizer:
    """Load the saved vectorizer of a vocabulary. Raises IndexFormatError for a vocabulary of an
    unknown kind. Raises InputError if a package is missing, or a model can't be loaded."""
    if name not in KINDS:
        raise IndexFormatError(f"{folder}: the vocabulary {name!r} has an unknown kind")
    kind = KINDS[name]
    if EncodedConcepts.is_light(folder):
        return EncodedConcepts.load(folder)
    try:
        vectorizer_type = getattr(importlib.import_module(kind.module), kind.vectorizer)
    except ModuleNotFoundError as error:
        missing = f"{error.name} missing: pip install 'lexicept[train]'"
        raise InputError(f"{folder}: {missing}, or search the words alone") from None
    return cast(Vectorizer, vectorizer_type.load(folder))
