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
"""Thirds of the queries by matched-term ratio."""


class Matched(NamedTuple):
    """A query of the evaluation set, and its documents, by number."""

    query: int
    ratio: float
    """The largest share of the query's terms that a relevant document has."""
    difficulty: str
    """One of ``CLASSES``."""
    positives: list[int]
    negatives: list[int]
    """Documents of other clusters with most of the query's terms, most first."""


class Sizes(NamedTuple):
    """Sizes of the evaluation set."""

    queries: int
    """Queries to draw, before queries without negatives are left out."""
    positives: int = 3
    """Most relevant documents of a query."""
    negatives: int = 10
    """Most negatives of a query."""
    least_ratio: float = 0.5
    """Least share of the query's terms in a negative."""


class Terms:
    """Stems of queries and documents, without stop words; each stem counts once."""

    def __init__(
        self, queries: Sequence[str], documents: Sequence[str], language: str = "en"
    ) -> None:
        vectorizer = WordVectorizer(language)
        # Queries are read as documents, so that every term has a dimension.
        counts = [vectorizer.documents(texts) for texts in (queries, documents)]
        self.queries, self.documents = (
            sp.csr_array(
                (np.ones(each.nnz, np.float32), each.indices, each.indptr),
                shape=(each.shape[0], len(vectorizer.terms)),
            )
            for each in counts
        )
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
    sizes: Sizes,
    seed: int = 0,
    progress: Progress = silent,
) -> list[Matched]:
    """Draw queries equally from three classes of matched-term ratio, with their negatives.

    Negatives are the relevant documents of other clusters' queries that have most of a query's
    terms. Queries without positives or negatives are left out.

    Args:
        relevant: relevant documents by query, the most relevant first.
        clusters: of each query [n].
        candidates: the queries to draw from.
    """
    ratios = {
        query: float(terms.ratios(query, relevant[query]).max())
        for query in candidates
        if relevant.get(query) and terms.lengths[query]
    }
    order = sorted(ratios, key=lambda query: (ratios[query], query))
    random = np.random.default_rng(seed)
    drawn: list[tuple[int, str]] = []
    for name, third in zip(CLASSES, np.array_split(np.array(order, np.int64), 3), strict=True):
        numbers = np.sort(random.permutation(third)[: sizes.queries // 3])
        drawn += [(int(query), name) for query in numbers]
    cluster_documents: dict[int, set[int]] = {}
    for query, documents in relevant.items():
        cluster_documents.setdefault(int(clusters[query]), set()).update(documents)
    matched = []
    for start in range(0, len(drawn), QUERIES):
        block = drawn[start : start + QUERIES]
        shared = terms.matches([query for query, _ in block])
        for place, (query, name) in enumerate(block):
            span = slice(shared.indptr[place], shared.indptr[place + 1])
            numbers, shares = shared.indices[span], shared.data[span] / terms.lengths[query]
            excluded = cluster_documents.get(int(clusters[query]), set()) | set(relevant[query])
            eligible = (shares >= sizes.least_ratio - 1e-6) & ~np.isin(numbers, list(excluded))
            numbers, shares = numbers[eligible], shares[eligible]
            negatives = numbers[np.lexsort((numbers, -shares))][: sizes.negatives].tolist()
            if negatives:
                positives = list(relevant[query])[: sizes.positives]
                matched.append(Matched(query, ratios[query], name, positives, negatives))
        progress("matching", start + len(block), len(drawn))
    return matched
