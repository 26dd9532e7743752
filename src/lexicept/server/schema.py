"""The answers of the endpoints, for the OpenAPI document."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, Field


class Problem(BaseModel):
    """The reason for refusing a request."""

    detail: str = Field(description="One sentence that names the cause.")


class VocabularySize(BaseModel):
    """A vocabulary of the index."""

    name: str
    size: int = Field(description="Number of dimensions.")


class Health(BaseModel):
    """The server's version, index and state."""

    status: Literal["ok", "stale", "damaged"] = Field(
        description="Stale: the index has changed and can't be opened, the generation before is "
        "served. Damaged: a file was truncated, requests are refused."
    )
    reason: str | None = Field(description="Why it is stale or damaged.")
    version: str = Field(description="Version of lexicept.")
    generation: str = Field(description="Generation of the index; changes with every update.")
    changed: datetime | None = Field(description="When the index was written; null if it is gone.")
    documents: int
    unit: str = Field(description="What concepts count: documents, or passages of documents.")
    document_url: str | None = Field(description="Template of documents' addresses, for links.")
    vocabularies: list[VocabularySize]
    missing: list[str] = Field(description="Vocabularies that follow when the build ends.")


FieldValue = str | float | list[str] | list[float]


class DocumentCard(BaseModel):
    """A document's summary."""

    id: str
    title: str
    fields: dict[str, FieldValue] = Field(description="Dates are in ISO 8601.")
    passage: str | None = Field(
        description="Id of the passage that the title and the excerpt are of; null for a document "
        "that is indexed whole."
    )
    excerpt: str = Field(
        description="The beginning of the text; of a result with `matches` the part around them."
    )


class Dimension(BaseModel):
    """A dimension of the index: a word or a concept."""

    vocabulary: str
    dimension: int = Field(description="Number in its vocabulary; for a concept the latent's.")
    term: str = Field(description="A concept without a name has its number: #12.")
    idea: str = Field(
        description="The same for a word and concepts named by it, and for concepts of one name."
    )


class ResultMatch(Dimension):
    """A dimension that a result shares with the query."""

    score: float = Field(description="Its part of the score by the best passage alone.")
    word: str = Field(
        description="A word of the result behind it: the dimension's, or one that fires the "
        "concept elsewhere; may be empty."
    )


class Result(DocumentCard):
    """A result of a search."""

    rank: int = Field(ge=1)
    score: float
    matches: list[ResultMatch] | None = Field(
        None, description="Largest first; only where they were asked for."
    )


class FacetValue(BaseModel):
    """A value of a field."""

    value: str | float
    documents: int = Field(description="Number of documents with it.")


class FieldSummary(BaseModel):
    """A field of the documents."""

    name: str
    kind: Literal["keyword", "number", "date"]
    many: bool = Field(description="Whether documents have lists of them.")
    documents: int = Field(description="Number of documents with it.")
    offered: bool = Field(description="False for long texts and for values that hardly repeat.")
    values: list[FacetValue] = Field(description="The most frequent ones, of an offered field.")


class Fields(BaseModel):
    """The fields of the documents."""

    fields: list[FieldSummary]


class Examples(BaseModel):
    """Queries to begin with."""

    queries: list[str] = Field(description="Titles of documents; may be empty.")


class Results(BaseModel):
    """Results, best first; empty if no document shares a word or concept with the query."""

    query: str
    unmatched_words: list[str] = Field(
        description="Words of the query that no document contains, stop words aside."
    )
    weak: bool = Field(
        description="Whether nothing matches well: the results have few of the query's words, and "
        "the query resembles the collection no more than random letters do."
    )
    note: str = Field(
        description="A sentence about a query without good matches, unmatched words, and results "
        "by meaning only; may be empty."
    )
    did_you_mean: str = Field(
        description="The query with words of the index in place of those that no document "
        "contains; empty where none is near."
    )
    total: int | None = Field(
        description="Number of all results of an exact search, where it was asked for."
    )
    facets: dict[str, list[FacetValue]] = Field(
        description="The most frequent values of the fields that were asked for, among all "
        "documents that share a word or concept with the query and pass the filter."
    )
    results: list[Result]


class TextSpan(BaseModel):
    """Code points ``start`` to ``end`` of a text."""

    start: int
    end: int
    share: float = Field(description="Share in the activation of the dimension that they fire.")


STOP_WORDS = "The query's words that are not searched: function words and single letters."


class Term(Dimension):
    """A dimension of the query."""

    weight: float = Field(description="After steering.")
    spans: list[TextSpan] = Field(description="Characters of the text, largest share first.")


class Terms(BaseModel):
    """A query's dimensions, largest weight first."""

    query: str
    text: str = Field(description="The words of the query without its syntax.")
    terms: list[Term]


class QueryTerms(Terms):
    """A query's dimensions, and the words that are none."""

    stop_words: list[str] = Field(description=STOP_WORDS)


class ScorePart(Dimension):
    """The contribution of a dimension to a score."""

    score: float = Field(description="query_weight · document_weight")
    query_weight: float
    document_weight: float
    query_spans: list[TextSpan] = Field(description="Characters of the query's text.")
    document_spans: list[TextSpan] = Field(
        description="Characters of the content, largest share first."
    )


class WordPair(BaseModel):
    """A word of the query that meets a word of the passage."""

    query: str
    document: str
    share: float = Field(description="Share of the cosine, over all occurrences.")


class ScoreExplanation(BaseModel):
    """A score's parts: contributions, similarity and prior add up to the score."""

    query: str
    text: str = Field(description="The words of the query without its syntax.")
    document_id: str
    passage: str | None = Field(
        description="Id of the document's best passage, which is explained; null for a document "
        "that is indexed whole."
    )
    title: str
    content: str = Field(description="Title and text as they were indexed.")
    score: float
    similarity: float = Field(
        description="20 times the cosine of query and best passage, at least 0, and a fifth of "
        "this for `further`; 0 for a search of one vocabulary or without `rescore`."
    )
    similar_words: list[WordPair] = Field(
        description="Words of query and passage with the largest shares of the cosine."
    )
    further: list[str | None] = Field(
        description="The second best passage, of whose score a fifth counts; empty for none."
    )
    prior: float = Field(
        description="Document prior of Rational Retrieval Acts (RRA); 0 without it."
    )
    stop_words: list[str] = Field(description=STOP_WORDS)
    contributions: list[ScorePart] = Field(description="Largest first.")


class StoredPassage(BaseModel):
    """A passage of a document."""

    text: str
    title: str
    anchor: str = Field(description="Ends the passage's id, after the document's and a #.")


class StoredDocument(BaseModel):
    """A document in the index."""

    id: str
    title: str
    text: str
    fields: dict[str, FieldValue]
    passages: list[StoredPassage] = Field(description="Empty for a document that is indexed whole.")


class ConceptSummary(BaseModel):
    """A concept's label and frequency."""

    number: int
    label: str
    documents: int = Field(description="Number of documents with the concept.")
    detection: float | None = Field(
        description="Balanced accuracy of the label's words at telling active words from others, "
        "on documents held out of naming."
    )
    alike: list[int] = Field(description="Other concepts with the same name.")


class ListedConcept(ConceptSummary):
    """A concept with the words that it is active on."""

    name: str = Field(description="The label; for several of one name, the name and their number.")
    words: list[str]


class Concepts(BaseModel):
    """Concepts by a text in the label or words: the best matches or the most useful first."""

    total: int = Field(description="Number of matches, of which at most top_k are listed.")
    concepts: list[ListedConcept]


class ConceptWord(BaseModel):
    """A word on which a concept is active more often than by chance."""

    word: str
    z: float = Field(description="z-score of the weighted log-odds.")


class ConceptExample(BaseModel):
    """An activation: ``before``, ``fired`` and ``after`` are a passage of a document."""

    document_id: str
    before: str
    fired: str
    after: str
    activation: float


class ActivationCount(BaseModel):
    """Words with an activation from a lower bound on, up to the next half octave."""

    activation: float
    words: int


class NearestConcept(BaseModel):
    """A concept with a similar decoder direction."""

    number: int
    label: str
    cosine: float


class ConceptDocument(DocumentCard):
    """A document with the concept."""

    weight: float


class ConceptDetail(ConceptSummary):
    """A concept; without an atlas most fields are null or empty."""

    source: str | None = Field(
        description="Source of the label; none for a concept without a name."
    )
    firing_frequency: float | None = Field(description="Share of tokens on which it is active.")
    words: list[ConceptWord]
    examples: list[ConceptExample] = Field(description="The largest activations.")
    drawn: list[ConceptExample] = Field(description="Other activations, drawn at random.")
    histogram: list[ActivationCount]
    nearest: list[NearestConcept]
    top_documents: list[ConceptDocument] = Field(description="Largest weights first.")


class TokenActivation(BaseModel):
    """The activation of a concept on a token."""

    number: int
    label: str
    activation: float


class TokenWithConcepts(BaseModel):
    """Characters of a text, and the concepts that are active there, the largest first."""

    start: int
    end: int
    activations: list[TokenActivation]


class ConceptHeatMap(BaseModel):
    """The tokens of a text with the concepts that are active on them."""

    text: str
    tokens: list[TokenWithConcepts]
