"""Connections: bounds on number, on a client's bytes and on a client's time.

uvicorn's fast parser has no bounds: a client could fill the memory with headers, and a few slow
clients could take all file descriptors.
"""

from __future__ import annotations

import asyncio
import resource
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

MOST_BYTES = 2**16
"""Most bytes of a request; the longest query that is allowed takes 48,000."""

CLIENT_SECONDS = 10.0
"""Seconds in which a client must send a whole request, or take some of an answer."""

MOST_CONNECTIONS = 1_000
"""Most connections of a process; a new one closes the one that waits for its client longest."""

OTHER_FILES = 96
"""File descriptors that connections leave to the index, twice while it is opened again, and the
rest of the process."""

TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-length: 0\r\nconnection: close\r\n\r\n"
)

_WAITING: dict[Connection, asyncio.TimerHandle] = {}
"""The timer of each connection whose client has to send or to read, the longest wait first."""


class Connection(HttpToolsProtocol):
    """uvicorn's connection, with bounds."""

    _received = 0
    """Bytes of the request."""
    _refused = False
    _task: asyncio.Task[None] | None = None
    """Answers the request that came last."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._application = self.app
        self.app = self._answer

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the application, until the client leaves."""
        self._task = task = asyncio.current_task()
        try:
            await self._application(scope, receive, send)
        except asyncio.CancelledError:
            if not self.transport.is_closing():
                raise
        finally:
            if self._task is task:  # a pipelined request may have begun
                self._task = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection, in place of another if there are too many."""
        super().connection_made(transport)
        self._wait_for_client()
        if len(self.connections) > most_connections():
            oldest = next(iter(_WAITING))
            oldest._stop_waiting()
            oldest.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Parse a client's bytes, within the bound of a request."""
        self._received += len(data)
        if self._refused:
            return
        if self._received <= MOST_BYTES:
            super().data_received(data)
        elif self.cycle is None or self.cycle.response_complete:
            # Reading on, until the client is done or its time is up, lets it see the answer.
            self._refused = True
            self.transport.write(TOO_LARGE)
            self.transport.write_eof()
        else:
            self.transport.abort()

    def on_headers_complete(self) -> None:
        """Begin to answer."""
        super().on_headers_complete()
        if not self.flow.write_paused:
            self._stop_waiting()

    def on_response_complete(self) -> None:
        """Wait for the client, unless another request is there already."""
        super().on_response_complete()
        if self.cycle.response_complete:
            self._received = 0
            self._wait_for_client()

    def pause_writing(self) -> None:
        """Wait for the client to read."""
        super().pause_writing()
        self._wait_for_client()

    def resume_writing(self) -> None:
        """Resume the answer."""
        super().resume_writing()
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection, and cancel the computation of the answer."""
        self._stop_waiting()
        super().connection_lost(exc)
        if self._task is not None:
            self._task.cancel()

    def _wait_for_client(self) -> None:
        self._stop_waiting()
        unsent = self.transport.get_write_buffer_size()
        _WAITING[self] = self.loop.call_later(CLIENT_SECONDS, self._time_is_up, unsent)

    def _stop_waiting(self) -> None:
        if (timer := _WAITING.pop(self, None)) is not None:
            timer.cancel()

    def _time_is_up(self, unsent_before: int) -> None:
        if 0 < self.transport.get_write_buffer_size() < unsent_before:
            self._wait_for_client()  # it reads, slowly
        else:
            self.transport.abort()  # closing would wait for it to read


def most_connections() -> int:
    """Return the most connections of this process, fewer with few file descriptors."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return MOST_CONNECTIONS
    return max(16, min(MOST_CONNECTIONS, files - OTHER_FILES))
