"""The public index: a snapshot to search and explain, and changes in place."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Any

from lexicept.checks import Count, Positive, checked_arguments
from lexicept.corpora.records import DocumentStream
from lexicept.errors import InputError, ParameterError
from lexicept.index import updates
from lexicept.index.atlas import Atlas, Findings
from lexicept.index.builder import Contents
from lexicept.index.generations import remove_unread
from lexicept.index.impacts import RRASettings
from lexicept.index.reader import IndexReader
from lexicept.index.verification import Verification, verify
from lexicept.parallel.ray import Cluster, joined_cluster
from lexicept.pipelines.documents import Documents, as_documents
from lexicept.pipelines.opened import warn_of_missing
from lexicept.pipelines.searchable import OpenedIndex
from lexicept.progress import Progress, reporting


class Index(OpenedIndex):
    """An opened index: an immutable snapshot, ``reader``, and methods that change the index.

    ``add``, ``delete``, ``describe``, ``merge`` and ``reweight`` write the next generation to disk
    and then replace the snapshot: searches in other threads see the index before or after a change.
    They raise InputError while another process changes the index. ``ray`` is the HOST:PORT of a Ray
    cluster or "local", ``ray_workers`` the number of Ray processes (by default one for each
    processor, or GPU). ``progress=True`` shows a line on standard error.

    Changes by other processes show after ``refresh``; until then the index is ``stale``, and the
    first search after ``LOOK_SECONDS`` at most gives a ``LexiceptWarning``.

    The path is resolved once: a link that is switched later, or another working folder, changes
    nothing. A pickled index is a path.

    Threads may share an index: a search returns the same results as alone. Texts go through a
    concept model in turn; all other work runs side by side.

    Examples:
        >>> len(index), "cats" in index
        (3, True)
    """

    @checked_arguments
    def add(
        self,
        documents: Documents,
        *,
        strict: bool = False,
        ray: str | None = None,
        ray_workers: Count | None = None,
        progress: bool | Progress = False,
    ) -> updates.Added:
        """Add documents, replacing documents of the same ids; return the numbers of both.

        Small indexes, and indexes with RRA, derive all weights and postings again. From 131,072
        documents and passages on, only new documents are weighed: the collection's statistics stay,
        until a sixteenth of the collection has changed (see ``merge``).

        Args:
            documents: as for ``lexicept.build``; a text without an id gets the next free number.
            strict: as for ``lexicept.build``.
            ray: the HOST:PORT of a Ray cluster, or "local".
            ray_workers: the number of Ray processes; by default one for each processor, or GPU.
            progress: True shows a line on standard error; a callback gets reports.

        Raises:
            InputError: a bad document, or duplicate ids among ``documents``.

        Examples:
            >>> index.add(["Birds sing."])
            Added(added=1, replaced=0)
        """

        def fresh(index: IndexReader) -> DocumentStream:  # the newest, perhaps of another writer
            ids = set(index.passages.names())
            return as_documents(documents, first=len(ids) + 1, taken=ids, strict=strict)

        with self._change(ray, ray_workers, progress) as (report, cluster):
            return updates.update(self.path, fresh, report, cluster)

    @checked_arguments
    def describe(self, *, language: str = "en", progress: bool | Progress = False) -> Atlas:
        """Describe the concepts: frequency, typical words, and examples of each.

        The model reads a sample of the documents, and more documents for missed concepts. Names by
        a language model or a release stay.

        Args:
            language: of the documents, for stop words and stemming (ISO 639-1 code).
            progress: True shows a line on standard error; a callback gets reports.

        Raises:
            InputError: the index has no concepts, or the language has no stemmer.

        Examples:
            >>> index.describe()[3130].label
            'sleep'
        """
        from lexicept.concepts.describe import describe

        def find(index: IndexReader) -> Findings:
            vectorizer: Any = index.vectorizer("concepts")
            encoder = vectorizer.encoder
            (concepts,) = (entry for entry in index.vocabularies if entry.name == "concepts")
            tf, texts = index.stored_tf(concepts).load(), Contents(index.folder)
            return describe(encoder, texts, tf, language=language, progress=report)

        with self._change(progress=progress) as (report, _):
            updates.describe(self.path, find)
        return self._atlas()

    def delete(self, document_ids: Iterable[str]) -> int:
        """Delete documents and return the number of deleted documents.

        Args:
            document_ids: a list of ids.

        Raises:
            InputError: an unknown id (nothing is deleted then), or no document would be left.

        Examples:
            >>> index.delete(["cats"])
            1
        """
        if isinstance(document_ids, str) or not isinstance(document_ids, Iterable):
            raise InputError(f"ids must be a list of texts, not {document_ids!r:.80}")
        with self._change():
            return updates.delete(self.path, document_ids)

    @checked_arguments
    def merge(self, *, ray: str | None = None, ray_workers: Count | None = None) -> bool:
        """Derive all weights and postings again, as a new build would; return True for a change.

        Changes of a large index leave added postings behind, weighed by older statistics. They add
        some microseconds to a search.

        Args:
            ray: the HOST:PORT of a Ray cluster, or "local".
            ray_workers: the number of Ray processes; by default one for each processor, or GPU.

        Examples:
            >>> index.merge()
            False
        """
        with self._change(ray, ray_workers) as (_, cluster):
            return updates.merge(self.path, cluster)

    @checked_arguments
    def reweight(
        self,
        alpha: Positive = 1.0,
        *,
        iterations: Count = 1,
        transform: str = "1+x",
        out: str | os.PathLike[str] | None = None,
        ray: str | None = None,
        ray_workers: Count | None = None,
    ) -> Index:
        """Re-weight by pragmatic reasoning (Rational Retrieval Acts) and return the index.

        Args:
            alpha: the speaker's preference for dimensions that set a document apart, above 0.
            iterations: rounds of listener and speaker, at least 1.
            transform: f of a weight (RRA, equation 1).
            out: the folder of a re-weighted copy to return; by default this index changes.
            ray: the HOST:PORT of a Ray cluster, or "local".
            ray_workers: the number of Ray processes; by default one for each processor, or GPU.

        Raises:
            InputError: settings out of range, ``out`` exists, or ``ray`` without ``out``.

        Examples:
            >>> index.reweight(alpha=1.25).info()["rra"]["alpha"]
            1.25
        """
        rra = RRASettings(alpha, iterations, transform)
        if out is None:
            if ray is not None or ray_workers is not None:
                name = "ray_workers" if ray is None else "ray"
                raise ParameterError("{0} requires {1}", name, "out")
            with self._change():
                updates.reweight_in_place(self.path, rra)
            return self
        with joined_cluster(ray, ray_workers) as cluster:
            return Index(updates.reweight(self.path, out, rra, cluster))

    @contextmanager
    def _change(
        self,
        ray: str | None = None,
        ray_workers: Count | None = None,
        progress: bool | Progress = False,
    ) -> Iterator[tuple[Progress, Cluster | None]]:
        """Keep other threads from changing the index, then read and keep the new generation alone.
        Raises InputError if the index is closed, or if the documents of a change change it."""
        if self._changer == get_ident():
            raise InputError("the index can't change while it reads documents for another change")
        with self._changing:
            self._changer = get_ident()
            try:
                path = self.reader.path  # a closed index is refused before it changes
                with reporting(progress) as report, joined_cluster(ray, ray_workers) as cluster:
                    yield report, cluster
                self.refresh()
                remove_unread(path)
            finally:
                self._changer = 0

    def verify(self, *, progress: bool | Progress = False) -> Verification:
        """Check every file on disk: sizes, checksums, texts, and agreement of the parts.

        Args:
            progress: True shows a line on standard error; a callback gets reports.

        Raises:
            IndexFormatError: the index is gone, or of another version.

        Examples:
            >>> index.verify().problems
            []
        """
        with reporting(progress) as report:
            return verify(self.path, report)

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (self.reader.path,)

    def __enter__(self) -> Index:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


@checked_arguments
def open(  # noqa: A001
    path: str | os.PathLike[str], *, checksums: bool = False
) -> Index:
    """Open an index. An index whose build has words alone so far gives a ``LexiceptWarning``, and
    searches everything once the build has ended.

    Args:
        path: the folder of the index.
        checksums: whether to check contents; sizes are always checked.

    Raises:
        IndexFormatError: not an index, or a half-written or damaged index, or another version.

    Examples:
        >>> lexicept.open("pets.index").vocabularies
        {'words': 10, 'concepts': 8192}
    """
    return Index(warn_of_missing(IndexReader.open(path, checksums=checksums)))
