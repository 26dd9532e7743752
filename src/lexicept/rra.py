"""Rational Retrieval Acts: pragmatic re-weighting of a sparse collection, in closed form.

A literal listener reads each dimension as a distribution over documents, a speaker picks the
dimensions that tell its document from the others, and a pragmatic listener reads those choices
(Satouf et al. 2025, equations 1 to 10). Every one of these N×V matrices is a value on the
collection's non-zeros and a rank-one background ``l_t · c_d`` everywhere else, so that time is
O(non-zeros + N + V). A listener only needs sums over documents, one per dimension: a pass over the
collection is a map over shards of its rows (``hear``) and a sum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from lexicept.checks import Count, Positive, check
from lexicept.errors import InputError
from lexicept.kernels.rra_listener import Listeners, listener_reads, listener_sums
from lexicept.vectors import Floats, canonical_csr, check_dimensions, stack_columns

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
    """A collection re-weighted by the pragmatic listener.

    The ranking of equation 10 is an ordinary product with one number per document and one per
    query added as a last dimension: ``queries(Q) @ documents.T``. Weights are × N and the
    documents' numbers are shifted to a minimum of 0: neither changes a ranking, and both keep the
    values in the range that single and half precision engines resolve.
    """

    weights: sp.csr_array
    """Document weights above the background [N, V], non-negative."""
    offsets: Floats
    """Number of each document [N], at least 0."""
    background: Floats
    """Contribution of a query's weight on each dimension to its factor on the offsets [V]."""

    @property
    def documents(self) -> sp.csr_array:
        """Return CSR [N, V + 1]: the weights, and the offset as last column."""
        return stack_columns([self.weights, sp.csr_array(self.offsets[:, None])])

    def queries(self, queries: Any) -> sp.csr_array:
        """Return CSR [n, V + 1] from CSR [n, V] of query weights. Raises InputError for another V,
        or weights that are NaN, infinite or negative."""
        matrix = canonical_csr(queries)
        if matrix.shape[1] != self.background.size:
            raise InputError(
                f"queries of {matrix.shape[1]} dimensions for documents of {self.background.size}"
            )
        # The factor of each query on the documents' offsets.
        factors = np.asarray(matrix @ self.background)
        return stack_columns([matrix, sp.csr_array(factors[:, None])])


@dataclass(frozen=True)
class Sums:
    """Sums over documents that the next listener needs; sums of disjoint shards add up."""

    above: Floats
    """Σ_d P(d) (S(t,d) − l_t s_d) over the documents with each dimension [V]."""
    said: float
    """Σ_d P(d) s_d."""

    def __add__(self, other: Sums) -> Sums:
        return Sums(self.above + other.above, self.said + other.said)


@dataclass(frozen=True)
class Dialogue:
    """Listeners and speakers so far: numbers per dimension, from which every document can be
    replayed alone.

    All rounds are computed alike: the literal listener hears f(w), whose background is l_t = f(0)
    and s_d = 1, as a pragmatic one hears a speaker.
    """

    num_documents: int
    alpha: float
    transform: str
    listeners: Listeners

    @classmethod
    def begin(
        cls, num_documents: int, num_dimensions: int, alpha: float, transform: str
    ) -> Dialogue:
        """Return the state before the literal listener. Raises InputError for bad arguments."""
        check("alpha", alpha, Positive)
        if transform not in TRANSFORMS:
            raise InputError(f"no transform {transform!r}, only: {', '.join(TRANSFORMS)}")
        f_0 = float(TRANSFORMS[transform](np.zeros(1))[0])
        heard, backgrounds = np.empty((0, num_dimensions)), np.full((1, num_dimensions), f_0)
        listeners = Listeners(heard, backgrounds, np.empty(0), np.empty(0))
        return cls(num_documents, alpha, transform, listeners)

    def go_on(self, sums: Sums) -> Dialogue:
        """Return the state after the next listener, given these sums over all documents. Raises
        InputError if alpha is too large for the numbers to stay finite."""
        earlier = self.listeners
        # Z_t: the background of all documents, and what the non-zeros have above the background.
        heard = np.vstack([earlier.heard, earlier.backgrounds[-1] * sums.said + sums.above])
        with np.errstate(over="ignore"):
            background = _ratio(earlier.backgrounds[-1], heard[-1])
        check_finite(self.alpha, background)
        top = background.max(initial=0.0)
        spoken = (background / (top or 1.0)) ** self.alpha
        backgrounds = np.vstack([earlier.backgrounds, spoken])
        tops, totals = np.append(earlier.tops, top), np.append(earlier.totals, spoken.sum())
        return replace(self, listeners=Listeners(heard, backgrounds, tops, totals))

    @property
    def background(self) -> Floats:
        """Return l_t of the last listener [V], added to a query's factor on offsets per weight."""
        return _ratio(self.listeners.backgrounds[-2], self.listeners.heard[-1])


def hear(weights: sp.csr_array, prior: Floats, dialogue: Dialogue) -> Sums:
    """Return the next listener's sums over some documents: canonical weights [n, V] and P(d) [n],
    which adds up to 1 over all documents. Raises InputError for a weight too large for the
    transform."""
    return Sums(*listener_sums(*_kernel_arguments(weights, prior, dialogue)))


def read(weights: sp.csr_array, prior: Floats, dialogue: Dialogue) -> tuple[sp.csr_array, Floats]:
    """Return the last listener's reading of some documents: weights above the background and their
    c_d [n], both × N. Raises InputError for a weight too large for the transform, or alpha."""
    above, scales = listener_reads(*_kernel_arguments(weights, prior, dialogue))
    check_finite(dialogue.alpha, above, scales)
    N = dialogue.num_documents
    above *= N
    reread = sp.csr_array((above, weights.indices, weights.indptr), shape=weights.shape)
    return reread, scales * N


def _kernel_arguments(weights: sp.csr_array, prior: Floats, dialogue: Dialogue) -> tuple[Any, ...]:
    with np.errstate(over="ignore"):
        spoken = TRANSFORMS[dialogue.transform](weights.data.astype(np.float64))
    if not np.isfinite(spoken).all():
        largest, name = weights.data.max(), dialogue.transform
        raise InputError(f"weight {largest} is too large for the transform {name!r}")
    csr = (weights.indptr, weights.indices, spoken, prior)
    return (*csr, dialogue.listeners, float(dialogue.alpha))


def check_finite(alpha: float, *values: Floats) -> None:
    """Raise InputError, which names alpha, unless all numbers are finite."""
    if not all(np.isfinite(each).all() for each in values):
        raise InputError(
            f"alpha {alpha:g} is too large for this collection: weights overflow; choose a smaller "
            "one, such as 1"
        )


def converse(hear_all: Callable[[Dialogue], Sums], dialogue: Dialogue, iterations: int) -> Dialogue:
    """Run the literal listener, then ``iterations`` pairs of a speaker and a pragmatic listener,
    from the state of ``Dialogue.begin``; ``hear_all`` is ``hear`` for all documents. Raises
    InputError for ``iterations`` below 1, or alpha too large for the numbers to stay finite."""
    check("iterations", iterations, Count)
    for _ in range(iterations + 1):
        dialogue = dialogue.go_on(hear_all(dialogue))
    return dialogue


def reweight(
    documents: Any, alpha: float = 1.0, iterations: int = 1, transform: str = "1+x"
) -> Reweighted:
    """Re-weight a collection by pragmatic reasoning over all its documents.

    Args:
        documents: SciPy sparse matrix [N, V] of non-negative weights. Empty columns count too:
            the speaker could have chosen them.
        alpha: rationality of the speaker, above 0. Large ones, and many iterations, make weights
            so small that they become 0.
        iterations: speaker and listener pairs, at least 1.
        transform: one of ``TRANSFORMS``. Unlike the rest, ``1+x``, ``log(1+x)``, ``exp(x)`` and
            ``tanh(x)`` depend on the scale of the weights.

    Raises:
        InputError: a weight that is negative, NaN, infinite or too large for the transform, other
            arguments out of range, or an alpha for which numbers overflow.
    """
    matrix = canonical_csr(documents)
    check_dimensions(matrix)
    num_documents, num_dimensions = matrix.shape
    P = np.full(num_documents, 1 / max(num_documents, 1))
    dialogue = Dialogue.begin(num_documents, num_dimensions, alpha, transform)
    dialogue = converse(lambda so_far: hear(matrix, P, so_far), dialogue, iterations)
    weights, scales = read(matrix, P, dialogue)
    return Reweighted(weights, scales - scales.min(initial=np.inf), dialogue.background)


def _ratio(numerator: Floats, denominator: Floats) -> Floats:
    """Divide, with 0/0 = 0: an empty column or row where f(0) = 0."""
    return np.divide(numerator, denominator, out=np.zeros_like(denominator), where=denominator != 0)
