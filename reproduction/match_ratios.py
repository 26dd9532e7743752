"""Queries of every lexical difficulty, and documents that only look relevant (ESPLADE, 4.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from lexicept.progress import Progress, silent
from lexicept.vectorizers.words import WordVectorizer
from lexicept.vectors import Integers

QUERIES = 32
"""Queries compared with all documents at once."""

CLASSES = ("low", "middle", "high")
"""Thirds of the queries by the share of their terms that a relevant document has."""


class Matched(NamedTuple):
    """A query of the set, and its documents."""

    query: int
    """Row of the query."""
    ratio: float
    """The largest share of its terms that a relevant document has."""
    difficulty: str
    """One of ``CLASSES``."""
    positives: list[int]
    """Rows of relevant documents."""
    negatives: list[int]
    """Rows of documents of other clusters with most of the query's terms, most first."""


class Terms:
    """Terms of queries and documents: stems of words, without stop words; each counts once.

    Args:
        queries, documents: texts.
        language: of the stemmer.
    """

    def __init__(
        self, queries: Sequence[str], documents: Sequence[str], language: str = "en"
    ) -> None:
        vectorizer = WordVectorizer(language)
        first = vectorizer.documents(queries)  # as documents, so that every term has a dimension
        second = vectorizer.documents(documents)
        size = len(vectorizer.terms)
        self.queries, self.documents = (_binary(one, size) for one in (first, second))
        self._inverted = sp.csc_array(self.documents.T)
        self.lengths = np.diff(self.queries.indptr)

    def ratios(self, query: int, documents: Sequence[int]) -> np.ndarray:
        """Return the share of a query's terms that each document has; NaN without terms."""
        shared = self.documents[list(documents)] @ self.queries[[query]].T
        with np.errstate(invalid="ignore"):
            return np.asarray(shared.toarray().ravel() / self.lengths[query], np.float64)

    def matches(self, queries: Sequence[int]) -> sp.csr_array:
        """Return the number of terms that each query shares with each document, CSR."""
        return sp.csr_array(self.queries[list(queries)] @ self._inverted)


def matched_queries(
    terms: Terms,
    relevant: Mapping[int, Sequence[int]],
    clusters: Integers,
    candidates: Sequence[int],
    count: int,
    *,
    positives: int = 3,
    negatives: int = 10,
    least_ratio: float = 0.5,
    seed: int = 0,
    progress: Progress = silent,
) -> list[Matched]:
    """Choose queries equally from three classes of matched-term ratio, with their negatives.

    A query's ratio is the largest share of its terms that a relevant document has. The candidates
    are split by it into three classes of equal size, and as many are drawn from each. Negatives are
    the relevant documents of other clusters' queries that have most of the query's terms. Queries
    without positives or negatives are left out.

    Args:
        terms: of all queries and documents.
        relevant: rows of relevant documents, the most relevant first, by query row.
        clusters: of each query [n].
        candidates: rows of the queries to choose from.
        count: queries to draw, before those without negatives are left out.
        positives, negatives: documents of a query, at most.
        least_ratio: share of the query's terms that a negative has at least.
    """
    best = {}
    for query in candidates:
        if relevant.get(query) and terms.lengths[query]:
            best[query] = float(terms.ratios(query, relevant[query]).max())
    order = sorted(best, key=lambda query: (best[query], query))
    random = np.random.default_rng(seed)
    chosen: list[tuple[int, str]] = []
    for name, third in zip(CLASSES, np.array_split(np.array(order, np.int64), 3), strict=True):
        drawn = np.sort(random.permutation(third)[: count // 3])
        chosen += [(int(query), name) for query in drawn]
    owners = _owners(relevant, clusters)
    found = []
    for start in range(0, len(chosen), QUERIES):
        block = chosen[start : start + QUERIES]
        shared = terms.matches([query for query, _ in block])
        for row, (query, name) in enumerate(block):
            span = slice(shared.indptr[row], shared.indptr[row + 1])
            others = _negatives(
                shared.indices[span],
                shared.data[span] / terms.lengths[query],
                owners.get(int(clusters[query]), np.empty(0, np.int64)),
                relevant[query],
                least_ratio,
            )
            if others.size:
                kept = list(relevant[query])[:positives]
                listed = [int(document) for document in others[:negatives]]
                found.append(Matched(query, best[query], name, kept, listed))
        progress("matching", start + len(block), len(chosen))
    return found


def _binary(counts: sp.csr_array, size: int) -> sp.csr_array:
    data = np.ones(len(counts.data), np.float32)
    return sp.csr_array((data, counts.indices, counts.indptr), shape=(counts.shape[0], size))


def _owners(relevant: Mapping[int, Sequence[int]], clusters: Integers) -> dict[int, Integers]:
    """Return the documents that are relevant to a query of each cluster."""
    documents: dict[int, set[int]] = {}
    for query, rows in relevant.items():
        documents.setdefault(int(clusters[query]), set()).update(rows)
    return {cluster: np.array(sorted(rows)) for cluster, rows in documents.items()}


def _negatives(
    documents: Integers,
    ratios: np.ndarray,
    own_cluster: Integers,
    relevant: Sequence[int],
    least_ratio: float,
) -> Integers:
    """Return other clusters' documents of at least this ratio, the largest ratio first."""
    kept = (ratios >= least_ratio - 1e-6) & ~np.isin(documents, own_cluster)
    kept &= ~np.isin(documents, list(relevant))
    documents, ratios = documents[kept], ratios[kept]
    order = np.lexsort((documents, -ratios))
    return np.asarray(documents[order])
