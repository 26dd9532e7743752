"""The endpoints.

Searches of words run on the event loop, which takes less time than handing them to a thread;
searches that need the encoder wait for its thread.
"""

from __future__ import annotations

from importlib.metadata import version
from math import isfinite
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query, Request, Response

from lexicept.corpora import Document
from lexicept.engines.mask import Mask
from lexicept.errors import IndexFormatError, InputError
from lexicept.explanation.contributions import Contribution, QueryTerm, Sources
from lexicept.fields.facets import ValueCount
from lexicept.index.hits import Hits
from lexicept.index.queries import Steering
from lexicept.index.reader import IndexReader
from lexicept.server import schema
from lexicept.server.concepts import concept_detail, concept_list
from lexicept.server.excerpts import NOT_FINITE, to_json
from lexicept.server.metrics import Metrics
from lexicept.server.questions import MAX_QUERY, Explained, Question, Searched, TopK
from lexicept.server.reader import Reader, Search

DAMAGED: dict[int | str, dict[str, Any]] = {
    503: {"model": schema.Problem, "description": "The index is damaged."}
}
BUSY: dict[int | str, dict[str, Any]] = {
    503: {
        "model": schema.Problem,
        "description": "Too many requests wait for the model, or the index is damaged.",
        "headers": {
            "Retry-After": {"description": "Seconds.", "schema": {"type": "integer"}},
        },
    }
}

FACET_VALUES = 50
"""Most values of a field that are counted."""

router = APIRouter()


def reader_of(request: Request) -> Reader:
    """Return the reader of the application's index."""
    reader: Reader = request.app.state.reader
    return reader


@router.get("/search", response_model=schema.Results, responses=BUSY)
async def search(request: Request, asked: Annotated[Searched, Query()]) -> Response:
    """Return the best documents for a query."""
    reader = reader_of(request)
    generation = reader.generation
    index, cards = generation.index, generation.cards
    steering, facets = steered(index, asked), "{}"
    mask = filtered(index, asked)
    wanted = Search(asked.query, asked.top_k, asked.vocabulary, steering, asked.filter)
    if asked.facet:

        def count() -> dict[str, list[ValueCount]]:
            masks = [mask, index.found(asked.query, asked.vocabulary, steering)]
            return index.masks.counts(asked.facet, masks, FACET_VALUES)

        counts = await reader.run(count)
        facets = to_json({name: [one._asdict() for one in found] for name, found in counts.items()})
    hits = Hits(await reader.search(index, wanted), index, asked.query, asked.vocabulary)
    if not all(isfinite(hit.score) for hit in hits):
        raise IndexFormatError(NOT_FINITE)
    results = ",".join(
        f'{{"rank":{hit.rank},"score":{hit.score},{cards.of(hit.id)}}}' for hit in hits
    )
    words = f'"unmatched_words":{to_json(hits.unmatched_words)},"note":{to_json(hits.note)}'
    parts = f'{words},"facets":{facets},"results":[{results}]'
    return send_json(f'{{"query":{to_json(asked.query)},{parts}}}')


@router.get("/query", response_model=schema.Terms, responses=BUSY)
async def query_terms(request: Request, asked: Annotated[Question, Query()]) -> Response:
    """Return a query's words and concepts with their weights."""
    reader = reader_of(request)
    index = reader.generation.index
    steering = steered(index, asked)
    fired = await reader.run(lambda: index.query_terms(asked.query, asked.vocabulary, steering))
    terms = [{**without_shares(term), "spans": spans(term.in_query)} for term in fired]
    return as_json({"query": asked.query, "terms": terms})


@router.get("/explain", response_model=schema.Explanation, responses=BUSY)
async def explain(request: Request, asked: Annotated[Explained, Query()]) -> Response:
    """Return the contributions to a document's score."""
    reader = reader_of(request)
    index = reader.generation.index
    query, document_id = asked.query, asked.document_id
    steering = steered(index, asked)
    title = stored(index, document_id).title
    explanation = await reader.run(
        lambda: index.explain(query, document_id, asked.vocabulary, steering=steering)
    )
    return as_json(
        {
            "query": query,
            "document_id": document_id,
            "title": title,
            "content": explanation.content,
            "score": explanation.score,
            "prior": explanation.prior,
            "contributions": [
                {
                    **without_shares(part),
                    "query_spans": spans(part.in_query),
                    "document_spans": spans(part.in_document),
                }
                for part in explanation.contributions
            ],
        }
    )


@router.get("/concepts", response_model=schema.Concepts, responses=BUSY)
async def concepts(
    request: Request,
    search: Annotated[
        str,
        Query(
            max_length=MAX_QUERY, description="Part of a label or of one of the concept's words."
        ),
    ] = "",
    top_k: TopK = 10,
) -> Response:
    """Return the concepts with a text in their label or words."""
    reader = reader_of(request)
    index = reader.generation.index
    require_vocabulary(index, "concepts")
    return as_json(await reader.run(lambda: concept_list(index, search, top_k)))


@router.get("/concepts/{number}", response_model=schema.ConceptDetail, responses=BUSY)
async def concept(request: Request, number: int, top_k: TopK = 10) -> Response:
    """Return one concept and the documents with its largest weights."""
    reader = reader_of(request)
    index = reader.generation.index
    require_dimension(index, "concepts", number)
    return as_json(await reader.run(lambda: concept_detail(index, number, top_k)))


@router.get(
    "/documents/{document_id:path}", response_model=schema.StoredDocument, responses=DAMAGED
)
async def document(request: Request, document_id: str) -> Response:
    """Return one document; its id may contain slashes."""
    return as_json(stored(reader_of(request).generation.index, document_id)._asdict())


@router.get("/fields", response_model=schema.Fields, responses=DAMAGED)
async def fields(request: Request) -> Response:
    """Return the fields of the documents, by which searches are filtered."""
    index = reader_of(request).generation.index
    return as_json(
        {
            "fields": [
                {"name": name, **kind._asdict(), "documents": index.masks.having(name)}
                for name, kind in index.fields.kinds.items()
            ]
        }
    )


@router.get("/health")
async def health(request: Request) -> schema.Health:
    """Return the server's version, the size of its index, and its state."""
    reader = reader_of(request)
    index = reader.served.index
    return schema.Health(
        status=reader.state.status,
        reason=reader.state.reason,
        version=version("lexicept"),
        generation=index.folder.name,
        documents=len(index),
        vocabularies=[schema.VocabularySize(name=v.name, size=v.size) for v in index.vocabularies],
    )


@router.get("/metrics", response_class=Response)
async def prometheus(request: Request) -> Response:
    """Return counts and times of requests for Prometheus."""
    metrics: Metrics = request.app.state.metrics
    return Response(metrics.text(), media_type="text/plain; version=1.0.0; charset=utf-8")


def require_vocabulary(index: IndexReader, name: str) -> int:
    """Return the size of a vocabulary. Raises HTTPException if the index lacks it."""
    sizes = {vocabulary.name: vocabulary.size for vocabulary in index.vocabularies}
    if name not in sizes:
        raise HTTPException(404, f"this index has no {name}, only {', '.join(sizes)}")
    return sizes[name]


def require_dimension(index: IndexReader, name: str, dimension: int) -> None:
    """Raise HTTPException if the index has no such dimension."""
    size = require_vocabulary(index, name)
    if not 0 <= dimension < size:
        raise HTTPException(404, f"no number {dimension} in {name}, which are 0 to {size - 1}")


def steered(index: IndexReader, asked: Question) -> Steering | None:
    """Return a request's steering. Raises HTTPException for an unknown dimension."""
    if asked.vocabulary is not None:
        require_vocabulary(index, asked.vocabulary)
    factors: dict[tuple[str, int], float] = {}
    for text in asked.steer:
        name, number, factor = text.split(":")
        require_dimension(index, name, int(number))
        factors[name, int(number)] = float(factor)
    return factors or None


def filtered(index: IndexReader, asked: Searched) -> Mask | None:
    """Return the documents that a request's filter lets pass. Raises HTTPException for a bad one,
    and for a facet that is no field."""
    for name in asked.facet:
        if name not in index.fields:
            raise HTTPException(404, f"this index has no field {name!r}")
    try:
        return index.masks.of(asked.filter)
    except InputError as error:
        raise HTTPException(422, str(error)) from None


def stored(index: IndexReader, document_id: str) -> Document:
    """Return a stored document. Raises HTTPException for an unknown id."""
    try:
        return index.document(document_id)
    except InputError:
        raise HTTPException(404, "this index has no document of that id") from None


def without_shares(part: QueryTerm | Contribution) -> dict[str, Any]:
    """Return the fields of which ``spans`` does not make objects."""
    return {name: value for name, value in part._asdict().items() if not name.endswith("shares")}


def spans(sources: Sources) -> list[dict[str, float]]:
    """Return spans and their shares as JSON objects."""
    return [
        {"start": start, "end": end, "share": share}
        for (start, end), share in zip(*sources, strict=True)
    ]


def as_json(content: Any) -> Response:
    """Return an answer, without validating again what the types guarantee."""
    return send_json(to_json(content))


def send_json(text: str) -> Response:
    """Return an answer of JSON text."""
    return Response(text.encode(), media_type="application/json")
