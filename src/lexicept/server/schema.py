"""What the endpoints answer with, as the OpenAPI document shows it."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field


class Problem(BaseModel):
    """Why a request was refused."""

    detail: str = Field(description="One sentence that names the cause.")


class VocabularySize(BaseModel):
    """A vocabulary of the index."""

    name: str
    size: int = Field(description="Number of dimensions.")


class Health(BaseModel):
    """That the server answers, and what it serves."""

    status: Literal["ok"] = "ok"
    version: str = Field(description="Of lexicept.")
    generation: str = Field(description="Of the index: it changes with every update.")
    documents: int
    vocabularies: list[VocabularySize]


class Card(BaseModel):
    """A document as it is listed."""

    id: str
    title: str
    excerpt: str = Field(description="The beginning of the text.")


class Result(Card):
    """One document that was found."""

    rank: int = Field(ge=1)
    score: float


class Results(BaseModel):
    """What a search found, best first; empty where no word or concept is shared."""

    query: str
    results: list[Result]


class Span(BaseModel):
    """Code points ``start`` to ``end`` of a text."""

    start: int
    end: int


class Dimension(BaseModel):
    """One of the index."""

    vocabulary: str
    dimension: int = Field(description="Within its vocabulary: a latent's number.")
    term: str


class Term(Dimension):
    """A dimension of the query."""

    weight: float = Field(description="After steering.")
    spans: list[Span] = Field(description="Of the query.")


class Terms(BaseModel):
    """What a query is made of, largest weight first."""

    query: str
    terms: list[Term]


class Contribution(Dimension):
    """What one dimension adds to a score."""

    score: float = Field(description="query_weight · document_weight")
    query_weight: float
    document_weight: float
    query_spans: list[Span]
    document_spans: list[Span] = Field(description="Of the content.")


class Explanation(BaseModel):
    """Why a document has its score: the contributions and the prior add up to it."""

    query: str
    document_id: str
    title: str
    content: str = Field(description="Title and text as they were indexed.")
    score: float
    prior: float = Field(description="Of Rational Retrieval Acts; 0 without them.")
    contributions: list[Contribution] = Field(description="Largest first.")


class StoredDocument(BaseModel):
    """A document as it was indexed."""

    id: str
    title: str
    text: str


class ConceptSummary(BaseModel):
    """A concept by its name."""

    number: int
    label: str
    documents: int = Field(description="That it is active in.")


class Concepts(BaseModel):
    """Concepts with the text in their label or words, the most frequent first."""

    total: int = Field(description="How many there are, of which at most top_k are listed.")
    concepts: list[ConceptSummary]


class ConceptWord(BaseModel):
    """A word that a concept fires on."""

    word: str
    z: float = Field(description="Of the weighted log-odds.")


class ConceptExample(BaseModel):
    """Where a concept fires: ``before``, ``fired`` and ``after`` are one piece of a document."""

    document_id: str
    before: str
    fired: str
    after: str
    activation: float


class NearestConcept(BaseModel):
    """A concept of a similar direction."""

    number: int
    label: str
    cosine: float


class ConceptDocument(Card):
    """A document that a concept is active in."""

    weight: float


class ConceptDetail(ConceptSummary):
    """A concept. What was never described is null or empty."""

    source: str | None = Field(description="Where the label is from.")
    firing_frequency: float | None = Field(description="Share of tokens.")
    words: list[ConceptWord]
    examples: list[ConceptExample]
    nearest: list[NearestConcept]
    top_documents: list[ConceptDocument] = Field(description="Largest weights first.")
