"""Building an index, step by step; an interrupted build can be resumed."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import scipy.sparse as sp

from lexicept.corpora import Document
from lexicept.corpora.records import Place, checked
from lexicept.errors import InputError
from lexicept.index.atlas import Findings
from lexicept.index.generations import commit_generation
from lexicept.index.impacts import RRASettings, VocabularySettings
from lexicept.index.reader import IndexReader
from lexicept.index.term_frequencies import write_frequencies
from lexicept.parallel.ray import Cluster
from lexicept.parallel.shards import Over, over
from lexicept.progress import Progress, silent
from lexicept.storage.files import move, read_json, sha256, write_json
from lexicept.storage.manifest import describe_files
from lexicept.storage.texts import TextStore, TextWriter
from lexicept.storage.workspace import claim, refuse_existing
from lexicept.vectorizers.interface import Vectorizer


class IndexBuilder:
    """Builds one index, step by step: documents, then each vocabulary, then ``commit``.

    Args:
        path: where the index will be. Until ``commit`` renames it, everything is in
            ``<path>.partial``.
        cluster: where documents are encoded and postings derived; on this machine by default. Its
            nodes must see the folder. A vocabulary that grows is found on this machine.

    Raises:
        InputError: something is at ``path`` already, or another process is building there, or a
            node does not see the folder.
    """

    def __init__(self, path: str | os.PathLike[str], cluster: Cluster | None = None) -> None:
        self.path = Path(path)
        self.work, descriptor = claim(self.path)
        self._unlock = weakref.finalize(self, os.close, descriptor)
        self._cluster = cluster
        self._over = map_over(cluster, self.work)
        self._generation = self.work / "index" / "000001"
        self._sizes: dict[str, int] = {}
        self._settings: dict[str, VocabularySettings] = {}

    def add_documents(self, documents: Iterable[Document], settings: Mapping[str, Any]) -> None:
        """Store the documents, and forget unfinished work on other documents or settings.

        Args:
            documents: read once, never held in memory together.
            settings: JSON values; what later steps depend on.

        Raises:
            InputError: no documents, or a duplicate id.
        """
        shutil.rmtree(self.work / "index", ignore_errors=True)
        self._generation.mkdir(parents=True)
        count = write_documents(self._generation, documents)
        if not count:
            raise InputError("the corpus has no documents")
        digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
        for name in ("ids.bin", "ids.offsets.npy", "texts.bin", "titles.bin", "texts.offsets.npy"):
            digest.update(sha256(self._generation / name).encode())
        state = {"fingerprint": digest.hexdigest(), "lexicept": version("lexicept")}
        state_file = self.work / "state.json"
        if not state_file.exists() or read_json(state_file) != state:
            for entry in self.work.iterdir():
                if entry.is_dir() and entry.name != "index":
                    shutil.rmtree(entry)
            write_json(state_file, state)
        self.contents = Contents(self._generation)

    def add_vocabulary(
        self, vectorizer: Vectorizer, settings: VocabularySettings, progress: Progress = silent
    ) -> sp.csr_array:
        """Find the vocabulary's frequencies in all documents, memory-mapped [N, size]."""
        folder = self._generation / vectorizer.name
        folder.mkdir()
        prefix = folder / "frequencies"
        encode = shards = None
        if not vectorizer.grows:
            vectorizer.save(folder)
            shards = self._shards(vectorizer.name, folder)
            if self._cluster is not None:
                encode = partial(self._cluster.encode, partial(type(vectorizer).load, folder))
        matrix = write_frequencies(prefix, vectorizer, self.contents, shards, progress, encode)
        if vectorizer.grows:
            vectorizer.save(folder)
        self._sizes[vectorizer.name] = vectorizer.size
        self._settings[vectorizer.name] = settings
        return matrix

    def _shards(self, name: str, model: Path) -> Path:
        """Where the finished shards of this very model are; another one's are forgotten, whatever
        its name and folder."""
        shards = self.work / f"{name}-frequencies"
        files, known = describe_files(model, model), shards / "model.json"
        if known.exists() and read_json(known) != files:
            shutil.rmtree(shards)
        shards.mkdir(exist_ok=True)
        write_json(known, files)
        return shards

    def add_atlas(self, findings: Findings) -> None:
        """Store what was found out about the concepts, once they are added."""
        ids = TextStore(self._generation / "ids")
        findings.save(self._generation / "concepts", ids, self.contents)

    def commit(self, rra: RRASettings | None = None, weight_bits: int = 32) -> IndexReader:
        """Weigh, invert and publish. Afterwards the unfinished work is gone.

        Args:
            weight_bits: of the postings, see ``ExactEngine.build``.
        """
        if not self._sizes:
            raise InputError("an index needs at least one vocabulary")
        staged = self.work / "index"
        commit_generation(
            staged, self._generation, self._sizes, self._settings, rra, weight_bits, self._over
        )
        refuse_existing(self.path)
        move(staged, self.path)
        shutil.rmtree(self.work)
        self.close()  # before this nobody else may build here
        return IndexReader.open(self.path)

    def close(self) -> None:
        """Let others build here. Called by ``commit``; may be called again."""
        self._unlock()


def map_over(cluster: Cluster | None, folder: Path) -> Over:
    """What maps over shards that are in this folder."""
    if cluster is None:
        return over
    cluster.check(folder)
    return cluster.over


class Contents(Sequence[str]):
    """What vectorizers see of stored documents: title and text."""

    def __init__(self, folder: Path) -> None:
        self._ids = TextStore(folder / "ids")
        self._titles = TextStore(folder / "titles")
        self._texts = TextStore(folder / "texts")

    def __len__(self) -> int:
        return len(self._texts)

    def __getitem__(self, position: Any) -> Any:
        if isinstance(position, slice):
            return [self[i] for i in range(*position.indices(len(self)))]
        return Document("", self._texts[position], self._titles[position]).content


def write_documents(folder: Path, documents: Iterable[Document]) -> int:
    """Store ids, titles and texts as they come; return their number."""
    count = 0
    with (
        TextWriter(folder / "ids") as ids,
        TextWriter(folder / "titles") as titles,
        TextWriter(folder / "texts") as texts,
    ):
        for document in well_formed(documents):
            count += 1
            ids.append(document.id)
            titles.append(document.title)
            texts.append(document.text)
    return count


def well_formed(documents: Iterable[Document]) -> Iterator[Document]:
    """Documents as a program hands them over, checked as those of a file are.

    Raises:
        InputError: naming the document by its number, from 1.
    """

    def placed() -> Iterator[tuple[Place, Document]]:
        for number, document in enumerate(documents, 1):
            place = Place("the documents", number, "document")
            for name, value in zip(Document._fields, document, strict=True):
                if not isinstance(value, str):
                    raise place.error(f"its {name} must be a text, not {value!r:.80}")
            yield place, document

    return checked(placed())
