"""The endpoints.

Searches of words run on the event loop, faster than by way of a thread; searches by a model wait
for the models' thread.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from math import isfinite
from typing import Annotated, Any, get_origin

from fastapi import APIRouter, Depends, HTTPException, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import ValidationError

from lexicept.corpora import Document
from lexicept.engines.mask import Mask
from lexicept.errors import IndexFormatError, InputError, check_known
from lexicept.explanation.contributions import Contribution, QueryTerm, Sources
from lexicept.exports.requests import query_body
from lexicept.fields.filters import parse as parse_filter
from lexicept.index.feedback import added_terms, like, with_feedback
from lexicept.index.manifest import manifest_identity
from lexicept.index.reader import IndexReader
from lexicept.index.results import JUDGED, Hits
from lexicept.queries.syntax import DimensionNumbers, ParsedQuery
from lexicept.server import metrics, schema
from lexicept.server.concepts import concept_detail, concept_list
from lexicept.server.excerpts import NOT_FINITE, cards_with_matches, title_queries, to_json
from lexicept.server.questions import (
    MAX_QUERY,
    BodyParameters,
    ExplainParameters,
    FeedbackParameters,
    QueryParameters,
    SearchParameters,
    TopK,
    VocabularyParameters,
)
from lexicept.server.reader import Reader, SearchRequest

DAMAGED: dict[int | str, dict[str, Any]] = {
    503: {"model": schema.Problem, "description": "The index is damaged."}
}
BUSY: dict[int | str, dict[str, Any]] = {
    503: {
        "model": schema.Problem,
        "description": "Too many requests wait for the model, or the index is damaged.",
        "headers": {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer"}}},
    }
}

FACET_VALUES = 50
"""Most values of a field that are counted."""

FEW_VALUES = 8
"""Values of a field that ``/fields`` has."""

MANY = frozenset(
    name
    for name, field in SearchParameters.model_fields.items()
    if get_origin(field.annotation) is list
)
"""Parameters that may be given more than once."""


class CheckedRoute(APIRoute):
    """A route that refuses parameters that it does not have."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of a request."""
        handle, names = super().get_route_handler(), []
        for parameter in self.dependant.query_params:
            fields = getattr(parameter.field_info.annotation, "model_fields", None)
            names += [parameter.alias] if fields is None else [*fields]

        async def answer(request: Request) -> Response:
            check_known("parameter", request.query_params, names)
            return await handle(request)

        return answer


router = APIRouter(route_class=CheckedRoute)


class SearchRoute(APIRoute):
    """A route with the parameters of ``SearchParameters``, read without FastAPI's general
    search for parameters, which takes a fifth of the time of a search of words.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of a request."""

        async def answer(request: Request) -> Response:
            parameters = request.query_params
            check_known("parameter", parameters, [*SearchParameters.model_fields])
            values = {n: parameters.getlist(n) if n in MANY else parameters[n] for n in parameters}
            try:
                question = SearchParameters.model_validate(values)
            except ValidationError as error:
                problems = error.errors(include_url=False)
                errors = [{**problem, "loc": ("query", *problem["loc"])} for problem in problems]
                raise RequestValidationError(errors) from None
            return await search(request, question)

        return answer


async def reader_of(request: Request) -> Reader:
    """Return the reader of the application's index."""
    reader: Reader = request.app.state.reader
    return reader


async def index_of(request: Request) -> IndexReader:
    """Return the generation in service. Raises IndexFormatError for a damaged index."""
    reader: Reader = request.app.state.reader
    return reader.generation.index


# Dependencies that were no coroutines would run in a thread.
TheReader = Annotated[Reader, Depends(reader_of)]
TheIndex = Annotated[IndexReader, Depends(index_of)]


async def search(request: Request, question: Annotated[SearchParameters, Query()]) -> Response:
    """Return the best documents for a query."""
    reader: Reader = request.app.state.reader
    generation = reader.generation
    index = generation.index
    query, mask = await filtered(reader, index, parsed(index, question), question)
    end = question.offset + question.top_k
    depth = max(end, JUDGED)  # the best show whether all results are weak
    request_of_hits = SearchRequest(
        index, query, depth, question.vocabulary, mask, question.rescore
    )
    results = await reader.search(request_of_hits)
    total, facets = None, {}
    if question.facet or question.count:
        matching = await reader.run(
            lambda: index.matching(query, question.vocabulary, mask, rescore=question.rescore)
        )
        total = index.masks.num_documents(matching)
        counts = index.masks.counts(question.facet, matching, FACET_VALUES)
        facets = {name: [count._asdict() for count in values] for name, values in counts.items()}
    searched = (question.vocabulary, question.query, question.rescore)
    hits = Hits(results, index, query, depth, *searched)
    if not all(isfinite(hit.score) for hit in hits):
        raise IndexFormatError(NOT_FINITE)
    meant = await reader.read(lambda: hits.did_you_mean) if hits.unmatched_words else ""
    weak = await reader.run(lambda: hits.weak) if hits.weak_searches else hits.weak
    page_hits = hits[question.offset : end]
    if question.matches:
        options = (question.vocabulary, question.rescore)
        described = await reader.run(lambda: cards_with_matches(index, query, page_hits, *options))
    else:
        described = [generation.card(hit.number) for hit in page_hits]
    listed = ",".join(
        f'{{"rank":{hit.rank},"score":{hit.score},{card}}}'
        for hit, card in zip(page_hits, described, strict=True)
    )
    about = {
        "query": question.query,
        "unmatched_words": hits.unmatched_words,
        "weak": weak,
        "note": hits.note,
        "did_you_mean": meant,
        "total": total,
        "facets": facets,
    }
    text = f'{to_json(about)[:-1]},"results":[{listed}]}}'
    return Response(text.encode(), media_type="application/json")


router.add_api_route(
    "/search",
    search,
    response_model=schema.Results,
    responses=BUSY,
    route_class_override=SearchRoute,
)


@router.get("/query", response_model=schema.QueryTerms, responses=BUSY)
async def query_terms(
    reader: TheReader, index: TheIndex, question: Annotated[VocabularyParameters, Query()]
) -> Response:
    """Return a query's words and concepts with weights."""
    query = parsed(index, question)
    options = (question.vocabulary, question.rescore)
    encoded = await reader.run(lambda: index.weigher.encode(query, *options))
    fired = await reader.run(lambda: index.explainer.terms(encoded))
    terms = [
        {**without_shares(term), "spans": spans(index, query.text, term.in_query)} for term in fired
    ]
    texts = {"query": question.query, "text": query.text, "stop_words": encoded.stop_words}
    return as_json({**texts, "terms": terms})


@router.get("/query_body", responses=BUSY)
async def body_of_query(
    reader: TheReader, index: TheIndex, question: Annotated[BodyParameters, Query()]
) -> Response:
    """Return a query as the body of a request to an engine that holds an export of the index."""
    expression = None if question.filter is None else parse_filter(question.filter)
    query = replace(parsed(index, question), filter=expression)
    body = await reader.run(lambda: query_body(index, query, question.engine, question.top_k))
    return as_json(body)


@router.get("/explain", response_model=schema.ScoreExplanation, responses=BUSY)
async def explain(
    reader: TheReader, index: TheIndex, question: Annotated[ExplainParameters, Query()]
) -> Response:
    """Return the contributions to a document's score."""
    query, document_id = parsed(index, question), question.document_id
    stored(index, document_id)
    explanation = await reader.run(
        lambda: index.explain(query, document_id, question.vocabulary, rescore=question.rescore)
    )
    contributions = [
        {
            **without_shares(contribution),
            "query_spans": spans(index, explanation.query, contribution.in_query),
            "document_spans": spans(index, explanation.content, contribution.in_document),
        }
        for contribution in explanation.contributions
    ]
    answer = {"query": question.query, "text": query.text, "passage": explanation.passage}
    answer["title"] = stored(index, explanation.passage or explanation.document_id).title
    return as_json(explanation.to_json() | answer | {"contributions": contributions})


@router.get("/feedback", response_model=schema.Terms, responses=BUSY)
async def feedback(
    reader: TheReader, index: TheIndex, question: Annotated[FeedbackParameters, Query()]
) -> Response:
    """Return the words and concepts that feedback adds to a query, to be sent as `add`."""
    query = parsed(index, question)
    for name in question.document_id:
        stored(index, name)
    marked = question.document_id or question.top_k

    def find() -> list[QueryTerm]:
        filter_expression = None if question.filter is None else parse_filter(question.filter)
        filtered_query = replace(query, filter=filter_expression)
        added = with_feedback(
            index, filtered_query, marked, question.vocabulary, rescore=question.rescore
        ).added
        if question.like is not None:  # a search with `like` adds the document's dimensions again
            of_document = like(index, question.like).added
            differences = {
                key: round(weight - of_document.get(key, 0), 6) for key, weight in added.items()
            }
            added = {key: weight for key, weight in differences.items() if weight > 0}
        return added_terms(index, added)

    terms = [{**without_shares(term), "spans": []} for term in await reader.run(find)]
    return as_json({"query": question.query, "text": query.text, "terms": terms})


@router.get("/concepts", response_model=schema.Concepts, responses=BUSY)
async def concepts(
    reader: TheReader,
    index: TheIndex,
    search: Annotated[
        str,
        Query(
            max_length=MAX_QUERY, description="Part of a label or of one of the concept's words."
        ),
    ] = "",
    top_k: TopK = 10,
) -> Response:
    """Return concepts by a text in the label or words."""
    require_vocabulary(index, "concepts")
    return as_json(await reader.run(lambda: concept_list(index, search, top_k)))


@router.get("/concepts/{number}", response_model=schema.ConceptDetail, responses=BUSY)
async def concept(reader: TheReader, index: TheIndex, number: int, top_k: TopK = 10) -> Response:
    """Return a concept and the documents with the largest weights."""
    require_dimension(index, "concepts", number)
    return as_json(await reader.run(lambda: concept_detail(index, number, top_k)))


@router.get("/activations", response_model=schema.ConceptHeatMap, responses=BUSY)
async def activations(
    reader: TheReader,
    index: TheIndex,
    text: Annotated[str, Query(max_length=MAX_QUERY, description="Text to read as a document.")],
) -> Response:
    """Return the concepts that are active on each token of a text."""
    require_vocabulary(index, "concepts")
    return as_json(await reader.run(lambda: index.activations(text).to_json()))


@router.get("/document", response_model=schema.StoredDocument, responses=DAMAGED)
async def document(
    index: TheIndex, document_id: Annotated[str, Query(description="Id of the document.")]
) -> Response:
    """Return a document, or a passage, by id."""
    document = stored(index, document_id)
    passages = [passage._asdict() for passage in document.passages]
    return as_json({**document._asdict(), "passages": passages})


@router.get("/fields", response_model=schema.Fields, responses=DAMAGED)
async def fields(index: TheIndex) -> Response:
    """Return the fields of the documents, for filters."""
    masks = index.masks
    values = masks.counts(masks.offered, None, FEW_VALUES)
    fields = [
        {"name": name, "kind": type_.name, "many": type_.multiple, "documents": masks.having(name)}
        | {"offered": name in values, "values": [v._asdict() for v in values.get(name, ())]}
        for name, type_ in index.fields.types.items()
    ]
    return as_json({"fields": fields})


@router.get("/examples", response_model=schema.Examples, responses=DAMAGED)
async def examples(reader: TheReader, index: TheIndex) -> Response:
    """Return queries to begin with."""
    return as_json({"queries": await reader.read(lambda: title_queries(index))})


@router.get("/health")
async def health(request: Request, reader: TheReader) -> schema.Health:
    """Return the server's version, the size of the index, and the state."""
    template: str | None = request.app.state.document_url
    index = reader.served.index
    manifest = manifest_identity(index.path)
    return schema.Health(
        status=reader.state.status,
        reason=reader.state.reason,
        version=version("lexicept"),
        generation=index.folder.name,
        changed=manifest and datetime.fromtimestamp(manifest[1] // 10**9, UTC),
        documents=index.num_documents,
        unit=index.unit,
        document_url=template,
        vocabularies=[schema.VocabularySize(name=v.name, size=v.size) for v in index.vocabularies],
        missing=index.missing,
    )


@router.get("/metrics", response_class=Response)
async def prometheus() -> Response:
    """Return counts and times of requests for Prometheus."""
    return Response(metrics.text(), media_type="text/plain; version=1.0.0; charset=utf-8")


def require_vocabulary(index: IndexReader, name: str) -> int:
    """Return the size of a vocabulary. Raises HTTPException for an unknown name."""
    sizes = {vocabulary.name: vocabulary.size for vocabulary in index.vocabularies}
    if name not in sizes:
        raise HTTPException(404, f"this index has no {name}, only {', '.join(sizes)}")
    return sizes[name]


def require_dimension(index: IndexReader, name: str, dimension: int) -> None:
    """Raise HTTPException for an unknown dimension."""
    size = require_vocabulary(index, name)
    if not 0 <= dimension < size:
        raise HTTPException(404, f"no number {dimension} in {name}, which are 0 to {size - 1}")


def dimension_numbers(index: IndexReader, texts: list[str]) -> DimensionNumbers:
    """Return the numbers of ``vocabulary:dimension:number``, or raise HTTPException."""
    numbers: dict[tuple[str, int], float] = {}
    for text in texts:
        name, dimension, number = text.split(":")
        require_dimension(index, name, int(dimension))
        numbers[name, int(dimension)] = float(number)
    return numbers


def parsed(index: IndexReader, question: QueryParameters) -> ParsedQuery:
    """Return the parts of a request's query. Raises HTTPException for an unknown vocabulary,
    dimension or document."""
    if isinstance(question, VocabularyParameters) and question.vocabulary is not None:
        require_vocabulary(index, question.vocabulary)
    boosts = {}
    for text in question.boost:
        name, factor = text.split(":")
        require_vocabulary(index, name)
        boosts[name] = float(factor)
    query = index.parse(question.query)
    if question.boost or question.add or question.steer:
        query = replace(
            query,
            boosts=boosts,
            added=dimension_numbers(index, question.add),
            steering=dimension_numbers(index, question.steer),
        )
    if question.like is not None:
        stored(index, question.like)
        query = like(index, question.like, query)
    return query


async def filtered(
    reader: Reader, index: IndexReader, query: ParsedQuery, question: SearchParameters
) -> tuple[ParsedQuery, Mask | None]:
    """Return a query with a request's filter, and the documents that meet all conditions. Raises
    HTTPException for a facet of an unknown field. Raises InputError for a bad condition."""
    for name in question.facet:
        if name not in index.fields:
            raise HTTPException(404, f"this index has no field {name!r}")
    if question.filter is not None:
        query = replace(query, filter=parse_filter(question.filter))
    if query.phrases or query.without:  # they read documents
        (mask,) = await reader.read(lambda: index.query_masks([query]))
    else:
        (mask,) = index.query_masks([query])
    return query, mask


def stored(index: IndexReader, document_id: str) -> Document:
    """Return a stored document. Raises HTTPException for an unknown id."""
    try:
        return index.document(document_id)
    except InputError:
        raise HTTPException(404, "this index has no document of that id") from None


def without_shares(term: QueryTerm | Contribution) -> dict[str, Any]:
    """Return the fields without spans, which ``spans`` turns into objects."""
    return {name: value for name, value in term._asdict().items() if not name.endswith("shares")}


def spans(index: IndexReader, text: str, sources: Sources) -> list[dict[str, float]]:
    """Return spans and shares as JSON objects, without stop words and punctuation."""
    words = index.word_vectorizer()
    return [
        {"start": start, "end": end, "share": share}
        for (start, end), share in zip(sources.spans, sources.shares, strict=True)
        if words is None or any(words.terms_in(text[start:end]))
    ]


def as_json(content: Any) -> Response:
    """Return an answer of JSON values, without validation."""
    return Response(to_json(content).encode(), media_type="application/json")
