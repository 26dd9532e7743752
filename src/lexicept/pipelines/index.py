"""The public index: a snapshot to search and explain, and changes in place."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any, Literal

from lexicept.errors import InputError, ParameterError
from lexicept.index import descriptions, updates
from lexicept.index.atlas import Atlas, Findings
from lexicept.index.builder import Contents
from lexicept.index.generations import remove_unread
from lexicept.index.impacts import RRASettings
from lexicept.index.reader import IndexReader
from lexicept.index.verification import Verification, verify
from lexicept.parallel.ray import joined_cluster
from lexicept.pipelines.alpha import AlphaChoice, choose_alpha_for, rra_settings
from lexicept.pipelines.arguments import checked_arguments
from lexicept.pipelines.documents import Documents, as_documents, skippable
from lexicept.pipelines.searchable import OpenedIndex
from lexicept.progress import Progress, reporting


class Index(OpenedIndex):
    """An opened index: one immutable snapshot, ``reader``, and methods that change the index.

    ``add``, ``delete``, ``merge`` and ``reweight`` write the next generation to disk and then
    replace the snapshot, so that searches in other threads see the index before the change or
    after it. Changes by other processes show after ``refresh``; until then the index is ``stale``,
    and the first search that notices it, within ``LOOK_SECONDS``, gives a ``LexiceptWarning``.

    The path is resolved once: a link that is switched later, or another working folder, changes
    nothing. A pickled index is its path and engine: unpickling opens the path again.

    Threads may share an index: a search returns the same results as alone. Texts go through a
    concept model one after another; all other work runs side by side.
    """

    @checked_arguments
    def add(
        self,
        documents: Documents,
        *,
        skip_errors: bool = False,
        ray: str | None = None,
        ray_workers: int | None = None,
        progress: bool | Progress = False,
    ) -> updates.Added:
        """Add documents, and replace those whose ids the index has; return how many of each.

        Of a small index, or one with RRA, all weights and postings are derived again. From 131,072
        documents and passages on, only those of new documents are: the collection's statistics stay
        as they are, until a sixteenth of it has changed since they were computed (see ``merge``).

        Args:
            documents: as for ``lexicept.build``; a text without an id gets the next free number.
            skip_errors: as for ``lexicept.build``.
            ray: the HOST:PORT of a Ray cluster that encodes documents and derives postings, or
                "local".
            ray_workers: the number of Ray processes; by default one for each processor, or GPU.

        Raises:
            InputError: a bad document or duplicate ids among ``documents``, another process is
                changing the index, or an engine other than the exact one searches it.
        """
        with self._changing:
            path, ids = self._changeable(), {name for name, _ in self.reader.passages.spans()}
            fresh = as_documents(documents, first=len(ids) + 1, taken=ids, skip_errors=skip_errors)
            with (
                skippable(),
                reporting(progress) as report,
                joined_cluster(ray, ray_workers) as cluster,
            ):
                counts = updates.update(path, fresh, report, cluster)
            self._move_on()
        return counts

    @checked_arguments
    def describe(
        self,
        *,
        language: str = "en",
        ray: str | None = None,
        ray_workers: int | None = None,
        progress: bool | Progress = False,
    ) -> Atlas:
        """Describe the concepts: how often each fires, on which words, with examples.

        The model reads a sample of the documents, and others for the concepts that it missed. Names
        that a language model or a release gave stay.

        Args:
            language: of the documents, for stop words and stemming (ISO 639-1 code).
            ray: the HOST:PORT of a Ray cluster that reads the documents, or "local".
            ray_workers: the number of Ray processes; by default one for each processor, or GPU.

        Raises:
            InputError: the index has no concepts, the language has no stemmer, another process is
                changing the index, or an engine other than the exact one searches it.
        """
        from lexicept.interpretation.activations import reading_on
        from lexicept.interpretation.describe import describe

        def find(index: IndexReader) -> Findings:
            vectorizer: Any = index.vectorizer("concepts")
            encoder = vectorizer.encoder
            (concepts,) = (entry for entry in index.vocabularies if entry.name == "concepts")
            tf, texts = index.stored_tf(concepts).load(), Contents(index.folder)
            with reading_on(cluster, encoder, index.folder / "concepts") as read:
                return describe(encoder, texts, tf, language=language, read=read, progress=report)

        with self._changing:
            path = self._changeable()
            with reporting(progress) as report, joined_cluster(ray, ray_workers) as cluster:
                descriptions.describe(path, find)
            self._move_on()
        atlas = self.reader.atlas
        assert atlas is not None
        return atlas

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
    def merge(self, *, ray: str | None = None, ray_workers: int | None = None) -> bool:
        """Derive all weights and postings again, as a new build would; return whether they were not
        those already.

        Changes of a large index leave parts of postings behind, weighed by statistics of the
        collection as it was. A search of several parts takes some microseconds more for each.

        Args:
            ray: the HOST:PORT of a Ray cluster that derives them, or "local".
            ray_workers: the number of Ray processes; by default one for each processor.

        Raises:
            InputError: another process is changing the index, or an engine other than the exact one
                searches it.
        """
        with self._changing:
            with joined_cluster(ray, ray_workers) as cluster:
                merged = updates.merge(self._changeable(), cluster)
            self._move_on()
        return merged

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
            InputError: settings out of range, ``out`` exists, ``ray`` without ``out``, another
                process is changing the index, or an engine other than the exact one searches it.
        """
        if out is None:
            for name, value in (("ray", ray), ("ray_workers", ray_workers)):
                if value is not None:
                    raise ParameterError("{0} requires {1}", name, "out")
            with self._changing:
                path = self._changeable()
                rra = rra_settings(self.reader, alpha, iterations, transform)
                updates.reweight_in_place(path, rra)
                self._move_on()
            return self
        rra = rra_settings(self.reader, alpha, iterations, transform)
        with joined_cluster(ray, ray_workers) as cluster:
            return Index(updates.reweight(self.path, out, rra, cluster))

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

        Raises:
            InputError: settings out of range, or a generator that can't be loaded.
        """
        settings = RRASettings(iterations=iterations, transform=transform)
        return choose_alpha_for(self.reader, settings, generator, progress)

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

    def verify(self, *, progress: bool | Progress = False) -> Verification:
        """Check every file on disk: sizes, checksums, texts, and that the parts fit together.

        Raises:
            IndexFormatError: the index is gone, or of another version.
        """
        with reporting(progress) as report:
            return verify(self.path, report)

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
        engine: "exact", or an engine that was built from the index ("seismic").
        checksums: whether to compare the files' contents with their checksums; sizes always are.

    Raises:
        IndexFormatError: not an index, or one that is half-written, damaged or of another version.
        InputError: the index has no such engine, or has changed since the engine was built.
    """
    return Index(IndexReader.open(path, engine=engine, checksums=checksums))
