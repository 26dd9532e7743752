"""Cost measures of a sparse index, and E², effectiveness weighed against cost.

Costs are counted from the vectors: the dimensions that queries and documents share.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lexicept.errors import InputError
from lexicept.vectors import canonical_csr

E2_MU1, E2_MU2, E2_TAU, E2_BETA = 0.01, 0.09, 5.0, 2.0
"""Constants of E² (SAE-SPLADE, section on the efficiency-effectiveness metric)."""


def qd_flops(queries: Any, documents: Any) -> float:
    """Return QD-FLOPs: the mean number of dimensions that a query and a document share,
    ``Σ_t P_q(t) P_d(t)``.

    Args:
        queries: SciPy sparse matrix [n, V].
        documents: SciPy sparse matrix [N, V].

    Returns:
        QD-FLOPs (SAE-SPLADE); 0 where either side is empty. The same number as ESPLADE's
        posting-list FLOPS, which sums posting lengths over the queries' dimensions.

    Raises:
        InputError: vectors of different vocabularies.
    """
    Q, D = canonical_csr(queries), canonical_csr(documents)
    if not Q.shape[0] or not D.shape[0]:
        return 0.0
    _check_dimensions(Q.shape[1], D.shape[1])
    document_frequency = np.bincount(D.indices, minlength=D.shape[1])
    return float(document_frequency[Q.indices].sum() / (Q.shape[0] * D.shape[0]))


def posting_list_flops(queries: Any, posting_lengths: Any, num_documents: int) -> float:
    """Return ``Σ_q Σ_{t∈q} |P_t| / (|Q| |D|)`` (ESPLADE): QD-FLOPs from posting lengths [V].

    Raises:
        InputError: queries of another vocabulary.
    """
    Q = canonical_csr(queries)
    if not Q.shape[0] or not num_documents:
        return 0.0
    _check_dimensions(Q.shape[1], len(posting_lengths))
    return float(np.asarray(posting_lengths)[Q.indices].sum() / (Q.shape[0] * num_documents))


def _check_dimensions(queries: int, documents: int) -> None:
    if queries != documents:
        raise InputError(f"queries have {queries} dimensions, documents {documents}")


def mean_length(vectors: Any) -> float:
    """Return the mean number of non-zero dimensions of a text (L0); 0 for an empty collection."""
    matrix = canonical_csr(vectors)
    return float(matrix.nnz / matrix.shape[0]) if matrix.shape[0] else 0.0


def e2(mrr: float, flops: float, tau: float = E2_TAU) -> float:
    """Return E² = ``MRR@10 − μ1 F − μ2 softplus_β(F − τ)`` with F = QD-FLOPs (SAE-SPLADE).

    ``softplus_β(x) = log(1 + exp(βx)) / β``. ΔE² is a difference of two of these on the same
    collection, usually against BM25; papers print 100 × it.

    Args:
        tau: the QD-FLOPs from which cost is penalised steeply; 5 is meant for MS MARCO.
    """
    penalty = np.logaddexp(0, E2_BETA * (flops - tau)) / E2_BETA
    return float(mrr - E2_MU1 * flops - E2_MU2 * penalty)
