"""Known-item queries: random sentences of random texts, or words of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lexicept.corpora.pseudo_queries import sentences_of
from lexicept.vectors import Integers


def from_texts(
    texts: Sequence[str], count: int = 500, seed: int = 0, share: float = 1.0
) -> tuple[Integers, list[str]]:
    """Take one random sentence each of up to ``count`` random documents with a sentence of 5 words
    or more, cut at 30, or a ``share`` of its words, at least 3, in their order. Return the index
    of each query's document, and the queries."""
    random = np.random.default_rng(seed)
    indices: list[int] = []
    queries: list[str] = []
    for document in random.permutation(len(texts)):
        if len(queries) == count:
            break
        if candidates := sentences_of(texts[int(document)]):
            words = candidates[random.integers(len(candidates))]
            if share < 1:
                positions = random.permutation(len(words))[: max(3, round(share * len(words)))]
                words = [words[position] for position in sorted(positions)]
            indices.append(int(document))
            queries.append(" ".join(words))
    return np.array(indices, dtype=np.int64), queries
