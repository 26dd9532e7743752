"""The vocabularies of an opened index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lexicept.encoding.vectorizer import KINDS, VocabularyKind
from lexicept.index.impacts import VocabularySettings
from lexicept.storage.texts import TextStore
from lexicept.vectors import Vocabulary

FUNCTIONAL = ("function words", "punctuation", "numbers")
"""Beginnings of the labels of concepts without a meaning; see ``atlas.SOURCES``."""


@dataclass(frozen=True, kw_only=True)
class IndexVocabulary(Vocabulary):
    """A vocabulary of an index: neighbouring dimensions, settings and kind."""

    dimensions: slice
    """The place of the vocabulary among the dimensions of all vocabularies."""
    settings: VocabularySettings
    kind: VocabularyKind

    def term(self, dimension: int) -> str:
        """Return the label of a dimension; the number in a vocabulary without labels."""
        return str(dimension) if self.terms is None else self.terms[dimension]

    @cached_property
    def functional(self) -> npt.NDArray[np.bool_]:
        """True for dimensions labelled as function words, punctuation or numbers [size]."""
        terms = () if self.terms is None else self.terms
        functional = np.zeros(self.size, bool)
        if self.kind.has_model:
            functional[: len(terms)] = [term.startswith(FUNCTIONAL) for term in terms]
        return functional

    @property
    def needs_model(self) -> bool:
        """True if queries have to go through a neural network."""
        return self.kind.has_model


def open_vocabularies(
    folder: Path, entries: Sequence[Mapping[str, Any]]
) -> tuple[IndexVocabulary, ...]:
    """Open the vocabularies of a generation by their entries in the manifest. Raises
    IndexFormatError for damaged terms."""
    vocabularies, start = [], 0
    for entry in entries:
        name, size = entry["name"], entry["size"]
        vocabularies.append(
            IndexVocabulary(
                name,
                size,
                TextStore(folder / name / "terms"),
                dimensions=slice(start, start + size),
                settings=VocabularySettings.from_json(entry),
                kind=KINDS[name],
            )
        )
        start += size
    return tuple(vocabularies)
