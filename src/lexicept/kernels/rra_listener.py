"""The listeners and speakers of Rational Retrieval Acts (RRA), one document at a time.

Numbers per dimension replay every document from its weights: documents can be read in any grouping,
and no state of a document is stored.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lexicept.kernels.compiled import compiled
from lexicept.vectors import Floats


class Listeners(NamedTuple):
    """The k listeners and speakers so far."""

    heard: Floats
    """Sums Z_t of the listeners [k, V] (equations 2, 4, 5, 8 and 9)."""
    backgrounds: Floats
    """l_t of the speakers [k + 1, V]; the first says f(0)."""
    tops: Floats
    """The largest l_t of each listener [k], a scale that its speaker ignores."""
    totals: Floats
    """Σ_t l_t of the speakers after the first [k]."""


@compiled()
def listener_sums(indptr, columns, spoken, prior, listeners, alpha):
    """Compute the sums over some documents that the next listener needs.

    Args:
        indptr, columns, spoken: CSR rows of what the first speaker says, f(w) [n, V].
        prior: P(d) [n].
        listeners: the listeners and speakers so far.
        alpha: rationality of the speakers after the first.

    Returns:
        Σ_d P(d) (S(t,d) − l_t s_d) over the documents with t [V], and Σ_d P(d) s_d.
    """
    above = np.zeros(listeners.backgrounds.shape[1])
    said = 0.0
    rounds = listeners.heard.shape[0]
    background = listeners.backgrounds[rounds]
    values = np.empty(_longest(indptr))
    for document in range(indptr.size - 1):
        start, end, P = indptr[document], indptr[document + 1], prior[document]
        values[: end - start] = spoken[start:end]
        s = _replay(columns[start:end], values, P, rounds, listeners, alpha)
        said += P * s
        for j in range(end - start):
            t = columns[start + j]
            above[t] += P * (values[j] - background[t] * s)
    return above, said


@compiled()
def listener_reads(indptr, columns, spoken, prior, listeners, alpha):
    """Compute the last listener's reading of some documents, whose sums end ``heard`` [k + 1, V].

    Returns:
        A(t,d) − l_t c_d on the non-zeros, at least 0, and c_d [n].
    """
    above = np.empty(columns.size)
    scales = np.empty(indptr.size - 1)
    rounds = listeners.heard.shape[0] - 1
    background, Z = listeners.backgrounds[rounds], listeners.heard[rounds]
    values = np.empty(_longest(indptr))
    for document in range(indptr.size - 1):
        start, end, P = indptr[document], indptr[document + 1], prior[document]
        values[: end - start] = spoken[start:end]
        s = _replay(columns[start:end], values, P, rounds, listeners, alpha)
        scales[document] = P * s
        for j in range(end - start):
            t = columns[start + j]
            difference = _ratio(P * values[j], Z[t]) - _ratio(background[t], Z[t]) * P * s
            above[start + j] = max(difference, 0.0)
    return above, scales


@compiled()
def _replay(columns, values, P, rounds, listeners, alpha):
    """Let the listeners and speakers so far read one document, in place; return its s_d.

    A speaker ignores a document's scale: with 1 as every document's largest value, no power
    overflows and none makes a whole document vanish.
    """
    s = 1.0
    for i in range(rounds):
        Z, background = listeners.heard[i], listeners.backgrounds[i + 1]
        c = P * s * listeners.tops[i]
        largest = c
        # The listener: the document's share of each dimension, among all documents.
        for j in range(columns.size):
            values[j] = _ratio(P * values[j], Z[columns[j]])
            largest = max(largest, values[j])
        # The speaker: shares to the power of alpha, normalised over all dimensions. What the
        # document has not is the background times one share.
        share = _power(_ratio(c, largest), alpha)
        total = share * listeners.totals[i]
        for j in range(columns.size):
            values[j] = _power(_ratio(values[j], largest), alpha)
            total += values[j] - background[columns[j]] * share
        s = _ratio(share, total)
        for j in range(columns.size):
            values[j] = _ratio(values[j], total)
    return s


@compiled(inline="always")
def _ratio(numerator, denominator):
    """Divide, with 0/0 = 0: an empty column or row if f(0) = 0."""
    return numerator / denominator if denominator != 0 else 0.0


@compiled(inline="always")
def _power(base, exponent):
    return base if exponent == 1 else base**exponent


@compiled(inline="always")
def _longest(indptr):
    longest = 0
    for document in range(indptr.size - 1):
        longest = max(longest, indptr[document + 1] - indptr[document])
    return longest
