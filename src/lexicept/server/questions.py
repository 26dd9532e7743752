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

MAX_FACETS = 20
"""Most fields that one request counts."""

TopK = Annotated[int, Query(ge=1, le=MAX_TOP_K, description="Results at most.")]
Factor = Annotated[
    str, StringConstraints(pattern=r"^(words|concepts):[0-9]{1,9}:[0-9]{1,3}(\.[0-9]{1,6})?$")
]


class Question(BaseModel):
    """A query with its vocabulary and steering."""

    query: str = Field(max_length=MAX_QUERY, description="The text to search with.")
    vocabulary: Literal["words", "concepts"] | None = Field(
        None, description="Of the search; all by default."
    )
    steer: list[Factor] = Field(
        [],
        max_length=MAX_STEERED,
        description="vocabulary:dimension:factor multiplies a weight of the query; 0 removes it.",
        examples=[["concepts:7898:0"]],
    )


class Searched(Question):
    """Parameters of a search."""

    top_k: TopK = 10
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


class Explained(Question):
    """Parameters of an explanation."""

    document_id: str = Field(description="As the index knows it.")
