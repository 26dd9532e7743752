"""Serve an index over HTTP."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest.mock import patch

from lexicept.checks import Count, Whole, checked_arguments
from lexicept.corpora import is_folder_of_files
from lexicept.errors import InputError, ParameterError
from lexicept.index.manifest import is_index, older_version, read_manifest
from lexicept.kernels.compiled import num_processors
from lexicept.pipelines.opened import IndexLike, reader_of

LOW_PRIORITY = 10
"""Priority (nice) of the process that builds an index beside the server."""


@checked_arguments
def serve(
    index: IndexLike,
    *,
    host: str = "127.0.0.1",
    port: Whole = 8000,
    workers: Count = 1,
    query_cache_mb: Whole = 32,
    api_key_file: str | os.PathLike[str] | None = None,
    document_url: str | None = None,
    include: Sequence[str] = (),
) -> None:
    """Serve a page to search, explain and steer, and an HTTP API, until interrupted.

    A folder of documents is indexed beside it, in ``FOLDER.index``, by a process of low priority:
    searches by words are served after seconds, concepts once they are there. Later calls bring the
    index into step with the folder. Changes of an index are served within seconds. Each worker
    loads the concept model.

    Args:
        index: an opened index, the path of one, or a folder of documents.
        host: the address to bind to; "0.0.0.0" lets other machines in.
        port: the port; 0 takes a free port.
        workers: processes behind the port.
        query_cache_mb: memory of each worker for queries that the model encoded, in MB; 0 for none.
        api_key_file: a file with the API key, a single line; by default no key is required.
        document_url: a template of the addresses that the page links to:
            ``https://example.org/docs/{path}`` for ids as they are, ``{path_without_suffix}`` for
            ``guide/`` of ``guide/index.md``; a document's field ``url`` comes before it.
        include: patterns of further files of a folder to read, see ``lexicept.build``.

    Raises:
        InputError: an unusable address or ``document_url``, a number out of range, no
            key in the file, or a folder that can't be indexed.
        IndexFormatError: no index, or a damaged index.

    Examples:
        >>> lexicept.serve("pets.index")  # doctest: +SKIP
    """
    import uvicorn

    from lexicept.server.access import read_key
    from lexicept.server.app import ENVIRONMENT, checked_template
    from lexicept.server.connections import Connection

    check_free(host, port)
    if api_key_file is not None:
        read_key(api_key_file)
    checked_template(document_url)
    with ExitStack() as stack:
        given = Path(index) if isinstance(index, str | os.PathLike) else None
        if given and is_folder_of_files(given) and not is_index(given):
            index = stack.enter_context(_indexed_beside(given, include))
        elif include:
            raise ParameterError("{0} chooses among files, and this is an index", "include")
        reader = reader_of(index)
        path = index if isinstance(index, str | os.PathLike) else reader.path
        del reader  # each worker opens the index itself
        settings = {
            "path": os.path.abspath(path),
            "host": host,
            "query_cache_mb": query_cache_mb,
            "api_key_file": None if api_key_file is None else os.path.abspath(api_key_file),
            "document_url": document_url,
        }
        variables = {ENVIRONMENT: json.dumps(settings)}
        if "OMP_NUM_THREADS" not in os.environ:
            variables["OMP_NUM_THREADS"] = str(max(1, num_processors() // workers))
        if workers > 1:
            folder = tempfile.TemporaryDirectory(prefix="lexicept-")
            variables["PROMETHEUS_MULTIPROC_DIR"] = stack.enter_context(folder)
        # Workers are fresh processes: the environment holds the settings.
        stack.enter_context(patch.dict(os.environ, variables, PYTHONSAFEPATH="1"))
        uvicorn.run(
            "lexicept.server.app:from_environment",
            factory=True,
            host=host,
            port=port,
            workers=workers,
            access_log=False,
            http=Connection,
            ws="none",
        )


@contextmanager
def _indexed_beside(folder: str | os.PathLike[str], include: Sequence[str]) -> Iterator[Path]:
    """Yield the index of a folder of documents, as soon as it can be searched. Until the block
    ends, another process builds it, or brings it into step with the folder."""
    path = Path(f"{os.path.abspath(folder)}.index")
    if path.exists() and older_version(path) is None:
        read_manifest(path)  # or the process would tell of it too
    run = "from lexicept.cli import main; main()"
    command = [sys.executable, "-P", "-c", run, "sync", os.fspath(folder), str(path)]
    command += [f"--include={pattern}" for pattern in include]
    plain = {**os.environ, "TERM": "dumb"}  # the server writes to the terminal too
    # A session of its own: Ctrl-C in the terminal ends the server, and the server the process.
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, env=plain, start_new_session=True
    ) as sync:
        try:
            os.setpriority(os.PRIO_PROCESS, sync.pid, LOW_PRIORITY)
            while not is_index(path) or older_version(path) is not None:
                if sync.poll() is not None:
                    raise InputError(f"{os.fspath(folder)}: no index, and none could be built")
                time.sleep(0.05)
            yield path
        finally:
            sync.send_signal(signal.SIGINT)


def check_free(host: str, port: int) -> None:
    """Raise InputError for an unusable address."""
    try:
        # As uvicorn binds: an address that was served a moment ago may be taken again.
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except (OSError, OverflowError, TypeError) as error:
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            raise InputError(
                f"can't serve at {host}:{port}: another program listens there; choose another "
                "port, or 0 for a free one"
            ) from None
        raise InputError(f"can't serve at {host}:{port}: {error}") from error
