"""Check of explanations: ``python -m benchmarks.explanations INDEX DATA``.

DATA is a BEIR folder, whose test queries are paired with random documents of the index.
"""

from __future__ import annotations

import argparse

import numpy as np

from lexicept.corpora import read_queries
from lexicept.index.reader import IndexReader


def largest_difference(
    index: IndexReader, queries: list[str], pairs: int, seed: int
) -> tuple[float, int]:
    """Return the largest relative difference of a score and the sum of its parts, and most parts.

    Documents that a query does not find must have an explanation that is empty.
    """
    random = np.random.default_rng(seed)
    query_indices = random.integers(len(queries), size=pairs)
    documents = random.integers(len(index), size=pairs)
    largest, most = 0.0, 0
    for i in np.unique(query_indices):
        (hits,) = index.search([queries[i]], len(index))
        scores = {hit.id: hit.score for hit in hits}
        for document in documents[query_indices == i]:
            name = index.ids[int(document)]
            explanation = index.explain(queries[i], name, spans=False)
            if name in scores:
                difference = abs(explanation.score - scores[name]) / scores[name]
                largest = max(largest, difference)
            else:
                assert explanation.score == 0, (queries[i], name)
            most = max(most, len(explanation.contributions))
    return largest, most


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("index")
    parser.add_argument("data")
    parser.add_argument("--pairs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    index = IndexReader.open(options.index)
    queries = [query.text for query in read_queries(options.data)]
    largest, most = largest_difference(index, queries, options.pairs, options.seed)
    print(
        f"{options.pairs} pairs of a query and a document, with up to {most} contributions: "
        f"largest relative difference {largest:.1e}"
    )


if __name__ == "__main__":
    main()
