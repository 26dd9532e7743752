"""Sparse collections: synthetic ones, and SPLADE vectors from files."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from lexicept.shards import over

CHUNK_CELLS = 2**22
"""Draws of a block: 32 MB."""


def zipf_collection(
    num_documents: int, num_dimensions: int, nonzeros: int, seed: int
) -> sp.csr_array:
    """Documents over dimensions whose frequencies follow Zipf's law: CSR f32 [N, V].

    Every document has ``nonzeros`` distinct dimensions, drawn one after another with probability
    ∝ 1 / (dimension + 1), and weights that are log(1 + x) of exponential x, like SPLADE's.
    """
    blocks = zipf_blocks(num_documents, num_dimensions, nonzeros, seed)
    return sp.csr_array(sp.vstack(list(blocks), format="csr"))


def zipf_blocks(
    num_documents: int, num_dimensions: int, nonzeros: int, seed: int
) -> Iterator[sp.csr_array]:
    """``zipf_collection``, a few thousand documents after the other."""
    cumulative = np.cumsum(1 / np.arange(1, num_dimensions + 1))
    cumulative /= cumulative[-1]
    step = max(1, CHUNK_CELLS // (2 * nonzeros))
    blocks = [(n, min(step, num_documents - n)) for n in range(0, num_documents, step)]
    return over(_zipf_block, blocks, cumulative, nonzeros, seed)


def _zipf_block(
    block: tuple[int, int], cumulative: np.ndarray, nonzeros: int, seed: int
) -> sp.csr_array:
    """Documents from a number on, so many."""
    start, count = block
    random = np.random.default_rng((seed, start))
    columns = np.empty((count, nonzeros), np.int32)
    todo, draws = np.arange(count), 2 * nonzeros
    while todo.size:
        drawn = np.searchsorted(cumulative, random.random((todo.size, draws)), side="right")
        first = _first_occurrences(drawn.astype(np.int32))
        first &= np.cumsum(first, axis=1) <= nonzeros
        full = first.sum(axis=1) == nonzeros
        columns[todo[full]] = drawn[full][first[full]].reshape(-1, nonzeros)
        # Too many repetitions: these are drawn again, from more.
        todo, draws = todo[~full], 2 * draws
    columns.sort(axis=1)
    weights = np.log1p(random.exponential(2.0, columns.size)).astype(np.float32)
    indptr = np.arange(0, columns.size + 1, nonzeros)
    return sp.csr_array((weights, columns.ravel(), indptr), shape=(count, cumulative.size))


def _first_occurrences(rows: np.ndarray) -> np.ndarray:
    """Where a number appears in its row for the first time."""
    order = np.argsort(rows, axis=1, kind="stable")
    ordered = np.take_along_axis(rows, order, axis=1)
    new = np.ones(rows.shape, bool)
    new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    first = np.empty_like(new)
    np.put_along_axis(first, order, new, axis=1)
    return first


def splade_vectors(
    folder: Path, vocabulary: Path
) -> tuple[list[str], sp.csr_array, list[str], sp.csr_array]:
    """Ids and vectors of documents and of queries, from ``documents.jsonl.gz`` (hundredths of
    weights) and ``queries.tsv.gz`` (a word piece comes as often as its weight says)."""
    pieces = vocabulary.read_text(encoding="utf-8").split("\n")
    dimension = {piece: number for number, piece in enumerate(pieces) if piece}
    with gzip.open(folder / "documents.jsonl.gz", "rt", encoding="utf-8") as file:
        documents = [json.loads(line) for line in file]
    with gzip.open(folder / "queries.tsv.gz", "rt", encoding="utf-8") as file:
        queries = [line.rstrip("\n").split("\t") for line in file]
    X = _matrix([document["vector"] for document in documents], dimension) / np.float32(100)
    Q = _matrix([Counter(text.split()) for _, text in queries], dimension)
    return [document["id"] for document in documents], X, [name for name, _ in queries], Q


def _matrix(vectors: Sequence[Mapping[str, float]], dimension: Mapping[str, int]) -> sp.csr_array:
    indptr = np.cumsum([0, *map(len, vectors)])
    columns = np.array([dimension[piece] for vector in vectors for piece in vector])
    weights = np.array([w for vector in vectors for w in vector.values()], np.float32)
    matrix = sp.csr_array((weights, columns, indptr), shape=(len(vectors), len(dimension)))
    matrix.sort_indices()
    return matrix
