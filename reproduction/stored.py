"""Datasets and vectors on disk, written block by block: never in memory as a whole, however many
millions of passages there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from lexicept.corpora import read_documents
from lexicept.corpora.json_lines import read_objects
from lexicept.corpora.lines import read_lines
from lexicept.encoding.words import WordVectorizer
from lexicept.errors import InputError
from lexicept.index.builder import Contents, write_documents
from lexicept.index.term_frequencies import write_tf
from lexicept.progress import Progress, silent
from lexicept.storage.arrays import CSRWriter, StoredRows, load_csr, save_csr
from lexicept.storage.cached import cached
from lexicept.storage.files import fingerprint
from lexicept.storage.texts import TextStore
from lexicept.storage.workspace import Workspace, new_folder
from lexicept.training.ranking.collection import Corpus, open_corpus

BLOCK = 4096
"""Documents encoded or read together: an interrupted encoding resumes after the last block."""


class Words(NamedTuple):
    """Documents, and the frequency of each word in each document."""

    corpus: Corpus
    tf: StoredRows
    vectorizer: WordVectorizer


class Vectors(NamedTuple):
    """Published sparse vectors."""

    document_ids: Sequence[str]
    documents: StoredRows
    """Document weights, CSR f32 [N, V]."""
    query_ids: list[str]
    queries: sp.csr_array
    """Query weights, CSR f32 [n, V]."""
    terms: list[str]
    """Terms of the dimensions [V]."""


def documents_of(source: str, work: Path) -> Corpus:
    """Return a dataset's documents, stored if absent."""
    prefix = f"{fingerprint([source])[:16]}."
    return open_corpus(source, work, silent, words=False, prefix=prefix)


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
        return Words(Corpus(folder), _opened(folder / "frequencies", vectorizer.size), vectorizer)

    return cached(path, count, read)


def encoded_vectors(
    path: Path, texts: Any, size: int, encode: Callable[[Any], sp.csr_array], progress: Progress
) -> StoredRows:
    """Return the vectors of texts [n, size], encoded block by block if absent; a repeated call
    resumes an interrupted one.

    Args:
        path: the folder of the vectors.
        texts: a sequence of texts, or an array [n, d] of dense vectors.
        encode: a slice of ``texts`` → vectors [n, size].
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
            with CSRWriter(staged / "rows") as writer:
                for start in starts:
                    writer.append(load_csr(blocks.folder / f"{start:012d}", size))
            work.publish(staged)

    return cached(path, make, lambda folder: _opened(folder / "rows", size))


def published_vectors(folder: Path, vocabulary: Path | None, weight: float, work: Path) -> Vectors:
    """Read vectors from ``documents.jsonl.gz`` and ``queries.tsv.gz``; those of documents are
    written to disk if absent.

    A document is ``{"id", "vector": {term: weight}}``; a query is the id, a tab and terms, whose
    weights are counts. SPLADE, SPARTA, uniCOIL and DeepImpact are distributed in this form for
    Anserini.

    Args:
        vocabulary: a term a line, in the order of dimensions; None takes the terms of the vectors.
            RRA depends on V, as a speaker may choose a term that no document has.
        weight: the weight that a stored document weight of 1 becomes.
        work: the folder of all work, for the documents' vectors.

    Raises:
        InputError: no such files, or a term that is not in the vocabulary.
    """
    lines = [line.split("\t") for _, line in read_lines(str(folder / "queries.tsv.gz"))]
    queries = [Counter(text.split()) for _, text in lines]
    identity = fingerprint([str(folder), str(vocabulary), str(weight)])[:16]
    path = work / "published" / identity

    def matrix_of(vectors: Sequence[Mapping[str, float]], terms: Sequence[str]) -> sp.csr_array:
        dimensions = {term: number for number, term in enumerate(terms)}
        try:
            return _matrix(vectors, dimensions)
        except KeyError as error:
            term = error.args[0]
            raise InputError(f"{folder}: {term!r} is no term of {vocabulary}") from None

    def documents() -> Iterator[dict[str, Any]]:
        return (fields for _, fields in read_objects(str(folder / "documents.jsonl.gz")))

    def write() -> None:
        if vocabulary is None:
            used = {term for query in queries for term in query}
            for document in documents():
                used.update(document["vector"])
            terms = sorted(used)
        else:
            terms = [t for t in vocabulary.read_text(encoding="utf-8").split("\n") if t]
        with new_folder(path, "vectors") as staged, CSRWriter(staged / "rows") as writer:
            TextStore.write(staged / "terms", terms)

            def ids() -> Iterator[str]:
                stream = documents()
                while block := list(islice(stream, BLOCK)):
                    vectors = [document["vector"] for document in block]
                    writer.append(matrix_of(vectors, terms) * np.float32(weight))
                    yield from (document["id"] for document in block)

            TextStore.write(staged / "ids", ids())

    def read(made: Path) -> Vectors:
        terms = list(TextStore(made / "terms"))
        weights = _opened(made / "rows", len(terms))
        names = [name for name, _ in lines]
        return Vectors(TextStore(made / "ids"), weights, names, matrix_of(queries, terms), terms)

    return cached(path, write, read)


def _opened(path: Path, size: int) -> StoredRows:
    """Open vectors on disk. Raises IndexFormatError for damaged files."""
    vectors = StoredRows(path, size)
    vectors.load()
    return vectors


def _matrix(vectors: Sequence[Mapping[str, float]], dimensions: Mapping[str, int]) -> sp.csr_array:
    """Return vectors as CSR f32 [n, V]. Raises KeyError for a term without dimension."""
    indptr = np.cumsum([0, *map(len, vectors)])
    columns = np.array([dimensions[term] for vector in vectors for term in vector], np.int32)
    weights = np.array([w for vector in vectors for w in vector.values()], np.float32)
    matrix = sp.csr_array((weights, columns, indptr), shape=(len(vectors), len(dimensions)))
    matrix.sort_indices()
    return matrix
