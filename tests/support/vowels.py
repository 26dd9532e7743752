"""Concepts without a model: how often each vowel is in a text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from lexicept.encoding.vectorizer import KINDS, EncodedQuery, VocabularyKind
from lexicept.errors import IndexFormatError
from lexicept.explanation.contributions import Sources, Span
from lexicept.index.atlas import BINS, Concept, Example, Findings
from lexicept.storage.texts import TextStore


class Vowels:
    """A vectorizer of fixed size: counts of the five vowels."""

    name = "concepts"
    grows = False
    size = 5
    terms: Sequence[str] = "aeiou"
    encoded: ClassVar[list[str]] = []
    """Every text that was encoded as a document."""

    def documents(self, texts: Sequence[str]) -> sp.csr_array:
        Vowels.encoded += texts
        return self.queries(texts)

    def queries(self, texts: Sequence[str]) -> sp.csr_array:
        counts = [[text.count(vowel) for vowel in "aeiou"] for text in texts]
        return sp.csr_array(np.array(counts, np.float32).reshape(-1, 5))

    def encode_query(self, text: str) -> EncodedQuery:
        return EncodedQuery(
            self.queries([text]), lambda dimensions: self._sources(text, dimensions)
        )

    def document_sources(
        self, texts: Sequence[str], dimensions: Sequence[Sequence[int]]
    ) -> list[dict[int, Sources]]:
        return [self._sources(*pair) for pair in zip(texts, dimensions, strict=True)]

    def _sources(self, text: str, dimensions: Sequence[int]) -> dict[int, Sources]:
        return {
            d: Sources.alike(
                [Span(i, i + 1) for i, letter in enumerate(text) if letter == self.terms[d]]
            )
            for d in dimensions
        }

    def save(self, folder: Path) -> None:
        TextStore.write(folder / "terms", self.terms)

    @classmethod
    def load(cls, folder: Path) -> Vowels:
        if len(TextStore(folder / "terms")) != 5:
            raise IndexFormatError(f"{folder}: there are five vowels")
        return cls()


PLACE = VocabularyKind(__name__, "Vowels", has_model=True)
"""The kind of concepts in tests with vowels, for ``lexicept.encoding.vectorizer.KINDS``."""


def findings(documents: int) -> Findings:
    """Of the concepts a, e, i, o and u in so many documents; i and u fire nowhere."""
    return Findings(
        labels=["Ay", "ee", "#2", "oh", "#4"],
        sources=np.array([2, 0, 0, 0, 0]),
        tokens=40,
        firings=np.array([10, 2, 0, 1, 0]),
        words=["unused", "cat", "a", "bee"],
        log_odds=sp.csr_array(([4.0, 2.0, 3.0], [2, 1, 3], [0, 2, 3, 3, 3, 3]), shape=(5, 4)),
        examples=sp.csr_array(
            ([7.0, 5.0, 1.5, 2.0], [2, 0, 2, 1], [0, 2, 3, 3, 4, 4]), shape=(5, documents)
        ),
        spans=np.array([[0, 1], [4, 5], [3, 5], [10, 11]]),
        detection=np.array([np.nan, 0.75, np.nan, 1.0, np.nan]),
        histogram=np.eye(5, BINS, BINS - 2, np.int64),
        octave=4,
        nearest=sp.csr_array(([0.5, -0.25], [3, 1], [0, 2, 2, 2, 2, 2]), shape=(5, 5)),
    )


AY = Concept(
    number=0,
    label="Ay",
    source="explanations",
    documents=2,
    firing_frequency=0.25,
    words=(("a", 4.0), ("cat", 2.0)),
    examples=(Example("d/2", 0, 1, 7.0), Example("d/0", 4, 5, 5.0)),
    drawn=(),
    histogram=((2**1, 1),),
    detection=None,
    nearest=((3, 0.5), (1, -0.25)),
)
"""The first of ``findings`` as an index of ``support.indexes.DESCRIBED`` has it."""


def use_vowels() -> None:
    """Let indexes of this process find ``Vowels`` under the name concepts."""
    KINDS["concepts"] = PLACE
