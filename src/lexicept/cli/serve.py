"""The command that puts an index behind HTTP: serve."""

from __future__ import annotations

from typing import Annotated

import typer

from lexicept.cli.common import IndexArgument, SearchEngineOption, require
from lexicept.cli.configuration import ConfigOption


def serve(
    index: IndexArgument,
    host: Annotated[
        str, typer.Option(help="Address to bind to; 0.0.0.0 lets other machines in.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8000,
    workers: Annotated[int, typer.Option(min=1, help="Processes that share the port.")] = 1,
    engine: SearchEngineOption = "exact",
    config: ConfigOption = None,
) -> None:
    """Serve a page to search, explain and steer, and an HTTP API (/openapi.json).

    Updates of the index are served within seconds. Each worker loads the model of the concepts.
    """
    require("serve", "fastapi", "prometheus_client", "uvicorn")
    import os
    import tempfile
    from contextlib import ExitStack

    import uvicorn

    from lexicept.index.reader import IndexReader

    if "concepts" in (v.name for v in IndexReader.open(index, engine=engine).vocabularies):
        require("concepts", "sentence_transformers")
    # Workers are fresh processes: what they need to know is in the environment.
    os.environ["LEXICEPT_INDEX"] = str(index.resolve())
    os.environ["LEXICEPT_ENGINE"] = engine
    os.environ["LEXICEPT_HOST"] = host
    cores = os.cpu_count() or 1
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores // workers)))
    with ExitStack() as stack:
        if workers > 1:
            folder = tempfile.TemporaryDirectory(prefix="lexicept-")
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = stack.enter_context(folder)
        uvicorn.run(
            "lexicept.server.app:from_environment",
            factory=True,
            host=host,
            port=port,
            workers=workers,
            access_log=False,
        )
