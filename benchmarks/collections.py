"""Synthetic sparse collections."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy.sparse as sp

from lexicept.parallel.shards import over

CHUNK_CELLS = 2**22
"""Number of draws in a block: 32 MB."""


def zipf_collection(
    num_documents: int, num_dimensions: int, nonzeros: int, seed: int
) -> sp.csr_array:
    """Draw documents over dimensions whose df follow Zipf's law: CSR f32 [N, V].

    Every document has ``nonzeros`` distinct dimensions, drawn one after another with probability
    ∝ 1 / (dimension + 1), and weights that are log(1 + x) of exponential x, like SPLADE's.
    """
    blocks = zipf_blocks(num_documents, num_dimensions, nonzeros, seed)
    return sp.csr_array(sp.vstack(list(blocks), format="csr"))


def zipf_blocks(
    num_documents: int, num_dimensions: int, nonzeros: int, seed: int
) -> Iterator[sp.csr_array]:
    """Yield ``zipf_collection`` in blocks of a few thousand documents."""
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


def _first_occurrences(records: np.ndarray) -> np.ndarray:
    """Return where a number appears in its row for the first time."""
    order = np.argsort(records, axis=1, kind="stable")
    ordered = np.take_along_axis(records, order, axis=1)
    new = np.ones(records.shape, bool)
    new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    first = np.empty_like(new)
    np.put_along_axis(first, order, new, axis=1)
    return first
