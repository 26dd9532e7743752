"""Documents that are indexed in passages: an index has an entry for each passage, and a search
finds the document by the best passage.

``passages/`` of a generation has the ``ids`` and ``titles`` of divided documents, and in
``spans.npy`` their first entries and numbers of entries. The entries of a document follow one
another. An index without divided documents lacks the folder: every entry is a document.
"""

from __future__ import annotations

from array import array
from collections.abc import Container, Iterator, Sequence
from contextlib import ExitStack
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from lexicept.corpora import Document
from lexicept.corpora.records import AnchorChecker, Location, Passage
from lexicept.engines.interface import PostingsEngine, Ranking
from lexicept.engines.mask import Mask
from lexicept.errors import IndexFormatError
from lexicept.storage.arrays import BlockWriter, load_array, save_array
from lexicept.storage.sequences import LazySequence
from lexicept.storage.texts import JoinedTexts, TextStore, TextWriter
from lexicept.vectors import Floats, Integers, run_starts

FOLDER = "passages"

FIRST_DEPTH = 4
"""Entries searched first for each document of ``top_k``."""


class Passages:
    """The divided documents of an index, by the folder of the generation and the id of each entry.

    An entry is a document or a passage. Damaged files raise IndexFormatError.
    """

    def __init__(self, folder: Path, entry_ids: Sequence[str]) -> None:
        self.entry_ids = entry_ids
        self.folder = folder / FOLDER
        self.ids: Sequence[str] = ()
        self.titles: Sequence[str] = ()
        self.starts = self.counts = np.empty(0, np.int64)
        """The first entry of each divided document, and the number of its entries."""
        if not (folder / FOLDER).is_dir():
            return
        self.ids = TextStore(folder / FOLDER / "ids")
        self.titles = TextStore(folder / FOLDER / "titles")
        spans = load_array(folder / FOLDER / "spans.npy", np.int64, ndim=2)
        if spans.shape != (len(self.ids), 2) or len(self.titles) != len(self.ids):
            raise IndexFormatError(f"{folder / FOLDER}: its files do not fit together")
        self.starts, self.counts = spans[:, 0], spans[:, 1]
        ends = self.starts + self.counts
        bounds = np.concatenate([[0], np.stack([self.starts, ends], 1).ravel(), [len(entry_ids)]])
        if (np.diff(bounds) < 0).any() or (self.counts < 1).any():
            raise IndexFormatError(f"{folder / FOLDER}: entries out of order")

    def __len__(self) -> int:
        """The number of divided documents."""
        return len(self.ids)

    @property
    def num_documents(self) -> int:
        """The number of all documents."""
        return len(self.entry_ids) - int((self.counts - 1).sum())

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The position of each document in ``ids``, by id."""
        return {name: document for document, name in enumerate(self.ids)}

    def span(self, number: int) -> range:
        """Return the entries of a divided document."""
        start = int(self.starts[number])
        return range(start, start + int(self.counts[number]))

    def number_at(self, entry: int) -> int | None:
        """Return the divided document of an entry; None for an entry that is a document."""
        document = int(np.searchsorted(self.starts, entry, "right")) - 1
        return document if document >= 0 and entry in self.span(document) else None

    def document_id(self, entry: int) -> str:
        document = self.number_at(entry) if len(self.ids) else None
        return self.entry_ids[entry] if document is None else self.ids[document]

    @cached_property
    def document_numbers(self) -> Integers:
        """The number of each entry's document among all documents [N]."""
        # The second and later entries of a divided document do not start a document.
        follows = np.zeros(len(self.entry_ids) + 1, np.int64)
        np.add.at(follows, self.starts + 1, 1)
        np.add.at(follows, self.starts + self.counts, -1)
        return np.cumsum(np.cumsum(follows[:-1]) == 0) - 1

    @cached_property
    def firsts(self) -> Integers:
        """The first entry of each document [documents]."""
        return run_starts(self.document_numbers)

    def spans(self) -> Iterator[tuple[str, range]]:
        """Yield the id and the entries of every document, in order."""
        divided = dict(zip(self.starts.tolist(), self.ids, strict=True))
        for start, stop in pairwise([*self.firsts.tolist(), len(self.entry_ids)]):
            yield divided.get(start) or self.entry_ids[start], range(start, stop)

    def names(self) -> Iterator[str]:
        """Yield the id of every document, in order."""
        return (name for name, _ in self.spans()) if len(self.ids) else iter(self.entry_ids)

    def per_document(self, mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Return a mask of the first entry of each document with an entry in a mask [N]."""
        if not len(self.ids):
            return mask
        first_entries = np.zeros_like(mask)
        first_entries[self.firsts] = np.logical_or.reduceat(mask, self.firsts)
        return first_entries

    def first_of_each(self, mask: npt.NDArray[np.bool_]) -> Integers:
        """Return the number of each document's first entry in a mask [N]."""
        passages: Integers = np.flatnonzero(mask)
        if not len(self.ids):
            return passages
        return passages[run_starts(self.document_numbers[passages])]

    def whole(self, mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Return a mask of all entries of the documents with an entry in a mask [N]."""
        if not len(self.ids):
            return mask
        return np.logical_or.reduceat(mask, self.firsts)[self.document_numbers]

    def ranked(
        self,
        engine: PostingsEngine,
        queries: sp.csr_array,
        top_k: int,
        factors: Floats | None = None,
        threads: int | None = None,
        mask: Mask | None = None,
    ) -> list[Ranking]:
        """Return the best entry of each of the ``top_k`` best documents, for every query; see
        ``PostingsEngine.search``."""
        if not len(self.ids):
            return engine.search(queries, top_k, factors, threads, mask)
        results: list[Ranking] = [(np.empty(0, np.int64), np.empty(0, np.float32))]
        results *= queries.shape[0]
        waiting, depth = np.arange(queries.shape[0]), FIRST_DEPTH * top_k
        # A query whose best entries are of fewer documents is searched again, four times as deep.
        while waiting.size:
            depth = min(depth, len(self.entry_ids))
            offsets = None if factors is None else factors[waiting]
            searched = queries if waiting.size == queries.shape[0] else queries[waiting]
            rankings = engine.search(searched, depth, offsets, threads, mask)
            again = []
            for query, (passages, scores) in zip(waiting, rankings, strict=True):
                _, firsts = np.unique(self.document_numbers[passages], return_index=True)
                best = np.sort(firsts)[:top_k]
                results[query] = passages[best], scores[best]
                if best.size < top_k and passages.size == depth < len(self.entry_ids):
                    again.append(query)
            waiting, depth = np.array(again, np.int64), 4 * depth
        return results


def check_joined(old: Passages, new: Passages, gone: Container[str]) -> None:
    """Raise InputError if a document has the id of a passage after a change.

    Args:
        gone: old documents that are replaced or deleted.
    """
    if not len(old) + len(new):
        return
    checker, marks = AnchorChecker(), (Passage("", ""),)

    def check(location: Location, name: str, passages: Passages) -> None:
        divided = name in passages.numbers
        checker.check(location, Document(name, "", passages=marks if divided else ()))

    for name in old.names():
        if (name in old.numbers or "#" in name) and name not in gone:
            check(Location("the index", 0, "document"), name, old)
    for document, name in enumerate(new.names(), 1):
        check(Location("the documents", document, "document"), name, new)


def join_passages(folder: Path, old: Passages, new: Passages, order: Integers) -> None:
    """Write the passages of a selection from two collections.

    Args:
        folder: of the generation.
        order: numbers of the entries, counted through both collections; all or no entries of a
            document, one after another [N].
    """
    first = len(old.entry_ids)
    # The new position of each entry; -1 for an entry that is left out.
    positions = np.full(first + len(new.entry_ids), -1)
    positions[order] = np.arange(order.size)
    starts = positions[np.concatenate([old.starts, first + new.starts])]
    counts = np.concatenate([old.counts, new.counts])
    selected = np.flatnonzero(starts >= 0)
    selected = selected[np.argsort(starts[selected])]
    if not selected.size:
        return
    (folder / FOLDER).mkdir()
    for name in ("ids", "titles"):
        stores = [TextStore(p.folder / name) for p in (old, new) if len(p)]
        with TextWriter(folder / FOLDER / name) as writer:
            JoinedTexts(stores, selected).write(writer)
    save_array(folder / FOLDER / "spans.npy", np.stack([starts[selected], counts[selected]], 1))


class DocumentIds(LazySequence[str]):
    """The id of each entry's document."""

    def __init__(self, passages: Passages, num_entries: int) -> None:
        self._passages, self._num_entries = passages, num_entries

    def __len__(self) -> int:
        return self._num_entries

    def _read(self, number: int) -> str:
        return self._passages.document_id(number)


class PassageWriter(BlockWriter):
    """Writes the passages of documents, as documents come; no files without passages."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / FOLDER
        self._spans = array("q")
        self._open = ExitStack()
        self._texts: tuple[TextWriter, TextWriter] | None = None

    def append(self, document: Document, first: int) -> None:
        """Note a document with passages; ``first`` is the number of the first passage's entry."""
        if self._texts is None:
            self._folder.mkdir()
            ids, titles = (TextWriter(self._folder / name) for name in ("ids", "titles"))
            self._texts = self._open.enter_context(ids), self._open.enter_context(titles)
        self._texts[0].append(document.id)
        self._texts[1].append(document.title)
        self._spans.extend((first, len(document.passages)))

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        if self._texts is not None and error[0] is None:
            spans = np.frombuffer(self._spans, np.int64).reshape(-1, 2)
            save_array(self._folder / "spans.npy", spans)
