"""The application: endpoints and page for an index, and answers to bad requests.

Malformed requests get status 422, unknown documents and concepts 404, requests without the API key
401, and requests during a full queue or index damage 503, each with a sentence.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse
from fastapi.staticfiles import StaticFiles
from starlette.middleware.trustedhost import TrustedHostMiddleware

from lexicept.errors import IndexFormatError, InputError
from lexicept.server import schema
from lexicept.server.access import KeyRequired, read_key
from lexicept.server.guard import Guard
from lexicept.server.reader import QUERY_CACHE_MB, BusyError, Reader
from lexicept.server.routes import router

ENVIRONMENT = "LEXICEPT_SERVER"
"""Environment variable with the arguments of ``create_app`` as a JSON object, for workers."""

PAGE = Path(__file__).with_name("page")
"""The files of the page."""

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


def from_environment() -> FastAPI:
    """Return the application for any ASGI server. Raises InputError without settings."""
    if ENVIRONMENT not in os.environ:
        raise InputError(f"{ENVIRONMENT} must hold the arguments of create_app as a JSON object")
    return create_app(**json.loads(os.environ[ENVIRONMENT]))


def create_app(
    path: str | os.PathLike[str],
    host: str = LOOPBACK[0],
    *,
    query_cache_mb: int = QUERY_CACHE_MB,
    api_key_file: str | os.PathLike[str] | None = None,
    document_url: str | None = None,
) -> FastAPI:
    """Return the application for an index.

    Args:
        path: the index. New generations are served within seconds.
        host: the server's address. On a loopback address only requests to loopback names are
            answered: no foreign page can reach the server under a name of its own.
        query_cache_mb: memory for queries that the model encoded, in MB; 0 for none.
        api_key_file: a file with the key in every request, also for the page; None: no key.
        document_url: a template of documents' addresses, see ``checked_template``; None: no links.

    Raises:
        InputError: no key in the file, or another template.
        IndexFormatError: no index, or a damaged index.
    """
    api_key = None if api_key_file is None else read_key(api_key_file)
    reader = Reader(path, query_cache=query_cache_mb * 2**20)

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
    app.state.document_url = checked_template(document_url)
    # The last one added is the outermost.
    if api_key is not None:
        app.add_middleware(KeyRequired, key=api_key)
    if is_loopback(host):
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=[*LOOPBACK, host, f"[{host}]"])
    app.add_middleware(Guard)
    app.add_exception_handler(RequestValidationError, refuse)
    app.add_exception_handler(InputError, refuse)
    app.add_exception_handler(BusyError, turn_away)
    app.add_exception_handler(IndexFormatError, fail)
    app.add_exception_handler(405, refuse_method)
    app.include_router(router)
    app.add_api_route("/docs", swagger, include_in_schema=False)
    # The page, and Swagger's own files.
    files = StaticFiles(directory=PAGE, packages=[("fastapi_offline", "static")], html=True)
    app.mount("/", files)
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


async def swagger() -> Response:
    return FileResponse(PAGE / "docs.html")
