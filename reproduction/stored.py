"""Datasets on disk: their documents, and vectors that are made block by block. Neither is ever in
memory as a whole, however many millions of passages there are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import scipy.sparse as sp

from lexicept.corpora import read_documents
from lexicept.errors import InputError
from lexicept.index.builder import Contents, write_documents
from lexicept.index.term_frequencies import write_tf
from lexicept.progress import Progress
from lexicept.storage.arrays import CSRWriter, StoredRows, load_csr, save_csr
from lexicept.storage.cached import cached
from lexicept.storage.files import fingerprint
from lexicept.storage.workspace import Workspace, new_folder
from lexicept.training.collection import Corpus, stored_documents
from lexicept.vectorizers.words import WordVectorizer

BLOCK = 4096
"""Texts encoded together: an interrupted run resumes after the last such block."""


class Words(NamedTuple):
    """Documents, and how often each has each word."""

    corpus: Corpus
    tf: StoredRows
    vectorizer: WordVectorizer


def documents_of(source: str, work: Path) -> Corpus:
    """Return a dataset's documents, stored where they are absent."""
    return stored_documents(source, work / "documents" / fingerprint([source])[:16])


def words_of(source: str, language: str, work: Path, progress: Progress) -> Words:
    """Return a dataset's words, counted at the first call.

    Raises:
        InputError: no documents, or an unknown language.
    """
    path = work / "words" / fingerprint([source, language])[:16]

    def count() -> None:
        vectorizer = WordVectorizer(language)
        with new_folder(path, "words") as folder:
            if not write_documents(folder, read_documents(source)):
                raise InputError(f"{source}: no documents")
            write_tf(folder / "frequencies", vectorizer, Contents(folder), None, progress)
            vectorizer.save(folder)

    def read(folder: Path) -> Words:
        vectorizer = WordVectorizer.load(folder)
        rows = StoredRows(folder / "frequencies", vectorizer.size)
        rows.load()  # raises the error of damaged files
        return Words(Corpus(folder), rows, vectorizer)

    return cached(path, count, read)


def encoded_rows(
    path: Path,
    texts: Any,
    size: int,
    encode: Callable[[Any], sp.csr_array],
    progress: Progress,
) -> StoredRows:
    """Return the vectors of texts [n, size], encoded block by block where they are absent; an
    interrupted call is resumed by calling it again.

    Args:
        path: their folder, named after what they are vectors of.
        texts: a sequence of texts, or an array [n, d] of what stands for them.
        encode: a slice of them → vectors [n, size].
    """

    def make() -> None:
        with Workspace(path, "encode", {"vectors": path.name}) as work:
            blocks = work.units("blocks")
            starts = range(0, len(texts), BLOCK)
            for start in starts:
                name = f"{start:012d}"
                if blocks.facts(name) is None:
                    save_csr(blocks.folder / name, encode(texts[start : start + BLOCK]))
                    blocks.finish(name, sorted(blocks.folder.glob(f"{name}.*")))
                progress("encode", min(start + BLOCK, len(texts)), len(texts))
            staged = work.staged()
            with CSRWriter(staged / "rows") as written:
                for start in starts:
                    written.append(load_csr(blocks.folder / f"{start:012d}", size))
            work.publish(staged)

    def read(folder: Path) -> StoredRows:
        rows = StoredRows(folder / "rows", size)
        rows.load()
        return rows

    return cached(path, make, read)
