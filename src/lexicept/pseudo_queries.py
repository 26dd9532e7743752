"""Pseudo-queries: judged queries made from the documents themselves, to choose settings on."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from lexicept.vectors import Integers

_SENTENCE_END = re.compile(r"(?<=[.!?。！？])\s+|\n+")
_MIN_WORDS, _MAX_WORDS = 5, 30


def from_texts(texts: Sequence[str], count: int = 500, seed: int = 0) -> tuple[Integers, list[str]]:
    """One random sentence each of up to ``count`` random documents.

    Returns:
        The number of the document that each query comes from, and the queries. Documents without
        a sentence of 5 words or more are passed over; longer sentences are cut at 30 words.
    """
    random = np.random.default_rng(seed)
    sources: list[int] = []
    queries: list[str] = []
    for document in random.permutation(len(texts)):
        if len(queries) == count:
            break
        sentences = [s.split() for s in _SENTENCE_END.split(texts[int(document)])]
        candidates = [words for words in sentences if len(words) >= _MIN_WORDS]
        if candidates:
            words = candidates[random.integers(len(candidates))]
            sources.append(int(document))
            queries.append(" ".join(words[:_MAX_WORDS]))
    return np.array(sources, dtype=np.int64), queries


def from_vectors(
    documents: sp.csr_array, count: int = 500, num_dims: int = 8, seed: int = 0
) -> tuple[Integers, sp.csr_array]:
    """Queries of weight 1 on dimensions drawn from documents' strongest, where there is no text.

    Each takes ``num_dims`` at random out of its document's ``4 × num_dims`` largest weights.

    Returns:
        The number of the document that each query comes from, and the queries [n, V].
    """
    random = np.random.default_rng(seed)
    filled = np.flatnonzero(np.diff(documents.indptr))
    sources = random.permutation(filled)[:count]
    columns, indptr = [], [0]
    for document in sources:
        span = slice(documents.indptr[document], documents.indptr[document + 1])
        strongest = np.argsort(-documents.data[span], kind="stable")[: 4 * num_dims]
        chosen = random.permutation(strongest)[:num_dims]
        columns.append(np.sort(documents.indices[span][chosen]))
        indptr.append(indptr[-1] + chosen.size)
    flat = np.concatenate(columns) if columns else np.zeros(0, np.int32)
    shape = (sources.size, documents.shape[1])
    return sources, sp.csr_array((np.ones(flat.size, np.float32), flat, indptr), shape=shape)


def known_item_ndcg(found: Sequence[Integers], sources: Integers) -> float:
    """Mean nDCG@10 where each query has one relevant document: ``1 / log2(1 + rank)``."""
    gains = []
    for documents, source in zip(found, sources, strict=True):
        rank = np.flatnonzero(np.asarray(documents[:10]) == source)
        gains.append(1 / np.log2(2 + rank[0]) if rank.size else 0.0)
    return float(np.mean(gains)) if gains else 0.0
