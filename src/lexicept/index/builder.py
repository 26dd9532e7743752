"""Building an index, step by step; an interrupted build can be resumed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from lexicept.corpora import Document
from lexicept.corpora.passages import rows
from lexicept.corpora.records import DocumentStream, Location
from lexicept.corpora.skipped import Skipped
from lexicept.encoding.vectorizer import DocumentEncoder
from lexicept.errors import IndexFormatError, InputError
from lexicept.fields.values import NOTHING, FieldType
from lexicept.fields.writing import FieldWriter
from lexicept.index.atlas import Findings
from lexicept.index.generations import IndexLayout, commit_generation, replace_generation
from lexicept.index.impacts import RRASettings, VocabularySettings
from lexicept.index.manifest import is_index, missing_from, read_manifest, resolved, write_files
from lexicept.index.parts import PARTS, Parts, check_number, frequencies, part_name
from lexicept.index.passages import PassageWriter
from lexicept.index.reader import IndexReader
from lexicept.index.stored import StoredDocuments
from lexicept.index.term_frequencies import encode_on, write_tf
from lexicept.index.text_vectors import TextVectors, VectorSettings
from lexicept.parallel.ray import Cluster
from lexicept.parallel.shards import Over
from lexicept.progress import Progress, silent
from lexicept.storage.files import fingerprint, link, move, sha256
from lexicept.storage.manifest import describe_files, generation_name
from lexicept.storage.sequences import LazySequence
from lexicept.storage.texts import TextWriter
from lexicept.storage.workspace import Workspace, refuse_existing


class IndexBuilder:
    """Builds one index, step by step: documents, then each vocabulary, then ``commit``. Raises
    InputError if something is at ``path`` already, unless it is an index that ``publish_early``
    left unfinished, if another process is building there, or a node does not see the folder. Raises
    IndexFormatError, with ``overwrite``, for something else than an index at ``path``.

    Args:
        path: the index to create; the unfinished work is in ``<path>.partial`` (see ``Workspace``).
        cluster: encodes documents and derives postings; its nodes must see the folder.
        overwrite: let ``commit`` make the new index the next generation of one at ``path``.

    Attributes:
        work: the workspace, which also keeps the state of concepts that are trained or adapted.
        contents: titles and texts of the added documents.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        cluster: Cluster | None = None,
        *,
        restart: bool = False,
        overwrite: bool = False,
    ) -> None:
        self.path = Path(path).absolute()
        if overwrite and self.path.exists():
            if not is_index(self.path):
                raise IndexFormatError(f"{self.path}: no index, and not replaced")
            path = self.path = resolved(path)
        replaces = overwrite or bool(missing_from(self.path))
        if not replaces and is_index(self.path):
            problem = "exists already: name another path or replace it with overwrite"
            raise InputError(f"{self.path} {problem}")
        self.work = Workspace(path, "build", restart=restart, overwrite=replaces)
        self._cluster, self._overwrite = cluster, overwrite
        try:
            # Another process may have finished the index before the lock was ours.
            self._early = bool(missing_from(self.path))
            if not (overwrite or self._early):
                refuse_existing(self.path)
            self._over = map_over(cluster, self.work.folder)
        except BaseException:
            self.close()
            raise
        self._sizes: dict[str, int] = {}
        self._settings: dict[str, VocabularySettings] = {}
        self._vectors: VectorSettings | None = None

    def add_documents(self, documents: Iterable[Document], settings: Mapping[str, Any]) -> None:
        """Store the documents; unfinished work on the same documents and settings is resumed.
        Raises InputError for no documents, a duplicate id, or other unfinished work.

        Args:
            documents: read once, never held in memory together.
            settings: JSON values that later steps depend on.
        """
        self._index = self.work.staged()
        self._generation = self._index / generation_name(1)
        self._generation.mkdir()
        if not write_documents(self._generation, documents):
            raise InputError("the corpus has no documents")
        files = sorted(file for file in self._generation.rglob("*") if file.is_file())
        checksums = (sha256(file) for file in files)
        self.work.check({"documents": fingerprint(checksums), **settings})
        self.contents = Contents(self._generation)

    def add_files(self, files: Mapping[str, str]) -> None:
        """Store the checksums of the files that the documents were read from."""
        write_files(self._generation, files)

    def add_vocabulary(
        self,
        vectorizer: DocumentEncoder,
        settings: VocabularySettings,
        progress: Progress = silent,
        *,
        vector_size: int = 0,
        fitted: bool = False,
    ) -> sp.csr_array:
        """Count or encode all documents; return their tf, memory-mapped [N, size]. The vectorizer
        is saved. Raises InputError for unfinished work on another model of this vocabulary.

        Args:
            vector_size: components of the documents' vectors, which follow the tf; 0 for none.
            fitted: fit the similarity by vectors to these documents; see ``VectorSettings``.
        """
        folder = self.folder(vectorizer.name)
        folder.mkdir()
        units = None
        if not vectorizer.grows:
            vectorizer.save(folder)
            files = describe_files(folder, folder).items()
            self.work.check(
                {f"model of {vectorizer.name}": {name: file["sha256"] for name, file in files}}
            )
            units = self.work.units(f"{vectorizer.name}-tf")
        encode = encode_on(self._cluster, vectorizer, folder)
        prefix = frequencies(self._generation / PARTS / part_name(1), vectorizer.name)
        tf = write_tf(prefix, vectorizer, self.contents, units, progress, encode, vector_size)
        if vectorizer.grows:
            vectorizer.save(folder)
        self._sizes[vectorizer.name] = tf.shape[1]
        self._settings[vectorizer.name] = settings
        if vector_size:
            self._vectors = VectorSettings(vector_size)
            if fitted:
                stored = TextVectors(Parts.open(self._generation), self._vectors)
                self._vectors = self._vectors.fitted(stored)
        return tf

    def folder(self, vocabulary: str) -> Path:
        """Return the folder of the saved vectorizer of a vocabulary."""
        return self._generation / vocabulary

    def add_atlas(self, findings: Findings) -> None:
        """Store the findings about the concepts, a vocabulary that was added before."""
        ids = Parts.open(self._generation).texts("ids")
        findings.save(self._generation / "concepts", ids, self.contents)

    def publish_early(self, missing: Sequence[str], weight_bits: int = 32) -> bool:
        """Publish the documents and the vocabularies so far, unless a complete index is to be
        replaced, or an earlier run has published the same; return False in the first case.

        ``commit`` makes the complete index the next generation. Until then the index can be
        searched, but not changed.

        Args:
            missing: the vocabularies that follow.
        """
        if self.path.exists() and not self._early:
            return False
        if self._early and self._is_published():
            return True
        folder = self._index / "early"
        generation = folder / self._generation.name
        for file in self._generation.rglob("*"):
            if file.is_file():
                link(file, generation / file.relative_to(self._generation))
        layout = IndexLayout(self._sizes, self._settings, None, weight_bits)
        commit_generation(folder, generation, layout, self._over, missing=missing)
        if self._early:
            replace_generation(self.path, generation)
        else:
            refuse_existing(self.path)
            move(folder, self.path)
        self._early = True
        return True

    def _is_published(self) -> bool:
        """Return True if the unfinished index at the path has all files written so far."""
        manifest = read_manifest(self.path)
        return all(
            manifest["files"].get(f"{manifest['generation']}/{name}") == entry
            for name, entry in describe_files(self._generation, self._generation).items()
        )

    def commit(self, rra: RRASettings | None = None, weight_bits: int = 32) -> IndexReader:
        """Weight, invert and publish the index, and remove the unfinished work. Raises InputError
        for no vocabulary, other ``weight_bits`` than ``ExactEngine.build`` takes, or weights that
        are not finite, or if another process is writing to the index to replace."""
        if not self._sizes:
            raise InputError("an index needs at least one vocabulary")
        layout = IndexLayout(self._sizes, self._settings, rra, weight_bits, self._vectors)
        commit_generation(self._index, self._generation, layout, self._over)
        if (self._overwrite or self._early) and self.path.exists():
            replace_generation(self.path, self._generation)
            self.work.discard()
        else:
            self.work.publish(self._index)
        return IndexReader.open(self.path)

    def documents(self) -> Iterator[Document]:
        """Yield the added documents, and passages as documents, in random order."""
        stored = StoredDocuments(self._generation)
        return map(stored.document, np.random.default_rng(0).permutation(len(stored.ids)).tolist())

    def close(self) -> None:
        """Let other processes build here; a build without finished units leaves nothing behind."""
        self.work.close()

    def __enter__(self) -> Self:
        self.work.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.work.__exit__(*error)
        if isinstance(error[1], KeyboardInterrupt) and self._early:
            note = f"{self.path} can be searched, without what is missing"
            error[1].__notes__ = [f"{note}; {'; '.join(error[1].__notes__)}"]


def map_over(cluster: Cluster | None, folder: Path) -> Over | None:
    """Return the function that maps over shards on a cluster whose nodes see the folder, if any."""
    if cluster is None:
        return None
    cluster.check(folder)
    return cluster.over


class Contents(LazySequence[str]):
    """Titles and texts of stored documents, as vectorizers read them."""

    def __init__(self, folder: Path) -> None:
        parts = Parts.open(folder)
        self.titles, self._texts = parts.texts("titles"), parts.texts("texts")

    def __len__(self) -> int:
        return len(self._texts)

    def _read(self, number: int) -> str:
        return Document("", self._texts[number], self.titles[number]).content


def write_documents(
    folder: Path, documents: Iterable[Document], types: Mapping[str, FieldType] = NOTHING
) -> int:
    """Store documents one by one, or their passages; return how many were stored. Raises InputError
    for a bad document, an id twice, or more documents than an index holds; errors name the file, or
    the document's number from 1.

    Args:
        types: the types of the fields of the index that gets the documents.
    """
    if not isinstance(documents, DocumentStream):  # which checks its own
        records = (
            (Location("the documents", number, "document"), partial(Document._make, document))
            for number, document in enumerate(documents, 1)
        )
        documents = DocumentStream(records, Skipped("the documents"), strict=True)
    count, part = 0, folder / PARTS / part_name(1)
    part.mkdir(parents=True)
    with (
        TextWriter(part / "ids") as ids,
        TextWriter(part / "titles") as titles,
        TextWriter(part / "texts") as texts,
        FieldWriter(folder / "fields", types) as fields,
        PassageWriter(folder) as passages,
    ):
        for document in documents.with_types(types):
            if document.passages:
                passages.append(document, count)
            for entry in rows(document):
                count += 1
                check_number(count)
                ids.append(entry.id)
                titles.append(entry.title)
                texts.append(entry.text)
                fields.append(document.id, entry.fields)
    return count
