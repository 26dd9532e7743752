"""Seismic (pyseismic-lsr), an approximate engine.

Bruch et al. 2024, "Efficient Inverted Indexes for Approximate Retrieval over Learned Sparse
Representations".
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
import seismic

from lexicept.engines.interface import single_precision
from lexicept.vectors import Vector, power_of_two

LARGE = 2**16
"""Number of dimensions from which Seismic's classes for large vocabularies are needed."""

LARGEST = 2.0**15
"""Largest weight: Seismic keeps weights in half precision (at most 65,504)."""

Hits = tuple[list[int], list[float]]
"""Document numbers and scores of a query, in any order."""


def build_index(documents: Any, n_postings: int) -> Any:
    """Build a Seismic index of documents [N, V], identified by their numbers.

    Weights are scaled by a power of two, so that none exceeds ``LARGEST``: rankings stay the same.
    """
    matrix = single_precision(documents)
    scale = min(1.0, power_of_two(LARGEST / max(float(matrix.data.max(initial=0)), 1.0)))
    large = matrix.shape[1] >= LARGE
    dataset_class = seismic.SeismicDatasetLV if large else seismic.SeismicDataset
    index_class = seismic.SeismicIndexLV if large else seismic.SeismicIndex
    dataset = dataset_class(dim=matrix.shape[1])
    dataset.add_documents_by_id(
        [str(number) for number in range(matrix.shape[0])],
        matrix.indices.astype(np.int64),
        matrix.data * np.float32(scale),
        matrix.indptr.astype(np.int64),
    )
    with _quiet():
        return index_class.build_from_dataset(dataset, n_postings=n_postings)


def matching_queries(queries: sp.csr_array, documents: sp.csr_array) -> list[Vector | None]:
    """Return queries [n, V] as vectors; None for queries that match no document, which Seismic does
    not take."""
    used = np.zeros(documents.shape[1], bool)
    used[documents.indices] = True
    vectors = [
        Vector(queries.indices[start:end], queries.data[start:end])
        for start, end in pairwise(queries.indptr)
    ]
    return [vector if used[vector.dimensions].any() else None for vector in vectors]


def batch_arguments(queries: Sequence[Vector]) -> dict[str, Any]:
    """Return queries as Seismic takes them."""
    dtype = seismic.get_seismic_string()
    return {
        "queries_ids": np.arange(len(queries)).astype(str).astype(dtype),
        "query_components": [query.dimensions.astype(str).astype(dtype) for query in queries],
        "query_values": [query.weights for query in queries],
    }


def hits_of(rankings: Sequence[Any], count: int) -> list[Hits]:
    """Return Seismic's results of ``count`` queries, in their order."""
    ordered: list[Hits] = [([], [])] * count
    for hits in rankings:  # in any order of the queries
        if hits:
            ordered[int(hits[0][0])] = [int(hit[2]) for hit in hits], [hit[1] for hit in hits]
    return ordered


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence standard output: Seismic reports progress there."""
    standard_output, nothing = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nothing, 1)
        yield
    finally:
        os.dup2(standard_output, 1)
        os.close(standard_output)
        os.close(nothing)
