"""The measures of an evaluation: effectiveness by ir_measures, cost of a sparse index, and E².

``COSTS`` is the registry of lexicept's measures: tables and files read names, titles,
formats and explanations there. A new measure is one ``CostMeasure`` in ``COSTS``. Costs are counted
from the vectors: the dimensions that queries and documents share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from lexicept.errors import InputError
from lexicept.vectors import Integers, canonical_csr, check_dimensions

E2_MU1, E2_MU2, E2_TAU, E2_BETA = 0.01, 0.09, 5.0, 2.0
"""Constants of E² (SAE-SPLADE, section on the efficiency-effectiveness metric)."""


def qd_flops(queries: Any, documents: Any) -> float:
    """Return QD-FLOPs: the mean number of dimensions that a query and a document share,
    ``Σ_t P_q(t) P_d(t)`` (SAE-SPLADE); 0 without queries or documents.

    ESPLADE's posting-list FLOPS, which sums posting lengths over the dimensions of queries, is the
    same number.

    Args:
        queries: SciPy sparse matrix [n, V].
        documents: SciPy sparse matrix [N, V].

    Raises:
        InputError: vectors of different vocabularies.
    """
    D = canonical_csr(documents)
    return posting_list_flops(queries, document_frequency(D), D.shape[0])


def posting_list_flops(queries: Any, posting_lengths: Any, num_documents: int) -> float:
    """Return ``Σ_q Σ_{t∈q} |P_t| / (|Q| |D|)`` (ESPLADE): QD-FLOPs from posting lengths [V]. Raises
    InputError for queries of another vocabulary."""
    Q = canonical_csr(queries)
    if not Q.shape[0] or not num_documents:
        return 0.0
    if Q.shape[1] != len(posting_lengths):
        raise InputError(f"queries have {Q.shape[1]} dimensions, documents {len(posting_lengths)}")
    check_dimensions(Q)
    return float(np.asarray(posting_lengths)[Q.indices].sum() / (Q.shape[0] * num_documents))


def document_frequency(documents: sp.csr_array) -> Integers:
    """Return the number of documents with each dimension [V]."""
    return np.bincount(documents.indices, minlength=documents.shape[1])


def mean_length(vectors: Any) -> float:
    """Return the mean number of non-zero dimensions of a text (L0); 0 for an empty collection."""
    matrix = canonical_csr(vectors)
    return float(matrix.nnz / matrix.shape[0]) if matrix.shape[0] else 0.0


def e2(mrr: float, flops: float, tau: float = E2_TAU) -> float:
    """Return E² = ``MRR@10 − μ1 F − μ2 softplus_β(F − τ)`` with F = QD-FLOPs (SAE-SPLADE).

    ``softplus_β(x) = log(1 + exp(βx)) / β``. ΔE² is a difference of two E² on the same collection,
    usually against BM25; papers print 100 × E².

    Args:
        tau: the QD-FLOPs from which cost is penalised steeply; 5 is meant for MS MARCO.
    """
    penalty = np.logaddexp(0, E2_BETA * (flops - tau)) / E2_BETA
    return float(mrr - E2_MU1 * flops - E2_MU2 * penalty)


@dataclass(frozen=True)
class Measure:
    """A measure of effectiveness, in ir_measures' notation."""

    name: str
    """The key in results and files."""
    title: str = ""
    """The name in tables; ``name`` by default."""
    decimals: int = 4
    explanation: str = ""
    """A line below a table; empty for a well-known measure."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", self.title or self.name)

    def format(self, value: float) -> str:
        return f"{value:.{self.decimals}f}"


class SearchCosts(NamedTuple):
    """Counts of a search of n queries among N documents."""

    queries: sp.csr_array
    """Query weights in the searched vocabularies [n, V]."""
    posting_lengths: Integers
    """Number of documents with each dimension [V]."""
    num_documents: int
    mrr: float
    """RR@10 of the queries."""
    offset_share: float | None = None
    """Share of the queries that add RRA's offsets to scores; None for an index without offsets."""
    bm25_e2: float | None = None
    """E² of BM25 over the same texts; None if there is nothing to compare with."""

    @property
    def qd_flops(self) -> float:
        return posting_list_flops(self.queries, self.posting_lengths, self.num_documents)

    @property
    def e2(self) -> float:
        return e2(self.mrr, self.qd_flops)


@dataclass(frozen=True)
class CostMeasure(Measure):
    """A measure that depends on the vectors of queries and documents."""

    compute: Callable[[SearchCosts], float | None] = lambda _: None
    """Returns None where the measure does not apply."""


NDCG = Measure(
    "nDCG@10", explanation="±: 95 % confidence interval of the mean over the queries (Student's t)"
)
RR, RECALL, SUCCESS = Measure("RR@10"), Measure("R@100"), Measure("Success@5")

EFFECTIVENESS = (NDCG, RR, RECALL, SUCCESS)
"""Measures of every evaluation."""

QD_FLOPS = CostMeasure(
    "qd_flops",
    "QD-FLOPs",
    explanation="qd_flops: dimensions that a query and a document share, the mean over all pairs",
    compute=lambda costs: costs.qd_flops,
)
QD_FLOPS_WITH_OFFSET = CostMeasure(
    "qd_flops_with_offset",
    "QD-FLOPs with offset",
    explanation="qd_flops_with_offset: with RRA's number per document as one more",
    compute=lambda costs: (
        None if costs.offset_share is None else costs.qd_flops + costs.offset_share
    ),
)
QUERY_LENGTH = CostMeasure(
    "query_length",
    "Query length",
    explanation="query_length, document_length: mean dimensions of a query and of a document",
    compute=lambda costs: mean_length(costs.queries),
)
DOCUMENT_LENGTH = CostMeasure(
    "document_length",
    "Document length",
    compute=lambda costs: float(costs.posting_lengths.sum() / max(costs.num_documents, 1)),
)
E2 = CostMeasure(
    "e2",
    "E²",
    explanation=f"e2: RR@10 minus a penalty for cost: E² = RR@10 − {E2_MU1:g} F − {E2_MU2:g} "
    f"log(1 + exp({E2_BETA:g} (F − {E2_TAU:g}))) / {E2_BETA:g}, F = qd_flops (SAE-SPLADE)",
    compute=lambda costs: costs.e2,
)
DELTA_E2 = CostMeasure(
    "delta_e2",
    "ΔE²",
    explanation="delta_e2: e2 minus that of BM25 (k1 1.5, b 0.75) over the same texts; papers "
    "print 100 times both",
    compute=lambda costs: None if costs.bm25_e2 is None else costs.e2 - costs.bm25_e2,
)

COSTS = (QD_FLOPS, QD_FLOPS_WITH_OFFSET, QUERY_LENGTH, DOCUMENT_LENGTH, E2, DELTA_E2)
"""lexicept's own measures, in the order of tables."""


def measure_named(name: str) -> Measure:
    """Return the measure of a name in results; an unregistered name is one of ir_measures."""
    return next((m for m in (*EFFECTIVENESS, *COSTS) if m.name == name), Measure(name))


def search_costs(costs: SearchCosts) -> dict[str, float]:
    """Return the value of each cost measure that applies, by name."""
    values = {measure.name: measure.compute(costs) for measure in COSTS}
    return {name: value for name, value in values.items() if value is not None}


def explanations(names: Iterable[str]) -> list[str]:
    """Return the explanations of the named measures, in lines."""
    lines = [measure_named(name).explanation for name in names]
    return [line for line in lines if line]
