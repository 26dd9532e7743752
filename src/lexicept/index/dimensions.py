"""Dimensions of an index: by name, and their strongest documents."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from lexicept.errors import InputError
from lexicept.explanation.contributions import name_of
from lexicept.fields.normal_forms import caseless
from lexicept.index.queries import MAX_FACTOR
from lexicept.index.reader import IndexReader


def dimension_of(reader: IndexReader, key: str) -> tuple[str, int]:
    """Return the vocabulary and number of ``word:TEXT``, ``concept:NUMBER`` or ``concept:NAME``.
    Raises InputError for a malformed key or an unknown dimension."""
    kind, colon, name = key.partition(":")
    vocabulary = f"{kind.strip().removesuffix('s')}s"
    if not colon or vocabulary not in ("words", "concepts"):
        raise InputError(f"{key!r:.80} is not word:TEXT or concept:NUMBER")
    span, name = reader.span(vocabulary), name.strip()
    if vocabulary != "words":
        if re.fullmatch(r"#?[0-9]{1,9}", name):
            number = int(name.removeprefix("#"))
        else:
            terms = reader.weigher.vocabulary("concepts").terms or ()
            names = {caseless(name_of(label, n)): n for n, label in enumerate(terms)}
            labels = names | {caseless(label): n for n, label in enumerate(terms)}
            number = labels.get(caseless(re.sub(r" \(\d+ concepts\)$", "", name)), -1)
        if not 0 <= number < span.stop - span.start:
            raise InputError(f"no concept {name!r:.80}: a list of concepts has its number")
        return vocabulary, number
    words = reader.word_vectorizer()
    assert words is not None
    dimensions = [dimension for dimension, _ in words.terms_in(name)]
    if len(dimensions) != 1:
        raise InputError(f"{key!r:.80} is not one word that is searched")
    if dimensions[0] is None:
        raise InputError(f"no document has the word {name!r:.80}")
    return vocabulary, dimensions[0]


def numbers_by_dimension(
    reader: IndexReader, argument: str, numbers: Mapping[str, float]
) -> dict[tuple[str, int], float]:
    """Return the numbers of an argument by vocabulary and dimension; see ``dimension_of``. Raises
    InputError for a key that is no dimension, two keys of one, and a number that is not from 0 to
    ``MAX_FACTOR``."""
    by_dimension: dict[tuple[str, int], float] = {}
    for key, factor in numbers.items():
        dimension = dimension_of(reader, key)
        if dimension in by_dimension:
            raise InputError(f"{argument}: {key!r:.80} is there twice")
        if not 0 <= factor <= MAX_FACTOR:
            limits = f"must be from 0 to {MAX_FACTOR:,.0f}, not {factor}"
            raise InputError(f"{argument}: the number of {key!r:.80} {limits}")
        by_dimension[dimension] = factor
    return by_dimension


def strongest(
    reader: IndexReader, vocabulary: str, dimension: int, top_k: int
) -> list[tuple[int, float]]:
    """Return the entries with the largest weights of a dimension, ties in document order."""
    global_dimension = reader.span(vocabulary).start + dimension
    documents, weights, _ = reader.engine.posting_lists(np.array([global_dimension]))
    if top_k < weights.size:  # sorting long lists whole would hold up everyone
        candidates = np.flatnonzero(weights >= np.partition(weights, -top_k)[-top_k])
        documents, weights = documents[candidates], weights[candidates]
    best = np.argsort(-weights, kind="stable")[:top_k]
    return list(zip(documents[best].tolist(), weights[best].tolist(), strict=True))
