"""Serve an index over HTTP."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from lexicept.errors import InputError, check_count, require
from lexicept.pipelines.opened import IndexLike, reader_of


def serve(
    index: IndexLike,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    workers: int = 1,
    engine: str = "exact",
) -> None:
    """Serve a page to search, explain and steer, and an HTTP API, until interrupted.

    Changes of the index are served within seconds. Each worker loads the concept model.

    Args:
        index: an opened index, or the path of one.
        host: the address to bind to; "0.0.0.0" lets other machines in.
        port: the port; 0 takes a free one.
        workers: processes that share the port.
        engine: the engine that searches a path; an opened index keeps its own.

    Raises:
        InputError: the address can't be bound to, the index has no such engine, or the extra
            ``serve`` is not installed, or ``concepts`` for an index that has them.
        IndexFormatError: the path holds no index, or a damaged one.
    """
    require("serve", "fastapi", "prometheus_client", "uvicorn")
    import uvicorn

    from lexicept.server.app import ENGINE_VARIABLE, HOST_VARIABLE, INDEX_VARIABLE

    reader = reader_of(index, engine=engine)
    check_count("workers", workers)
    _check_free(host, port)
    if "concepts" in reader.settings:
        require("concepts", "sentence_transformers")
    variables = {
        INDEX_VARIABLE: str(reader.path.resolve()),
        ENGINE_VARIABLE: reader.searcher.name,
        HOST_VARIABLE: host,
    }
    del reader  # each worker opens the index itself
    if "OMP_NUM_THREADS" not in os.environ:
        variables["OMP_NUM_THREADS"] = str(max(1, (os.cpu_count() or 1) // workers))
    with ExitStack() as stack:
        if workers > 1:
            folder = tempfile.TemporaryDirectory(prefix="lexicept-")
            variables["PROMETHEUS_MULTIPROC_DIR"] = stack.enter_context(folder)
        # Workers are fresh processes: what they need to know is in the environment.
        stack.enter_context(_environment(variables))
        uvicorn.run(
            "lexicept.server.app:from_environment",
            factory=True,
            host=host,
            port=port,
            workers=workers,
            access_log=False,
        )


def _check_free(host: str, port: int) -> None:
    """Raise InputError for an address that can't be bound to."""
    try:
        # As uvicorn binds: an address that was served a moment ago may be taken again.
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except (OSError, OverflowError, TypeError) as error:
        raise InputError(f"can't serve at {host}:{port}: {error}") from error


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Set environment variables for the time of the block."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
