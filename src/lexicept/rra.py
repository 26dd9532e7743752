"""Rational Retrieval Acts: pragmatic re-weighting of a sparse collection, in closed form.

A literal listener reads each dimension as a distribution over documents, a speaker picks the
dimensions that tell its document from the others, and a pragmatic listener reads those choices
(Satouf et al. 2025, equations 1 to 10). Every one of these N×V matrices is a value on the
collection's non-zeros and a rank-one background ``l_t · c_d`` everywhere else, so that time and
memory are O(non-zeros + N + V).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from lexicept.errors import InputError
from lexicept.vectors import Floats, canonical_csr, row_numbers, stack_columns

LAMBDA = 2.0
"""λ of the transform ``lambda*x``. The literal listener divides it out again."""

TRANSFORMS: dict[str, Callable[[Floats], Floats]] = {
    "1+x": lambda x: 1 + x,
    "x": lambda x: x,
    "lambda*x": lambda x: LAMBDA * x,
    "log(1+x)": np.log1p,
    "exp(x)": np.exp,
    "tanh(x)": np.tanh,
}
"""The paper's transforms f of a weight (equation 1, section 3.1); ``1+x`` was its best."""


@dataclass(frozen=True)
class Reweighted:
    """A collection as the pragmatic listener reads it.

    The ranking of equation 10 is an ordinary product with one number per document and one per
    query added as a last dimension: ``queries(Q) @ documents.T``. Weights are × N and the
    documents' numbers are shifted to a minimum of 0: neither changes a ranking, and both keep the
    values in the range that single and half precision engines resolve.
    """

    weights: sp.csr_array
    """Document weights above the background [N, V], non-negative."""
    offsets: Floats
    """One number per document [N], at least 0."""
    background: Floats
    """What a query's weight on each dimension adds to its factor on the offsets [V]."""

    @property
    def documents(self) -> sp.csr_array:
        """CSR [N, V + 1]: the weights, and the offset as last column."""
        return stack_columns([self.weights, sp.csr_array(self.offsets[:, None])])

    def query_offsets(self, queries: sp.csr_array) -> Floats:
        """The factor of each query on the documents' offsets [n]."""
        return np.asarray(queries @ self.background)

    def queries(self, queries: Any) -> sp.csr_array:
        """CSR [n, V + 1] from CSR [n, V] of query weights."""
        matrix = canonical_csr(queries)
        if matrix.shape[1] != self.background.size:
            raise InputError(
                f"queries of {matrix.shape[1]} dimensions for documents of {self.background.size}"
            )
        return stack_columns([matrix, sp.csr_array(self.query_offsets(matrix)[:, None])])


def reweight(
    documents: Any,
    alpha: float = 1.0,
    iterations: int = 1,
    prior: npt.ArrayLike | None = None,
    transform: str = "1+x",
) -> Reweighted:
    """Re-weight a collection by pragmatic reasoning over all its documents.

    Args:
        documents: SciPy sparse matrix [N, V] of non-negative weights. Empty columns count too:
            the speaker could have chosen them.
        alpha: rationality of the speaker, above 0.
        iterations: speaker and listener pairs, at least 1.
        prior: a positive number per document [N], normalised here; uniform by default.
        transform: one of ``TRANSFORMS``. Unlike the rest, ``1+x``, ``log(1+x)``, ``exp(x)`` and
            ``tanh(x)`` depend on the scale of the weights.

    Raises:
        InputError: a weight that is negative, NaN, infinite or too large for the transform; a
            prior of the wrong length or with a number that is not positive; other arguments out
            of range.
    """
    matrix = canonical_csr(documents)
    if not (np.isfinite(alpha) and alpha > 0):
        raise InputError(f"alpha must be a finite number above 0, not {alpha}")
    if iterations < 1:
        raise InputError(f"iterations must be at least 1, not {iterations}")
    if transform not in TRANSFORMS:
        raise InputError(f"no transform {transform!r}, only: {', '.join(TRANSFORMS)}")
    num_documents, num_dimensions = matrix.shape
    if not num_documents:
        return Reweighted(matrix, np.zeros(0), np.zeros(num_dimensions))
    P = _normalised_prior(prior, num_documents)
    rows, columns = row_numbers(matrix), matrix.indices
    P_rows = P[rows]

    # Literal listener (equations 2 and 5): A on the non-zeros, l_t · c_d elsewhere.
    f = TRANSFORMS[transform]
    with np.errstate(over="ignore"):
        f_w, f_0 = f(matrix.data.astype(np.float64)), float(f(np.zeros(1))[0])
    if not np.isfinite(f_w).all():
        raise InputError(f"weight {matrix.data.max()} is too large for the transform {transform!r}")
    Z_t = f_0 + np.bincount(columns, P_rows * (f_w - f_0), minlength=num_dimensions)
    A = P_rows * f_w / Z_t[columns]
    l, c = _ratio(np.full(num_dimensions, f_0), Z_t), P  # noqa: E741

    for _ in range(iterations):
        # Speaker (equations 3, 6 and 7). It ignores a document's scale: with 1 as every document's
        # largest value, no power overflows and none makes a whole document vanish.
        top = l.max(initial=0.0)
        l, c = l / (top or 1.0), c * top  # noqa: E741
        largest = c.copy()
        np.maximum.at(largest, rows, A)
        A, l, c = _ratio(A, largest[rows]) ** alpha, l**alpha, _ratio(c, largest) ** alpha  # noqa: E741
        l_columns = l[columns]
        Z_d = c * l.sum() + np.bincount(rows, A - l_columns * c[rows], minlength=num_documents)
        s = _ratio(c, Z_d)
        S = _ratio(A, Z_d[rows])
        # Pragmatic listener (equations 4, 8 and 9).
        above = P_rows * (S - l_columns * s[rows])
        Z_t = l * (P @ s) + np.bincount(columns, above, minlength=num_dimensions)
        A = _ratio(P_rows * S, Z_t[columns])
        l, c = _ratio(l, Z_t), P * s  # noqa: E741

    above = np.maximum(A - l[columns] * c[rows], 0) * num_documents
    weights = sp.csr_array((above, columns, matrix.indptr), shape=matrix.shape)
    return Reweighted(weights, (c - c.min()) * num_documents, l)


def _ratio(numerator: Floats, denominator: Floats) -> Floats:
    """Division with 0/0 = 0: an empty column or row where f(0) = 0."""
    return np.divide(numerator, denominator, out=np.zeros_like(denominator), where=denominator != 0)


def _normalised_prior(prior: npt.ArrayLike | None, num_documents: int) -> Floats:
    if prior is None:
        return np.full(num_documents, 1 / num_documents)
    P = np.asarray(prior, dtype=np.float64)
    if P.shape != (num_documents,):
        raise InputError(f"a prior of shape {P.shape} for {num_documents} documents")
    if not (np.isfinite(P).all() and (P > 0).all()):
        raise InputError("the prior must be a finite number above 0 for every document")
    normalised: Floats = P / P.sum()
    return normalised
