"""The characters of queries and documents that fire dimensions."""

from __future__ import annotations

from collections.abc import Sequence

from lexicept.explanation.contributions import Sources
from lexicept.index.loaded import LoadedVectorizers
from lexicept.index.queries import Term, WeightedQuery, dimensions_in

WHOLE = {"texts"}
"""Vocabularies whose dimensions come from a text as a whole."""


def query_sources(
    vectorizers: LoadedVectorizers,
    query_encoder: str,
    query: WeightedQuery,
    terms: Sequence[Term],
) -> list[Sources]:
    """Return the characters of a query that activate each of these dimensions.

    Added dimensions have none.
    """
    own = [term for term in terms if (term.vocabulary, term.dimension) in query.fired]
    found = {}
    for name in {term.vocabulary for term in own} - WHOLE:
        with vectorizers.encoding(name, query_encoder):
            found[name] = query.sources[name](dimensions_in(own, name))
    known = [term for term in own if term.vocabulary in found]
    return [
        found[term.vocabulary][term.dimension] if term in known else Sources() for term in terms
    ]


def document_sources(
    vectorizers: LoadedVectorizers,
    query_encoder: str,
    contents: Sequence[str],
    terms: Sequence[Sequence[Term]],
) -> list[list[Sources]]:
    """Return the characters of each document that activate each of its dimensions."""
    found = {}
    for name in {term.vocabulary for of_one in terms for term in of_one} - WHOLE:
        wanted = [dimensions_in(of_one, name) for of_one in terms]
        with vectorizers.encoding(name, query_encoder) as encoder:
            found[name] = encoder.document_sources(contents, wanted)
    return [
        [
            found[term.vocabulary][place][term.dimension] if term.vocabulary in found else Sources()
            for term in of_one
        ]
        for place, of_one in enumerate(terms)
    ]
