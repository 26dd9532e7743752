"""The public index: search, explain, and change it in place."""

from __future__ import annotations

import math
import os
import threading
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lexicept.corpora import Document
from lexicept.errors import InputError, LexiceptWarning, ParameterError
from lexicept.evaluation.alpha import AlphaChoice
from lexicept.explanation.explanation import Explanation
from lexicept.fields.facets import ValueCount
from lexicept.fields.filters import Filter
from lexicept.index import updates
from lexicept.index.generations import remove_unread
from lexicept.index.hits import Hits
from lexicept.index.impacts import RRASettings
from lexicept.index.queries import Steering
from lexicept.index.reader import IndexReader
from lexicept.index.verification import Verification, verify
from lexicept.pipelines.alpha import choose, rra_settings
from lexicept.pipelines.arguments import checked_arguments
from lexicept.pipelines.cluster import joined
from lexicept.pipelines.documents import Documents, as_documents, skippable
from lexicept.progress import Progress, reporting

if TYPE_CHECKING:
    from lexicept.pipelines.evaluate import Evaluation
    from lexicept.pipelines.systems import Systems


LOOK_SECONDS = 1.0
"""Seconds between looks of searches at whether the index on disk has changed."""


class Index:
    """An opened index.

    It reads one immutable snapshot, ``reader``. ``add``, ``delete`` and ``reweight`` write the next
    generation to disk and then replace the snapshot, so that searches in other threads see the
    index before the change or after it. Changes that others make show after ``refresh``; until
    then the index is ``stale``, and the first search that notices it, within ``LOOK_SECONDS``,
    gives a ``LexiceptWarning``.

    The path is resolved once: a link that is switched later, or another working folder, changes
    nothing.

    Threads may share an index and call all of its methods at once: a search returns what it returns
    alone. Texts go through a concept model one after another; all else runs side by side.

    A pickled index is its path and engine: unpickling opens what is at the path then.
    """

    @checked_arguments
    def __init__(self, reader: IndexReader) -> None:
        self._reader: IndexReader | None = reader
        self._changing = threading.Lock()
        self._next_look = 0.0

    @property
    def reader(self) -> IndexReader:
        """The snapshot that searches read."""
        if self._reader is None:
            raise InputError("the index is closed")
        return self._reader

    @property
    def stale(self) -> bool:
        """True if the index on disk has changed since the snapshot; ``refresh`` reads it anew."""
        return self.reader.stale()

    def _searched(self) -> IndexReader:
        """Return the snapshot. Warn once where the index on disk has changed since."""
        reader, now = self.reader, time.monotonic()
        if now >= self._next_look:
            self._next_look = now + LOOK_SECONDS
            # This object's own changes, in another thread, end with a new snapshot.
            if reader.stale() and not self._changing.locked() and reader is self._reader:
                self._next_look = math.inf
                problem = "has changed since it was opened: searches see it as it was"
                message = f"{reader.path} {problem}; refresh() reads it anew"
                warnings.warn(message, LexiceptWarning, stacklevel=3)
        return reader

    @property
    def path(self) -> Path:
        """The folder of the index, as an absolute path without links."""
        return self.reader.path

    def __len__(self) -> int:
        return len(self.reader)

    def __contains__(self, document_id: object) -> bool:
        return document_id in self.reader

    def __repr__(self) -> str:
        if self._reader is None:
            return "Index(closed)"
        sizes = ", ".join(f"{size:,} {name}" for name, size in self.vocabularies.items())
        return f"Index({str(self.path)!r}: {len(self):,} documents, {sizes})"

    @property
    def vocabularies(self) -> dict[str, int]:
        """The number of dimensions of each vocabulary, by name."""
        return {vocabulary.name: vocabulary.size for vocabulary in self.reader.vocabularies}

    def search(
        self,
        query: str,
        top_k: int = 10,
        *,
        vocabulary: str | None = None,
        steering: Steering | None = None,
        explain: bool = False,
        query_encoder: Literal["model", "lookup"] = "model",
        filter: Filter | None = None,  # noqa: A002
    ) -> Hits:
        """Return the best documents for a query, best first, ties in document order.

        Args:
            query: a text; one without a known word or concept has no results. ``note`` of the
                results says which words no document contains.
            top_k: the most results, at least 1.
            vocabulary: "words" or "concepts"; None searches all that the index has.
            steering: factors on the query's weights, by (vocabulary, dimension): 0 removes a
                dimension, 2 doubles its weight.
            explain: whether each hit gets the exact decomposition of its score.
            query_encoder: "model" runs the concept model; "lookup" looks the query's tokens up in
                a table of the index, in a tenth of the time and without torch, and finds less.
            filter: which documents may be results, by their fields: a text such as
                ``"year >= 2020 and tag in ['bio']"``, or a dict such as
                ``{"year": {">=": 2020}, "tag": ["bio"]}``.

        Raises:
            InputError: a query that is no text, an unknown vocabulary, ``top_k`` below 1,
                steering that names no dimension or has a factor out of range, no table, or a
                filter that is none or does not fit the fields.
        """
        reader = self._searched().using(query_encoder)
        hits = reader.search(query, top_k, vocabulary, steering, explain=explain, filter=filter)
        return Hits(hits, reader, query, vocabulary)

    def search_many(
        self,
        queries: Sequence[str],
        top_k: int = 10,
        *,
        vocabulary: str | None = None,
        threads: int | None = None,
        query_encoder: Literal["model", "lookup"] = "model",
        filter: Filter | None = None,  # noqa: A002
    ) -> list[Hits]:
        """Return the best documents for each query; see ``search``.

        The queries are encoded together, then searched by threads, which the search lets run at
        the same time (it releases Python's lock).

        Args:
            threads: threads that search, at least 1; one per processor by default.
            query_encoder: as in ``search``.
            filter: as in ``search``, for all queries.
        """
        reader = self._searched().using(query_encoder)
        if not isinstance(queries, str) and isinstance(queries, Iterable):
            queries = list(queries)  # they are read twice
        results = reader.search_many(queries, top_k, vocabulary, threads=threads, filter=filter)
        return [
            Hits(hits, reader, query, vocabulary)
            for query, hits in zip(queries, results, strict=True)
        ]

    def facets(
        self,
        fields: Sequence[str],
        *,
        query: str | None = None,
        filter: Filter | None = None,  # noqa: A002
        most: int = 10,
        vocabulary: str | None = None,
        query_encoder: Literal["model", "lookup"] = "model",
    ) -> dict[str, list[ValueCount]]:
        """Return the most frequent values of some fields, and how many documents have each.

        Args:
            query: count documents that share a word or concept with it only; None: all.
            filter: count documents that it lets pass only, as in ``search``.
            most: values of a field, at most.
            vocabulary: as in ``search``.
            query_encoder: as in ``search``.

        Raises:
            InputError: no such field, ``most`` below 1, or what ``search`` refuses.
        """
        reader = self._searched().using(query_encoder)
        masks = [reader.masks.of(filter)]
        if query is not None:
            masks.append(reader.found(query, vocabulary))
        return reader.masks.counts(fields, masks, most)

    def explain(
        self,
        query: str,
        document_id: str,
        *,
        vocabulary: str | None = None,
        steering: Steering | None = None,
        query_encoder: Literal["model", "lookup"] = "model",
    ) -> Explanation:
        """Return the exact decomposition of a document's score for a query.

        Args:
            vocabulary: as in ``search``.
            steering: as in ``search``.
            query_encoder: as in ``search``; "lookup" looks the document's tokens up too, so that
                a concept that only their context fired has no words there.

        Raises:
            InputError: an unknown document, or what ``search`` refuses.
        """
        reader = self._searched().using(query_encoder)
        return reader.explain(query, document_id, vocabulary, steering=steering)

    def evaluate(
        self,
        dataset: str | os.PathLike[str],
        split: str = "test",
        *,
        systems: Systems = (),
        measures: Sequence[str] = (),
        ignore_identical_ids: bool = False,
        query_encoder: Literal["model", "lookup"] = "model",
        out: str | os.PathLike[str] | None = None,
        curves: bool = False,
        restart: bool = False,
        progress: bool | Progress = False,
    ) -> Evaluation:
        """Return effectiveness and cost on judged queries; see ``lexicept.evaluate``."""
        from lexicept.pipelines.evaluate import evaluate

        return evaluate(
            self,
            dataset,
            split,
            systems=systems,
            measures=measures,
            ignore_identical_ids=ignore_identical_ids,
            query_encoder=query_encoder,
            out=out,
            curves=curves,
            restart=restart,
            progress=progress,
        )

    def document(self, document_id: str) -> Document:
        """Return a stored document. Raises InputError for an unknown id."""
        return self.reader.document(document_id)

    def documents(self) -> Iterator[Document]:
        """Return all stored documents, in order."""
        return self.reader.documents()

    def refresh(self) -> bool:
        """Read the newest generation on disk; return whether it is another one.

        Raises:
            IndexFormatError: the index is gone or damaged. The snapshot stays as it was.
            InputError: the engine that searches was built from an older generation.
        """
        reader = self.reader
        newest = IndexReader.open(reader.path, engine=reader.searcher.name)
        if newest.manifest == reader.manifest:
            return False
        newest.adopt(reader)
        self._reader, self._next_look = newest, 0.0
        return True

    @checked_arguments
    def add(
        self,
        documents: Documents,
        *,
        skip_errors: bool = False,
        progress: bool | Progress = False,
    ) -> updates.Added:
        """Add documents, and replace those whose ids the index has; return how many of each.

        Weights, RRA and postings are derived again.

        Args:
            documents: as for ``lexicept.build``; a text without an id gets the next free number.
            skip_errors: as for ``lexicept.build``.

        Raises:
            InputError: a bad document or duplicate ids among ``documents``, another process is
                changing the index, or an engine other than the exact one searches it.
        """
        with self._changing:
            path, known = self._changeable(), set(self.reader.ids)
            fresh = as_documents(
                documents, first=len(known) + 1, taken=known, skip_errors=skip_errors
            )
            with skippable(), reporting(progress) as report:
                counts = updates.update(path, fresh, report)
            self._move_on()
        return counts

    def delete(self, document_ids: Iterable[str]) -> int:
        """Delete documents and return their number.

        Raises:
            InputError: an unknown id (nothing is deleted then), no document would be left, another
                process is changing the index, or an engine other than the exact one searches it.
        """
        if isinstance(document_ids, str) or not isinstance(document_ids, Iterable):
            raise InputError(f"ids must be a list of texts, not {document_ids!r:.80}")
        with self._changing:
            count = updates.delete(self._changeable(), document_ids)
            self._move_on()
        return count

    @checked_arguments
    def reweight(
        self,
        alpha: float | Literal["auto"] = "auto",
        *,
        iterations: int = 1,
        transform: str = "1+x",
        out: str | os.PathLike[str] | None = None,
        ray: str | None = None,
        ray_workers: int | None = None,
    ) -> Index:
        """Re-weight by pragmatic reasoning (Rational Retrieval Acts) and return the index.

        Args:
            alpha: how sharply the speaker prefers what sets a document apart, above 0; "auto"
                chooses it on pseudo-queries, see ``choose_alpha``.
            iterations: rounds of listener and speaker, at least 1.
            transform: f of a weight (RRA, equation 1).
            out: write a re-weighted copy here and return that; None changes this index.
            ray: the HOST:PORT of a Ray cluster that writes the copy, or "local".
            ray_workers: the number of Ray processes; by default one for each processor.

        Raises:
            InputError: settings out of range, ``out`` exists, another process is changing the
                index, or an engine other than the exact one searches it.
        """
        if out is None:
            for name, value in (("ray", ray), ("ray_workers", ray_workers)):
                if value is not None:
                    raise ParameterError("{0} requires {1}", name, "out")
            with self._changing:
                path = self._changeable()
                chosen = rra_settings(self.reader, alpha, iterations, transform)
                updates.reweight_in_place(path, chosen)
                self._move_on()
            return self
        chosen = rra_settings(self.reader, alpha, iterations, transform)
        with joined(ray, ray_workers) as cluster:
            return Index(updates.reweight(self.path, out, chosen, cluster))

    @checked_arguments
    def choose_alpha(
        self,
        *,
        iterations: int = 1,
        transform: str = "1+x",
        generator: str | None = None,
        progress: bool | Progress = False,
    ) -> AlphaChoice:
        """Choose RRA's α without judgements: 1 unless another is better beyond chance.

        Args:
            iterations: as in ``reweight``.
            transform: as in ``reweight``.
            generator: a causal language model that writes the queries, a hub name or a folder;
                the best α on them is taken. They stay beside the index (``queries-*.jsonl``).
            progress: True shows a bar on standard error.
        """
        settings = RRASettings(iterations=iterations, transform=transform)
        return choose(self.reader, settings, generator, progress)

    def _changeable(self) -> Path:
        """Return the path of the index to change. Raise InputError for another engine."""
        if (name := self.reader.searcher.name) != "exact":
            problem = f"opened with the {name} engine, which a change makes out of date"
            raise InputError(f"{self.path}: {problem}; open it with engine='exact'")
        return self.path

    def _move_on(self) -> None:
        """Read the generation that a change has written, and remove the one before."""
        self.refresh()
        remove_unread(self.path)

    def info(self) -> dict[str, Any]:
        """Return what the index holds, as JSON values: documents, vocabularies, RRA, bytes."""
        reader = self.reader
        return {
            "path": str(reader.path),
            "documents": len(reader),
            "vocabularies": reader.manifest["vocabularies"],
            "fields": {name: str(kind) for name, kind in reader.fields.kinds.items()},
            "rra": reader.manifest["rra"],
            "postings": reader.engine.num_postings,
            "bytes": sum(entry["size"] for entry in reader.manifest["files"].values()),
            "written_by": f"lexicept {reader.manifest['lexicept']}",
        }

    def verify(self, *, progress: bool | Progress = False) -> Verification:
        """Check every file on disk: sizes, checksums, texts, and that the parts fit together."""
        with reporting(progress) as report:
            return verify(self.path, report)

    def close(self) -> None:
        """Let the snapshot go; changes may then remove its files. May be called again."""
        self._reader = None

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(open, self.path, engine=self.reader.searcher.name), ()

    def __enter__(self) -> Index:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


@checked_arguments
def open(  # noqa: A001
    path: str | os.PathLike[str], *, engine: str = "exact", checksums: bool = False
) -> Index:
    """Open an index.

    Args:
        path: the folder of the index.
        engine: "exact", or an engine that was built from the index ("seismic", "milvus").
        checksums: whether to compare the files' contents with their checksums; sizes always are.

    Raises:
        IndexFormatError: not an index, or one that is half-written, damaged or of a newer version.
        InputError: the index has no such engine, or has changed since the engine was built.
    """
    return Index(IndexReader.open(path, engine=engine, checksums=checksums))
