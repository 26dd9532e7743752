"""The application: endpoints and page for an index, and answers to bad requests.

Malformed requests get status 422, unknown documents and concepts 404, requests without the API key
401, and requests during a full queue or index damage 503, each with a sentence.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields
from importlib.metadata import version
from ipaddress import IPv6Address, ip_address
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.middleware.trustedhost import TrustedHostMiddleware

from lexicept.errors import IndexFormatError, InputError
from lexicept.server import schema
from lexicept.server.access import KeyRequired, read_key
from lexicept.server.guard import Guard
from lexicept.server.metrics import Metrics
from lexicept.server.page import FILES, SWAGGER
from lexicept.server.reader import QUERY_CACHE_MB, BusyError, Reader
from lexicept.server.routes import router

LOOPBACK = ("127.0.0.1", "localhost", "::1", "[::1]")

RETRY_SECONDS = 1
"""Value of Retry-After in answers with status 503."""

PROBLEMS: dict[int | str, dict[str, Any]] = {
    404: {"model": schema.Problem, "description": "This index has no such thing."},
    422: {"model": schema.Problem, "description": "A malformed request."},
}
NO_KEY: dict[int | str, dict[str, Any]] = {
    401: {"model": schema.Problem, "description": "The API key is missing or wrong."}
}


SITE_PATH = "path_without_suffix"


@dataclass(frozen=True)
class ServerSettings:
    """Settings of a server; each is also an environment variable, such as
    LEXICEPT_QUERY_CACHE_MB."""

    index: str
    """The path of the index."""
    host: str = LOOPBACK[0]
    """The server's address."""
    query_cache_mb: int = QUERY_CACHE_MB
    """Memory for queries that the model encoded, in MB; 0 for none."""
    api_key_file: str | None = None
    """A file with the API key; by default no key is required."""
    document_url: str | None = None
    """A template of documents' addresses, for links of the page."""

    def to_environment(self) -> dict[str, str]:
        """Return environment variables, for workers."""
        values = {variable(field.name): getattr(self, field.name) for field in fields(self)}
        return {name: str(value) for name, value in values.items() if value is not None}

    @classmethod
    def from_environment(cls) -> ServerSettings:
        """Read environment variables. Raises InputError without LEXICEPT_INDEX, and for a memory
        that is no whole number."""
        names = [field.name for field in fields(cls) if variable(field.name) in os.environ]
        values: dict[str, Any] = {name: os.environ[variable(name)] for name in names}
        if "index" not in values:
            raise InputError(f"{variable('index')} must name the index to serve")
        memory = values.setdefault("query_cache_mb", str(QUERY_CACHE_MB))
        if not (memory.isascii() and memory.isdigit()):
            problem = f"is a whole number of MB, not {memory!r:.40}"
            raise InputError(f"{variable('query_cache_mb')} {problem}")
        return cls(**{**values, "query_cache_mb": int(memory)})


def variable(setting: str) -> str:
    """Return the environment variable of a setting."""
    return f"LEXICEPT_{setting.upper()}"


def from_environment() -> FastAPI:
    """Return the application for any ASGI server; ``ServerSettings`` lists the variables."""
    options = vars(ServerSettings.from_environment()).copy()
    key_file, memory = options.pop("api_key_file"), options.pop("query_cache_mb")
    return create_app(
        options.pop("index"),
        options.pop("host"),
        api_key=None if key_file is None else read_key(key_file),
        query_cache=memory * 2**20,
        **options,
    )


def create_app(
    path: str | os.PathLike[str],
    host: str = LOOPBACK[0],
    *,
    api_key: str | None = None,
    document_url: str | None = None,
    **reader_options: Any,
) -> FastAPI:
    """Return the application for an index.

    Args:
        path: the index. New generations are served within seconds.
        host: the server's address. On a loopback address only requests to loopback names are
            answered: no foreign page can reach the server under a name of its own.
        api_key: the key in every request, also for the page; None: no key.
        document_url: a template of documents' addresses, see ``checked_template``; None: no links.
        reader_options: arguments of ``Reader``, whose errors are raised.
    """
    metrics = Metrics()
    reader = Reader(path, metrics=metrics, **reader_options)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with reader.running():
            yield

    app = FastAPI(
        title="lexicept",
        version=version("lexicept"),
        description="Words and concepts in one inverted index: search, explain, steer.",
        lifespan=lifespan,
        # Their pages load scripts from elsewhere; /docs is the page's own.
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        responses=PROBLEMS if api_key is None else PROBLEMS | NO_KEY,
    )
    app.state.reader = reader
    app.state.metrics = metrics
    app.state.document_url = checked_template(document_url)
    # The last one added is the outermost.
    if api_key is not None:
        app.add_middleware(KeyRequired, key=api_key)
    if is_loopback(host):
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=[*LOOPBACK, host, f"[{host}]"])
    app.add_middleware(Guard, metrics=metrics)
    app.add_exception_handler(RequestValidationError, refuse)
    app.add_exception_handler(InputError, refuse)
    app.add_exception_handler(BusyError, turn_away)
    app.add_exception_handler(IndexFormatError, fail)
    app.add_exception_handler(405, refuse_method)
    app.include_router(router)
    for address, (content, media_type) in (FILES | SWAGGER).items():
        app.add_api_route(address, page_file(content, media_type), include_in_schema=False)
    return app


def checked_template(template: str | None) -> str | None:
    """Return a template of documents' addresses, with ``{path}``, the id, or
    ``{path_without_suffix}``, the id as sites show files: without ``.md``, ``index`` and
    ``README``. Raises InputError for another template."""
    if template is None:
        return None
    names = re.findall(r"{(.*?)}", template)
    if not template.startswith(("http://", "https://")) or names not in (["path"], [SITE_PATH]):
        form = f"https://…/{{path}} or https://…/{{{SITE_PATH}}}"
        raise InputError(f"document_url must be like {form}, not {template!r:.80}")
    return template


def is_loopback(host: str) -> bool:
    """Return True if a server bound to an address or name serves this machine alone."""
    try:
        address = ip_address(host)
    except ValueError:
        return host.lower() in LOOPBACK
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback


def refuse(_: Request, error: Exception) -> Response:
    """Answer a malformed request, or a condition that does not fit the index, without values."""
    if not isinstance(error, RequestValidationError):
        return JSONResponse({"detail": str(error)}, 422)
    reasons = [
        f"{'.'.join(map(str, problem['loc'][1:]))}: {problem['msg']}" for problem in error.errors()
    ]
    return JSONResponse({"detail": "; ".join(reasons)}, 422)


def refuse_method(_: Request, __: Exception) -> Response:
    """Answer a request to change something: all addresses are read-only."""
    return JSONResponse({"detail": "Method Not Allowed"}, 405, {"Allow": "GET, HEAD"})


def turn_away(_: Request, error: Exception) -> Response:
    """Answer a request during a full queue."""
    reason = "too many requests wait for the model: try again later"
    return JSONResponse({"detail": reason}, 503, {"Retry-After": str(RETRY_SECONDS)})


def fail(request: Request, error: Exception) -> Response:
    """Answer a request after damage to the index."""
    reason = request.app.state.reader.reason(error)
    return JSONResponse({"detail": f"the index is damaged: {reason}"}, 503)


def page_file(content: bytes, media_type: str) -> Callable[[], Awaitable[Response]]:
    """Return the endpoint of a file of the page."""

    async def send() -> Response:
        return Response(content, media_type=media_type)

    return send
