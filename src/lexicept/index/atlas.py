"""The concept atlas of an index: descriptions of concepts by the collection's documents.

``concepts.describe`` makes the descriptions; the stored form needs no model. The files never
change, except for the labels: labels are the vocabulary's terms, so that every result shows them.
Numbers of documents are the index's own, and an example is shown only while the document is
unchanged.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from lexicept.errors import IndexFormatError
from lexicept.explanation.contributions import name_of, several, unnamed
from lexicept.fields.normal_forms import caseless
from lexicept.sanitize import one_line
from lexicept.storage.arrays import load_array, load_csr, save_array, save_csr
from lexicept.storage.files import read_json, write_json
from lexicept.storage.texts import TextStore
from lexicept.vectors import Floats, Integers
from lexicept.weighting import usefulness

SOURCES = (
    *("words", "llm", "explanations", "vocabulary", "none"),
    *("function words", "punctuation", "numbers", "topic", "various words", "one text"),
)
"""Sources of labels: words that a concept fires on, a language model that read the words that fire
the concept, explanations published with a pretrained SAE, or the word that a dimension stands for.
A concept of function words, punctuation, numbers, words of a topic or various words is labelled as
such. Words of one text name a concept without words that fire it in two; a concept that fires in no
text that was read has the number as label, ``#12``."""

NAMED = ("words", "llm", "explanations", "vocabulary")
"""Sources of names of meanings, which lists show first."""

EXAMPLES = 8
"""Largest activations of a concept that are stored; the examples after these are random."""

BINS = 20
"""Bins of a histogram of activations, of half octaves."""

UNTESTED = 0.75
"""Detection score that stands for a name that was not tested, in the order of lists."""


class Example(NamedTuple):
    """A word of a document that a concept fires on."""

    document_id: str
    start: int
    end: int
    """Characters of ``Document.content``."""
    activation: float


@dataclass(frozen=True)
class Concept:
    """A concept's label, frequencies, words and nearest concepts."""

    number: int
    label: str
    source: str
    """The label's source, one of ``SOURCES``."""
    documents: int
    """Documents of the collection that have the concept."""
    firing_frequency: float
    """Share of the sample's tokens that fire the concept; 0 if the sample missed the concept."""
    words: tuple[tuple[str, float], ...]
    """Words that fire the concept more than average, with the z-scores of the weighted log-odds,
    strongest first."""
    examples: tuple[Example, ...]
    """The largest activations, one per document, largest first."""
    drawn: tuple[Example, ...]
    """Other activations, drawn at random, one per document, largest first."""
    histogram: tuple[tuple[float, int], ...]
    """Numbers of words by activation: the lower bounds of half octaves, and the words in each."""
    detection: float | None
    """Balanced accuracy at telling words that fire the concept from others by the label's words,
    on documents held out of naming; None without a test."""
    nearest: tuple[tuple[int, float], ...]
    """Concepts with similar directions, and the cosines, nearest first."""
    alike: tuple[int, ...] = ()
    """Other concepts with the same name, the most useful first."""
    top_documents: tuple[tuple[str, float], ...] = ()
    """Ids and weights of the documents or passages with the largest weights; of ``Index.concept``
    alone."""

    @property
    def name(self) -> str:
        """The label or, for several concepts with this name, the name and their number."""
        name = name_of(self.label, self.number) if self.alike else self.label
        return several(name, 1 + len(self.alike))

    def __repr__(self) -> str:
        words = ", ".join(f"{word} {z:.1f}" for word, z in self.words)
        tested = "" if self.detection is None else f", detection {self.detection:.2f}"
        return f"<Concept {self.number} {self.label!r}: {self.documents:,}{tested}; {words}>"

    def to_json(self) -> dict[str, Any]:
        """Return the concept as JSON values."""
        return {
            **asdict(self),
            "top_documents": [{"id": name, "weight": w} for name, w in self.top_documents],
            "words": [{"word": word, "z": z} for word, z in self.words],
            "examples": [example._asdict() for example in self.examples],
            "drawn": [example._asdict() for example in self.drawn],
            "histogram": [{"activation": low, "words": words} for low, words in self.histogram],
            "nearest": [{"number": concept, "cosine": cosine} for concept, cosine in self.nearest],
            "alike": [*self.alike],
        }


@dataclass(frozen=True)
class Findings:
    """Descriptions of M concepts, the rows of the matrices; entries are in the order of display."""

    labels: list[str]
    sources: Integers
    """The labels' sources [M], as positions in ``SOURCES``."""
    tokens: int
    """Tokens of the sample."""
    firings: Integers
    """Tokens of the sample on which each concept fires [M]."""
    words: list[str]
    """W words."""
    log_odds: sp.csr_array
    """z-scores [M, W]."""
    examples: sp.csr_array
    """Activations in documents [M, N]: the largest, after ``EXAMPLES`` of these random ones."""
    spans: Integers
    """Start and end of every example in the document's content [examples, 2]."""
    detection: Floats
    """Balanced accuracies of the labels [M], NaN for labels that were not tested."""
    histogram: Integers
    """Words by activation, in half octaves up to 2 ** (octave / 2) [M, bins]."""
    octave: int
    nearest: sp.csr_array
    """Cosines [M, M]."""

    def renamed(self, names: Mapping[int, tuple[str, str]]) -> Findings:
        """Return findings with other labels of concepts, each with its source: untested labels."""
        labels, sources, detection = list(self.labels), self.sources.copy(), self.detection.copy()
        for concept, (label, source) in names.items():
            labels[concept], sources[concept] = label, SOURCES.index(source)
            detection[concept] = np.nan
        labels = unique_labels(labels, names)
        return replace(self, labels=labels, sources=sources, detection=detection)

    def save(self, folder: Path, ids: Sequence[str], contents: Sequence[str]) -> None:
        """Write the labels and the folder ``atlas`` into the folder of a vocabulary, with the ids
        and contents of the N documents."""
        TextStore.write(folder / "terms", self.labels)
        atlas = folder / "atlas"
        atlas.mkdir()
        write_json(atlas / "atlas.json", {"tokens": self.tokens, "octave": self.octave})
        save_array(atlas / "sources.npy", self.sources.astype(np.uint8))
        save_array(atlas / "firings.npy", self.firings.astype(np.int64))
        save_array(atlas / "detection.npy", self.detection.astype(np.float32))
        save_csr(atlas / "histogram", sp.csr_array(self.histogram, dtype=np.float32))
        used = _save_used_columns(atlas / "log_odds", self.log_odds)
        TextStore.write(atlas / "words", (self.words[word] for word in used))
        used = _save_used_columns(atlas / "examples", self.examples)
        TextStore.write(atlas / "documents", (ids[document] for document in used))
        digests = np.array([digest(contents[document]) for document in used], np.uint64)
        save_array(atlas / "digests.npy", digests)
        save_array(atlas / "spans.npy", self.spans.astype(np.int32))
        save_csr(atlas / "nearest", self.nearest)


class Atlas(Sequence[Concept]):
    """The concepts of an opened index, by their numbers. Raises IndexFormatError for damaged files.

    Args:
        folder: of ``Findings.save``.
        labels: of the M concepts.
        document_counts: documents of the collection that have each concept [M].
        num_documents: the size of the collection.
        content: returns a document's content by its id; None for an unknown id.
    """

    def __init__(
        self,
        folder: Path,
        labels: Sequence[str],
        document_counts: Integers,
        num_documents: int,
        content: Callable[[str], str | None],
    ) -> None:
        self.labels = labels
        self.document_counts = document_counts
        described = read_json(folder / "atlas.json")
        tokens, self._octave = described.get("tokens"), described.get("octave")
        self._num_documents = num_documents
        self._sources = load_array(folder / "sources.npy", np.uint8)
        firings = load_array(folder / "firings.npy", np.int64)
        self.detection: Floats = load_array(folder / "detection.npy", np.float32)
        """Balanced accuracy of each label [M]; NaN for a label that was not tested."""
        self._histogram = load_csr(folder / "histogram", BINS)
        self._words = TextStore(folder / "words")
        self._log_odds = load_csr(folder / "log_odds", len(self._words))
        self._documents = TextStore(folder / "documents")
        self._digests = load_array(folder / "digests.npy", np.uint64)
        self._examples = load_csr(folder / "examples", len(self._documents))
        self._spans = load_array(folder / "spans.npy", np.int32, ndim=2)
        self._nearest = load_csr(folder / "nearest", len(labels))
        self._content = content
        sizes = {len(labels), document_counts.size, self._sources.size, firings.size}
        matrices = (self._log_odds, self._examples, self._histogram, self._nearest)
        sizes |= {self.detection.size, *(matrix.shape[0] for matrix in matrices)}
        sound = (
            len(sizes) == 1
            and isinstance(tokens, int)
            and isinstance(self._octave, int)
            and self._digests.size == len(self._documents)
            and self._spans.shape == (self._examples.nnz, 2)
            and bool((self._sources < len(SOURCES)).all())
            and all(np.isfinite(matrix.data).all() for matrix in matrices)
        )
        if not sound:
            raise IndexFormatError(f"{folder}: the files of this atlas do not fit together")
        self.firing_frequencies: Floats = firings / max(int(tokens or 0), 1)
        """Share of the sample's tokens that each concept fires on [M]."""

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, number: Any) -> Any:
        """Return a concept, or a list for a slice. Raises IndexError for an unknown number."""
        if isinstance(number, slice):
            return [self[i] for i in range(*number.indices(len(self)))]
        if not 0 <= number < len(self):
            raise IndexError(f"no concept {number}, only 0 to {len(self) - 1}")
        examples, detection = self._examples_of(number), float(self.detection[number])
        lowest = (self._octave or 0) - BINS
        return Concept(
            number=int(number),
            label=self.labels[number],
            source=SOURCES[self._sources[number]],
            documents=int(self.document_counts[number]),
            firing_frequency=float(self.firing_frequencies[number]),
            words=tuple((self._words[word], z) for word, z in _row(self._log_odds, number)),
            examples=tuple(example for example in examples[:EXAMPLES] if example),
            drawn=tuple(example for example in examples[EXAMPLES:] if example),
            histogram=tuple(
                (2 ** ((lowest + position) / 2), int(words))
                for position, words in _row(self._histogram, number)
            ),
            detection=None if np.isnan(detection) else detection,
            nearest=tuple(_row(self._nearest, number)),
            alike=tuple(n for n in self._alike.get(self._name(number), ()) if n != number),
        )

    def _name(self, number: int) -> str:
        return name_of(self.labels[number], number).casefold()

    @cached_property
    def _alike(self) -> dict[str, list[int]]:
        """The concepts of each name, the most useful first."""
        alike: dict[str, list[int]] = {}
        for concept in self.useful:
            alike.setdefault(self._name(concept), []).append(concept)
        return alike

    def words_of(self, number: int) -> list[str]:
        """Return the words that fire a concept more than average, strongest first."""
        return [self._words[word] for word, _ in _row(self._log_odds, number)]

    def source(self, number: int) -> str:
        """Return the source of a concept's label."""
        return SOURCES[self._sources[number]]

    def most_frequent(self) -> list[int]:
        """Return the numbers of concepts with documents, most documents first."""
        order = np.argsort(-self.document_counts, kind="stable")
        return [int(concept) for concept in order[: np.count_nonzero(self.document_counts)]]

    @cached_property
    def useful(self) -> list[int]:
        """The numbers of concepts with documents, the most useful first, without names last.

        The usefulness is df · idf², the part of documents' scores for one another, times the
        detection score above chance.
        """
        df = self.document_counts
        tested = np.where(np.isnan(self.detection), UNTESTED, self.detection)
        useful = usefulness(self._num_documents, df) * np.maximum(2 * tested - 1, 0)
        named = np.isin(self._sources, [SOURCES.index(source) for source in NAMED])
        return [int(concept) for concept in np.lexsort((-useful, ~named)) if df[concept]]

    def search(self, text: str) -> list[int]:
        """Return the concepts with a text in the label or in a word, the best matches first: equal
        labels, words of labels, beginnings of these, words, other parts; then the most useful. The
        first concept of each name stands for all of the name."""
        text = caseless(text.strip())
        if not text:
            return [numbers[0] for numbers in self._alike.values()]
        matches = [index for index, word in enumerate(self._words) if text in caseless(word)]
        nonzeros = np.flatnonzero(np.isin(self._log_odds.indices, matches))
        exact = [index for index in matches if caseless(self._words[index]) == text]
        equal = np.isin(self._log_odds.indices[nonzeros], exact)
        concepts = np.searchsorted(self._log_odds.indptr, nonzeros, "right") - 1
        by_word = dict.fromkeys(concepts.tolist(), 4) | dict.fromkeys(concepts[equal].tolist(), 3)
        qualities = {}
        for concept in self.useful:
            label = caseless(name_of(self.labels[concept], concept))
            quality = min(by_word.get(concept, 5), _label_quality(label, text))
            if quality < 5:
                qualities[concept] = quality
        ordered = sorted(qualities, key=lambda concept: qualities[concept])
        first: dict[str, int] = {}
        for concept in ordered:
            first.setdefault(self._name(concept), concept)
        return list(first.values())

    def _examples_of(self, number: int) -> list[Example | None]:
        """Return the stored examples of a concept; None for a changed document's."""
        examples: list[Example | None] = []
        first = int(self._examples.indptr[number])
        for position, (document, activation) in enumerate(_row(self._examples, number), first):
            name = self._documents[document]
            content = self._content(name)
            same = content is not None and digest(content) == self._digests[document]
            start, end = self._spans[position].tolist()
            examples.append(Example(name, start, end, activation) if same else None)
        return examples


def digest(content: str) -> int:
    """Return 64 bits of a hash, to recognise a changed document."""
    return int.from_bytes(hashlib.blake2b(content.encode(), digest_size=8).digest())


def _label_quality(label: str, text: str) -> int:
    """Return how a label has a text: 0 whole, 1 as a word, 2 beginning a word, 4 inside, 5 not."""
    if text not in label:
        return 5
    if text == label:
        return 0
    words = re.findall(r"\w+", label)
    if text in words:
        return 1
    return 2 if any(word.startswith(text) for word in words) else 4


def unique_labels(labels: Sequence[str], changed: Collection[int] | None = None) -> list[str]:
    """Return labels in one line each, with the concept's number after a label that is not unique,
    or in place of an empty label.

    Args:
        changed: concepts whose labels are made unique; None for all.
    """
    numbers, unique = range(len(labels)) if changed is None else changed, list(labels)
    for concept in numbers:
        unique[concept] = one_line(labels[concept])
    counts = Counter(label.casefold() for label in unique)
    for concept in numbers:
        label = unique[concept]
        # A label that ends in a number could be that of another concept with its number.
        taken = not label or counts[label.casefold()] > 1 or re.search(r"#\d+$", label)
        if taken and not label.endswith(unnamed(concept)):
            unique[concept] = f"{label} {unnamed(concept)}".strip()
    return unique


def _save_used_columns(prefix: Path, matrix: sp.csr_array) -> Integers:
    """Write the columns of a matrix with entries; return their numbers."""
    used, columns = np.unique(matrix.indices, return_inverse=True)
    shape = (matrix.shape[0], used.size)
    save_csr(prefix, sp.csr_array((matrix.data, columns, matrix.indptr), shape=shape))
    return used


def _row(matrix: sp.csr_array, index: int) -> list[tuple[int, float]]:
    """Return the columns and values of a row in the stored order."""
    nonzeros = slice(int(matrix.indptr[index]), int(matrix.indptr[index + 1]))
    return list(zip(matrix.indices[nonzeros].tolist(), matrix.data[nonzeros].tolist(), strict=True))
