"""The parameters of requests."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Query
from pydantic import BaseModel, Field, StringConstraints

MAX_QUERY = 4_000
"""Most characters of a query."""

MAX_TOP_K = 1_000

MAX_STEERED = 100
"""Most dimensions that one request steers."""

MAX_ADDED = 100
"""Most dimensions that one request adds."""

MAX_FEEDBACK = 20
"""Most documents that feedback reads."""

MAX_FACETS = 20
"""Most fields that one request counts."""

TopK = Annotated[int, Query(ge=1, le=MAX_TOP_K, description="Results at most.")]
Factor = Annotated[
    str, StringConstraints(pattern=r"^(words|concepts):[0-9]{1,9}:[0-9]{1,3}(\.[0-9]{1,6})?$")
]

Boost = Annotated[str, StringConstraints(pattern=r"^(words|concepts):[0-9]{1,3}(\.[0-9]{1,6})?$")]


class QueryParameters(BaseModel):
    """A query with boosts and steering."""

    query: str = Field(
        max_length=MAX_QUERY,
        description='The text to search with. "exact phrase", -word and field:value are syntax.',
    )
    steer: list[Factor] = Field(
        [],
        max_length=MAX_STEERED,
        description="vocabulary:dimension:factor multiplies a weight of the query; 0 removes it.",
        examples=[["concepts:7898:0"]],
    )
    add: list[Factor] = Field(
        [],
        max_length=MAX_ADDED,
        description="vocabulary:dimension:weight adds a dimension to the query, as `/feedback` "
        "returns them.",
        examples=[["concepts:7898:0.5"]],
    )
    like: str | None = Field(
        None, description="A document's id: search with its largest dimensions, and leave it out."
    )
    boost: list[Boost] = Field(
        [],
        max_length=2,
        description="vocabulary:factor multiplies all of a vocabulary's weights.",
        examples=[["concepts:0.5"]],
    )


class VocabularyParameters(QueryParameters):
    """A query of a search, with the vocabulary to search."""

    vocabulary: Literal["words", "concepts"] | None = Field(
        None, description="Of the search; all by default."
    )
    rescore: bool = Field(
        True,
        description="Whether a search of all vocabularies counts whole documents and the "
        "similarity of texts; false for the sparse ranking by the best passage.",
    )


class SearchParameters(VocabularyParameters):
    """Parameters of a search."""

    top_k: TopK = 10
    offset: int = Field(0, ge=0, le=MAX_TOP_K, description="Results to leave out before the first.")
    count: bool = Field(False, description="Whether to count all results, as `total`.")
    matches: bool = Field(
        False,
        description="Whether results have what they share with the query, and the part of the text "
        "around it as their excerpt.",
    )
    filter: str | None = Field(
        None,
        max_length=MAX_QUERY,
        description="Which documents may be results, by their fields.",
        examples=["year >= 2020 and tag in ['bio']"],
    )
    facet: list[str] = Field(
        [],
        max_length=MAX_FACETS,
        description="Fields whose most frequent values among all results are counted.",
    )


class ExplainParameters(VocabularyParameters):
    """Parameters of an explanation."""

    document_id: str = Field(description="As the index knows it.")


class BodyParameters(QueryParameters):
    """Parameters of a request to another engine."""

    engine: Literal["opensearch", "elasticsearch", "qdrant"] = Field(
        description="The engine that holds an export of the index."
    )
    top_k: TopK = 10
    filter: str | None = Field(None, max_length=MAX_QUERY, description="As in a search.")


class FeedbackParameters(VocabularyParameters):
    """Parameters of relevance feedback."""

    document_id: list[str] = Field(
        [], max_length=MAX_FEEDBACK, description="Relevant documents; by default the first results."
    )
    top_k: int = Field(
        3, ge=1, le=MAX_FEEDBACK, description="First results, where no documents are named."
    )
    filter: str | None = Field(None, max_length=MAX_QUERY, description="Of the first results.")
