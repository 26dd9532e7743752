"""Security headers and metrics for every answer; HEAD for every address."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from starlette.responses import PlainTextResponse

from lexicept.server.metrics import REQUESTS, SECONDS

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS = [
    # The page's own files and this server's API, nothing else: documents are not trusted.
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        b"connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    # An update of the index changes every answer.
    (b"cache-control", b"no-cache"),
]

GONE = 499
"""Status counted for a request whose client left before the whole answer was sent: not in the HTTP
standard, but common in other servers' logs."""


class Guard:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start = time.perf_counter()
        status = 500
        head = scope["method"] == "HEAD"
        # A copy: the server must still know that the request was for the head.
        request = {**scope, "method": "GET"} if head else scope
        app = self.app
        if sum(name == b"host" for name, _ in scope["headers"]) > 1:
            app = PlainTextResponse("A request has one Host header.", 400)

        async def send_guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *HEADERS]
            elif head:
                message = {**message, "body": b""}
            await send(message)

        try:
            await app(request, receive, send_guarded)
        except asyncio.CancelledError:
            status = GONE
            raise
        finally:
            route = getattr(request.get("route"), "path", "unknown")
            REQUESTS.labels(route, status).inc()
            SECONDS.labels(route).observe(time.perf_counter() - start)
