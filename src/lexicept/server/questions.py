"""What searches, their terms and their explanations are asked with: the parameters of addresses."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Query
from pydantic import BaseModel, Field, StringConstraints

MAX_QUERY = 4_000
"""Characters of a query."""

MAX_TOP_K = 1_000

MAX_STEERED = 100
"""Dimensions that one request can steer."""

TopK = Annotated[int, Query(ge=1, le=MAX_TOP_K, description="Results at most.")]
Factor = Annotated[
    str, StringConstraints(pattern=r"^(words|concepts):[0-9]{1,9}:[0-9]{1,3}(\.[0-9]{1,6})?$")
]


class Question(BaseModel):
    """A query, and how it is searched with."""

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
    """A query whose documents are asked for."""

    top_k: TopK = 10


class Explained(Question):
    """A query whose score of one document is asked for."""

    document_id: str = Field(description="As the index knows it.")
