"""Documents that are indexed in passages: an index has a row for each passage, and a search finds
the document by its best one.

``passages/`` of a generation has ``ids`` and ``titles`` of these documents, and in ``spans.npy``
their first rows and numbers of rows. The rows of a document follow one another. There is no such
folder where every row is a document.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from lexicept.corpora import Document
from lexicept.corpora.records import AnchorChecker, Passage, Place
from lexicept.engines import Engine
from lexicept.engines.mask import Mask
from lexicept.errors import IndexFormatError
from lexicept.storage.arrays import load_array, save_array
from lexicept.storage.sequences import LazySequence
from lexicept.storage.texts import JoinedTexts, TextStore, TextWriter
from lexicept.vectors import Floats, Integers

FOLDER = "passages"

Ranking = tuple[Integers, Floats]
"""Rows and their scores, best first."""

FIRST_DEPTH = 4
"""Rows searched first for each document that is wanted."""


class Passages:
    """The documents that are indexed in passages.

    Args:
        folder: of the generation.
        row_ids: the id of each row.

    Raises:
        IndexFormatError: the files are damaged.
    """

    def __init__(self, folder: Path, row_ids: Sequence[str]) -> None:
        self._row_ids = row_ids
        self.folder = folder / FOLDER
        self.ids: Sequence[str] = ()
        self.titles: Sequence[str] = ()
        self._starts = self._counts = np.empty(0, np.int64)
        if not (folder / FOLDER).is_dir():
            return
        self.ids = TextStore(folder / FOLDER / "ids")
        self.titles = TextStore(folder / FOLDER / "titles")
        spans = load_array(folder / FOLDER / "spans.npy", np.int64, ndim=2)
        if spans.shape != (len(self.ids), 2) or len(self.titles) != len(self.ids):
            raise IndexFormatError(f"{folder / FOLDER}: its parts do not fit together")
        self._starts, self._counts = spans[:, 0], spans[:, 1]
        ends = self._starts + self._counts
        bounds = np.concatenate([[0], np.stack([self._starts, ends], 1).ravel(), [len(row_ids)]])
        if (np.diff(bounds) < 0).any() or (self._counts < 1).any():
            raise IndexFormatError(f"{folder / FOLDER}: rows out of order")

    def __len__(self) -> int:
        """The number of documents that are indexed in passages."""
        return len(self.ids)

    @property
    def num_documents(self) -> int:
        """The number of all documents."""
        return len(self._row_ids) - int((self._counts - 1).sum())

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The place of each document in ``ids``, by id."""
        return {name: number for number, name in enumerate(self.ids)}

    def span(self, number: int) -> range:
        """Return the rows of one of these documents."""
        start = int(self._starts[number])
        return range(start, start + int(self._counts[number]))

    def number_at(self, row: int) -> int | None:
        """Return which of these documents has a row; None for a row that is a document."""
        number = int(np.searchsorted(self._starts, row, "right")) - 1
        return number if number >= 0 and row in self.span(number) else None

    def document_id(self, row: int) -> str:
        """Return the id of the document of a row."""
        number = self.number_at(row) if len(self.ids) else None
        return self._row_ids[row] if number is None else self.ids[number]

    @cached_property
    def of_rows(self) -> Integers:
        """The number of each row's document among all documents [N]."""
        follows = np.zeros(len(self._row_ids) + 1, np.int64)
        np.add.at(follows, self._starts + 1, 1)
        np.add.at(follows, self._starts + self._counts, -1)
        documents: Integers = np.cumsum(np.cumsum(follows[:-1]) == 0) - 1
        return documents

    @cached_property
    def firsts(self) -> Integers:
        """The first row of each document [documents]."""
        return np.flatnonzero(np.diff(self.of_rows, prepend=-1))

    def spans(self) -> Iterator[tuple[str, range]]:
        """Yield the id and the rows of every document, in order."""
        row = 0
        for number in range(len(self.ids)):
            rows = self.span(number)
            for whole in range(row, rows.start):
                yield self._row_ids[whole], range(whole, whole + 1)
            yield self.ids[number], rows
            row = rows.stop
        for whole in range(row, len(self._row_ids)):
            yield self._row_ids[whole], range(whole, whole + 1)

    def names(self) -> Iterator[str]:
        """Yield the id of every document, in order."""
        return (name for name, _ in self.spans()) if len(self.ids) else iter(self._row_ids)

    def per_document(self, rows: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Keep of the rows that are true [N] the first of each document, and no other.

        A document counts where any of its rows does.
        """
        if not len(self.ids):
            return rows
        kept = np.zeros_like(rows)
        kept[self.firsts] = np.logical_or.reduceat(rows, self.firsts)
        return kept

    def first_of_each(self, rows: npt.NDArray[np.bool_]) -> Integers:
        """Return the first row of every document among those that are true [N]."""
        chosen: Integers = np.flatnonzero(rows)
        if not len(self.ids):
            return chosen
        return chosen[np.diff(self.of_rows[chosen], prepend=-1) > 0]

    def whole(self, rows: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Return the rows of all documents that have one of these [N]."""
        if not len(self.ids):
            return rows
        documents: npt.NDArray[np.bool_] = np.logical_or.reduceat(rows, self.firsts)
        return documents[self.of_rows]

    def ranked(
        self,
        engine: Engine,
        queries: sp.csr_array,
        top_k: int,
        factors: Floats | None = None,
        threads: int | None = None,
        mask: Mask | None = None,
    ) -> list[Ranking]:
        """Return the best rows that an engine over these finds, one for each document.

        Args:
            factors: of the queries on RRA's offsets [n].
        """
        if not len(self.ids):
            return engine.search(queries, top_k, factors, threads, mask)

        def search(numbers: Integers, depth: int) -> list[Ranking]:
            own = None if factors is None else factors[numbers]
            return engine.search(queries[numbers], depth, own, threads, mask)

        return self._best(search, queries.shape[0], top_k)

    def _best(
        self,
        search: Callable[[Integers, int], list[Ranking]],
        num_queries: int,
        top_k: int,
    ) -> list[Ranking]:
        """Return the best row of each of the ``top_k`` best documents, for every query.

        Args:
            search: returns the best rows for the queries of these numbers, at most as many as it
                is told.
        """
        results: list[Ranking] = [(np.empty(0, np.int64), np.empty(0, np.float32))] * num_queries
        waiting, depth = np.arange(num_queries), FIRST_DEPTH * top_k
        while waiting.size:
            depth = min(depth, len(self._row_ids))
            again = []
            for query, (rows, scores) in zip(waiting, search(waiting, depth), strict=True):
                _, firsts = np.unique(self.of_rows[rows], return_index=True)
                chosen = np.sort(firsts)[:top_k]
                results[query] = rows[chosen], scores[chosen]
                if chosen.size < top_k and rows.size == depth < len(self._row_ids):
                    again.append(query)
            waiting, depth = np.array(again, np.int64), 4 * depth
        return results


def check_joined(old: Passages, new: Passages, gone: Container[str]) -> None:
    """Check that no document would have the id of another one's passage.

    Args:
        gone: documents of the old ones that do not stay.

    Raises:
        InputError: one would, or would have passages of such ids.
    """
    if not len(old) + len(new):
        return
    checker, place = AnchorChecker(), Place("the index", 0, "document")
    marks = (Passage("", ""),)
    for name in old.names():
        if (name in old.numbers or "#" in name) and name not in gone:
            passages = marks if name in old.numbers else ()
            checker.check(place, Document(name, "", passages=passages))
    for number, name in enumerate(new.names(), 1):
        passages = marks if name in new.numbers else ()
        given = Place("the documents", number, "document")
        checker.check(given, Document(name, "", passages=passages))


def join_passages(folder: Path, old: Passages, new: Passages, order: Integers) -> None:
    """Write which rows are passages, of rows of two collections.

    Args:
        folder: of the generation.
        order: numbers of the rows, counted through both, with all or none of a document's one
            after the other [N].
    """
    first = len(old._row_ids)
    places = np.full(first + len(new._row_ids), -1)
    places[order] = np.arange(order.size)
    starts = places[np.concatenate([old._starts, first + new._starts])]
    counts = np.concatenate([old._counts, new._counts])
    kept = np.flatnonzero(starts >= 0)
    kept = kept[np.argsort(starts[kept])]
    if not kept.size:
        return
    (folder / FOLDER).mkdir()
    for name in ("ids", "titles"):
        stores = [TextStore(p.folder / name) for p in (old, new) if len(p)]
        with TextWriter(folder / FOLDER / name) as writer:
            JoinedTexts(stores, kept).write(writer)
    save_array(folder / FOLDER / "spans.npy", np.stack([starts[kept], counts[kept]], 1))


class DocumentIds(LazySequence[str]):
    """The id of each row's document."""

    def __init__(self, passages: Passages, num_rows: int) -> None:
        self._passages, self._num_rows = passages, num_rows

    def __len__(self) -> int:
        return self._num_rows

    def _read(self, number: int) -> str:
        return self._passages.document_id(number)


class PassageWriter:
    """Writes which rows are passages of a document, as documents come; nothing where none is."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / FOLDER
        self._spans = array("q")
        self._open = ExitStack()
        self._texts: tuple[TextWriter, TextWriter] | None = None

    def append(self, document: Document, row: int) -> None:
        """Note a document that has passages.

        Args:
            row: of its first passage.
        """
        if self._texts is None:
            self._folder.mkdir()
            ids, titles = (TextWriter(self._folder / name) for name in ("ids", "titles"))
            self._texts = self._open.enter_context(ids), self._open.enter_context(titles)
        self._texts[0].append(document.id)
        self._texts[1].append(document.title)
        self._spans.extend((row, len(document.passages)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self._open.__exit__(*error)
        if self._texts is not None and error[0] is None:
            spans = np.frombuffer(self._spans, np.int64).reshape(-1, 2)
            save_array(self._folder / "spans.npy", spans)
