"""The HTTP API: what each address answers, and what it refuses.

Malformed requests get 422, and what this index does not have 404, both with one sentence. Searches
of words run on the event loop, for they take less time than handing them to a thread does; what
needs the encoder waits for its thread.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Annotated, Any, Literal

from fastapi import FastAPI, HTTPException, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import StringConstraints
from starlette.middleware.trustedhost import TrustedHostMiddleware

from lexicept.corpora import Document
from lexicept.errors import InputError
from lexicept.index import Index, Steering
from lexicept.server import schema
from lexicept.server.concepts import concept_detail, concept_list
from lexicept.server.excerpts import to_json
from lexicept.server.guard import Guard
from lexicept.server.metrics import Metrics
from lexicept.server.page import FILES
from lexicept.server.reader import Reader, Search

MAX_QUERY = 4_000
"""Characters of a query."""

MAX_TOP_K = 1_000

MAX_STEERED = 100
"""Dimensions that one request can steer."""

INDEX_VARIABLE = "LEXICEPT_INDEX"
HOST_VARIABLE = "LEXICEPT_HOST"

LOOPBACK = ("127.0.0.1", "localhost", "::1", "[::1]")

QueryText = Annotated[str, Query(max_length=MAX_QUERY, description="The text to search with.")]
TopK = Annotated[int, Query(ge=1, le=MAX_TOP_K, description="Results at most.")]
VocabularyName = Annotated[
    Literal["words", "concepts"] | None, Query(description="Of the search; all by default.")
]
Steer = Annotated[
    list[
        Annotated[
            str,
            StringConstraints(pattern=r"^(words|concepts):[0-9]{1,9}:[0-9]{1,3}(\.[0-9]{1,6})?$"),
        ]
    ],
    Query(
        max_length=MAX_STEERED,
        description="vocabulary:dimension:factor multiplies a weight of the query; 0 removes it.",
        examples=[["concepts:7898:0"]],
    ),
]
DocumentId = Annotated[str, Query(description="As the index knows it.")]

PROBLEMS: dict[int | str, dict[str, Any]] = {
    404: {"model": schema.Problem, "description": "This index has no such thing."},
    422: {"model": schema.Problem, "description": "A malformed request."},
}


def from_environment() -> FastAPI:
    """The application that any ASGI server can run: LEXICEPT_INDEX names the index.

    LEXICEPT_HOST is the address that the server binds to, 127.0.0.1 by default.

    Raises:
        InputError: no LEXICEPT_INDEX.
        IndexFormatError: it is no index.
    """
    if INDEX_VARIABLE not in os.environ:
        raise InputError(f"{INDEX_VARIABLE} must name the index to serve")
    return create_app(os.environ[INDEX_VARIABLE], os.environ.get(HOST_VARIABLE, LOOPBACK[0]))


def create_app(path: str | os.PathLike[str], host: str = LOOPBACK[0]) -> FastAPI:
    """The application for one index.

    Args:
        path: the index. When it is updated, the new generation is served within seconds.
        host: the address that the server binds to. On a loopback address only requests to a
            loopback name are answered, so that no foreign page can reach the server by a name of
            its own that resolves to 127.0.0.1.

    Raises:
        IndexFormatError: no index, or a damaged one.
    """
    reader = Reader(path)
    metrics = Metrics()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with reader.running():
            yield

    app = FastAPI(
        title="lexicept",
        version=version("lexicept"),
        description="Words and concepts in one inverted index: search, explain, steer.",
        lifespan=lifespan,
        # Their pages load scripts from elsewhere.
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        responses=PROBLEMS,
    )
    # The last one added is the outermost.
    if host in LOOPBACK:
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=LOOPBACK)
    app.add_middleware(Guard, metrics=metrics)
    app.add_exception_handler(RequestValidationError, refuse)

    @app.get("/search", response_model=schema.Results)
    async def search(
        query: QueryText,
        top_k: TopK = 10,
        vocabulary: VocabularyName = None,
        steer: Steer = [],  # noqa: B006 - FastAPI copies it
    ) -> Response:
        """The best documents for a query."""
        generation = reader.generation
        index, cards = generation.index, generation.cards
        steering = steered(index, vocabulary, steer)
        hits = await reader.search(index, Search(query, top_k, vocabulary, steering))
        results = ",".join(
            f'{{"rank":{rank},"score":{score},{cards.of(document_id)}}}'
            for rank, (document_id, score) in enumerate(hits, 1)
        )
        return send_json(f'{{"query":{to_json(query)},"results":[{results}]}}')

    @app.get("/query", response_model=schema.Terms)
    async def query_terms(
        query: QueryText,
        vocabulary: VocabularyName = None,
        steer: Steer = [],  # noqa: B006
    ) -> Response:
        """What a query is made of: its words and concepts, and their weights."""
        index = reader.generation.index
        steering = steered(index, vocabulary, steer)
        found = await reader.run(lambda: index.query_terms(query, vocabulary, steering))
        terms = [{**term._asdict(), "spans": spans(term.spans)} for term in found]
        return as_json({"query": query, "terms": terms})

    @app.get("/explain", response_model=schema.Explanation)
    async def explain(
        query: QueryText,
        document_id: DocumentId,
        vocabulary: VocabularyName = None,
        steer: Steer = [],  # noqa: B006
    ) -> Response:
        """Why a document has its score."""
        index = reader.generation.index
        steering = steered(index, vocabulary, steer)
        title = stored(index, document_id).title
        found = await reader.run(
            lambda: index.explain(query, document_id, vocabulary, steering=steering)
        )
        return as_json(
            {
                "query": query,
                "document_id": document_id,
                "title": title,
                "content": found.content,
                "score": found.score,
                "prior": found.prior,
                "contributions": [
                    {
                        **part._asdict(),
                        "query_spans": spans(part.query_spans),
                        "document_spans": spans(part.document_spans),
                    }
                    for part in found.contributions
                ],
            }
        )

    @app.get("/concepts", response_model=schema.Concepts)
    async def concepts(
        search: Annotated[
            str,
            Query(max_length=MAX_QUERY, description="Part of a label or of a word it fires on."),
        ] = "",
        top_k: TopK = 10,
    ) -> Response:
        """Concepts by their labels and words."""
        index = reader.generation.index
        require_vocabulary(index, "concepts")
        return as_json(await reader.run(lambda: concept_list(index, search, top_k)))

    @app.get("/concepts/{number}", response_model=schema.ConceptDetail)
    async def concept(number: int, top_k: TopK = 10) -> Response:
        """One concept, and the documents that it is most active in."""
        index = reader.generation.index
        require_dimension(index, "concepts", number)
        return as_json(await reader.run(lambda: concept_detail(index, number, top_k)))

    @app.get("/documents/{document_id:path}", response_model=schema.StoredDocument)
    async def document(document_id: str) -> Response:
        """One document; its id may hold slashes."""
        return as_json(stored(reader.generation.index, document_id)._asdict())

    @app.get("/health")
    async def health() -> schema.Health:
        """That the server answers, and what it serves."""
        index = reader.generation.index
        return schema.Health(
            version=version("lexicept"),
            generation=index.folder.name,
            documents=len(index),
            vocabularies=[
                schema.VocabularySize(name=v.name, size=v.size) for v in index.vocabularies
            ],
        )

    @app.get("/metrics", response_class=Response)
    async def prometheus() -> Response:
        """Counts and times of requests, for Prometheus."""
        return Response(metrics.text(), media_type="text/plain; version=1.0.0; charset=utf-8")

    for address, (content, media_type) in FILES.items():
        app.add_api_route(address, page_file(content, media_type), include_in_schema=False)
    return app


def refuse(_: Request, error: Exception) -> Response:
    """Every malformed request's answer: what is wrong with which parameter, without its value."""
    assert isinstance(error, RequestValidationError)
    reasons = [f"{'.'.join(map(str, one['loc'][1:]))}: {one['msg']}" for one in error.errors()]
    return JSONResponse({"detail": "; ".join(reasons)}, 422)


def require_vocabulary(index: Index, name: str) -> int:
    """The size of a vocabulary. Raises HTTPException where the index has no such one."""
    sizes = {vocabulary.name: vocabulary.size for vocabulary in index.vocabularies}
    if name not in sizes:
        raise HTTPException(404, f"this index has no {name}, only {', '.join(sizes)}")
    return sizes[name]


def require_dimension(index: Index, name: str, dimension: int) -> None:
    """Raises HTTPException where the index has no such dimension."""
    size = require_vocabulary(index, name)
    if not 0 <= dimension < size:
        raise HTTPException(404, f"no number {dimension} in {name}, which are 0 to {size - 1}")


def steered(index: Index, vocabulary: str | None, steer: Sequence[str]) -> Steering | None:
    """The factors of a request. Raises HTTPException for what this index does not have."""
    if vocabulary is not None:
        require_vocabulary(index, vocabulary)
    factors: dict[tuple[str, int], float] = {}
    for text in steer:
        name, number, factor = text.split(":")
        require_dimension(index, name, int(number))
        factors[name, int(number)] = float(factor)
    return factors or None


def stored(index: Index, document_id: str) -> Document:
    """A stored document. Raises HTTPException for an unknown id."""
    try:
        return index.document(document_id)
    except InputError:
        raise HTTPException(404, "this index has no document of that id") from None


def spans(found: Sequence[tuple[int, int]]) -> list[dict[str, int]]:
    """Spans as JSON."""
    return [{"start": start, "end": end} for start, end in found]


def as_json(content: Any) -> Response:
    """An answer whose form the types guarantee: it is not validated once more."""
    return send_json(to_json(content))


def send_json(text: str) -> Response:
    """The same of JSON."""
    return Response(text.encode(), media_type="application/json")


def page_file(content: bytes, media_type: str) -> Callable[[], Awaitable[Response]]:
    """An endpoint for one file of the page."""

    async def send() -> Response:
        return Response(content, media_type=media_type)

    return send
