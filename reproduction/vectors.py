"""Published sparse vectors, in the form of Anserini's collections of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import scipy.sparse as sp

from lexicept.corpora.json_lines import read_objects
from lexicept.corpora.lines import read_lines
from lexicept.errors import InputError
from lexicept.storage.arrays import CSRWriter, StoredRows
from lexicept.storage.cached import cached
from lexicept.storage.texts import TextStore
from lexicept.storage.workspace import new_folder

Rows = TypeVar("Rows", sp.csr_array, StoredRows)

BLOCK = 4096
"""Documents that are in memory as they were read, at once."""


class Vectors(NamedTuple, Generic[Rows]):
    """Published sparse vectors."""

    document_ids: Sequence[str]
    documents: Rows
    """Document weights, CSR f32 [N, V], in memory or on disk."""
    query_ids: list[str]
    queries: sp.csr_array
    """Query weights, CSR f32 [n, V]."""
    terms: list[str]
    """Terms of the dimensions [V]."""


def stored_vectors(
    folder: Path, vocabulary: Path | None, weight: float, path: Path
) -> Vectors[StoredRows]:
    """Read vectors from ``documents.jsonl.gz`` and ``queries.tsv.gz``; those of documents are
    written to disk, block by block, where they are absent.

    A document is ``{"id", "vector": {term: weight}}``; a query is its id, a tab and its terms,
    whose weights are their counts. SPLADE, SPARTA, uniCOIL and DeepImpact are distributed in this
    form for Anserini.

    Args:
        vocabulary: a term a line, in the order of dimensions; None takes the terms of the vectors.
            RRA depends on V, as a speaker may choose a term that no document has.
        weight: the weight that a stored document weight of 1 becomes.
        path: the folder of the documents' vectors, named after all of these.

    Raises:
        InputError: no such files, or a term that is not in the vocabulary.
    """
    lines = [line.split("\t") for _, line in read_lines(str(folder / "queries.tsv.gz"))]
    asked = [Counter(text.split()) for _, text in lines]

    def write() -> None:
        terms, dimension = _dimensions(folder, vocabulary, asked)
        with new_folder(path, "vectors") as staged:
            TextStore.write(staged / "terms", terms)
            with CSRWriter(staged / "rows") as rows:
                ids = _written(folder, vocabulary, dimension, np.float32(weight), rows)
                TextStore.write(staged / "ids", ids)

    def read(made: Path) -> Vectors[StoredRows]:
        terms = list(TextStore(made / "terms"))
        rows = StoredRows(made / "rows", len(terms))
        rows.load()  # raises the error of damaged files
        dimension = {term: number for number, term in enumerate(terms)}
        queries = _matrix(asked, dimension, folder, vocabulary)
        names = [name for name, _ in lines]
        return Vectors(TextStore(made / "ids"), rows, names, queries, terms)

    return cached(path, write, read)


def read_vectors(
    folder: Path, vocabulary: Path | None, weight: float = 1.0
) -> Vectors[sp.csr_array]:
    """Return published vectors in memory; see ``stored_vectors``."""
    with TemporaryDirectory() as place:
        found = stored_vectors(folder, vocabulary, weight, Path(place, "vectors"))
        rows = found.documents.load().copy()
        return Vectors(list(found.document_ids), rows, *found[2:])


def _dimensions(
    folder: Path, vocabulary: Path | None, asked: Sequence[Mapping[str, float]]
) -> tuple[list[str], dict[str, int]]:
    """Return the terms, and the dimension of each that has one."""
    if vocabulary is None:
        found = {term for vector in asked for term in vector}
        for document in _documents(folder):
            found.update(document["vector"])
        terms = sorted(found)
        return terms, {term: number for number, term in enumerate(terms)}
    terms = vocabulary.read_text(encoding="utf-8").split("\n")
    dimension = {term: number for number, term in enumerate(terms) if term}
    return terms[: len(dimension)], dimension


def _documents(folder: Path) -> Iterator[dict[str, Any]]:
    return (fields for _, fields in read_objects(str(folder / "documents.jsonl.gz")))


def _written(
    folder: Path,
    vocabulary: Path | None,
    dimension: Mapping[str, int],
    weight: np.float32,
    rows: CSRWriter,
) -> Iterator[str]:
    """Yield the documents' ids, and write their rows on the way."""
    documents = _documents(folder)
    while block := list(islice(documents, BLOCK)):
        vectors = [document["vector"] for document in block]
        rows.append(_matrix(vectors, dimension, folder, vocabulary) * weight)
        yield from (document["id"] for document in block)


def _matrix(
    vectors: Sequence[Mapping[str, float]],
    dimension: Mapping[str, int],
    folder: Path,
    vocabulary: Path | None,
) -> sp.csr_array:
    indptr = np.cumsum([0, *map(len, vectors)])
    try:
        columns = np.array([dimension[term] for vector in vectors for term in vector], np.int32)
    except KeyError as error:
        raise InputError(f"{folder}: {error.args[0]!r} is no term of {vocabulary}") from None
    weights = np.array([w for vector in vectors for w in vector.values()], np.float32)
    matrix = sp.csr_array((weights, columns, indptr), shape=(len(vectors), len(dimension)))
    matrix.sort_indices()
    return matrix
