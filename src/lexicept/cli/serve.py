"""Commands that serve an index over HTTP: serve, demo."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lexicept.cli.common import (
    IndexArgument,
    PrecisionChoice,
    QueryEncoder,
    QueryEncoderOption,
    SearchEngineOption,
)
from lexicept.cli.configuration import ConfigOption


def serve(
    index: IndexArgument,
    host: Annotated[
        str, typer.Option(help="Address to bind to; 0.0.0.0 lets other machines in.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")
    ] = 8000,
    workers: Annotated[int, typer.Option(min=1, help="Processes that share the port.")] = 1,
    engine: SearchEngineOption = "exact",
    query_encoder: QueryEncoderOption = QueryEncoder.model,
    query_cache_mb: Annotated[
        int,
        typer.Option(min=0, help="Memory of a worker for queries that were encoded; 0: none."),
    ] = 32,
    query_precision: Annotated[
        PrecisionChoice,
        typer.Option(
            help="Number format in which models read queries; bfloat16 is used only where it is "
            "faster, and changes scores a little."
        ),
    ] = PrecisionChoice.float32,
    api_key_file: Annotated[
        Path | None, typer.Option(help="File with the key that every request must carry.")
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Serve a search page and an HTTP API (/openapi.json) until interrupted.

    The page searches, explains and steers. Changes of the index are served within seconds. Each
    worker loads the concept model, unless queries are looked up.
    """
    from lexicept.pipelines.serve import serve

    serve(
        index,
        host=host,
        port=port,
        workers=workers,
        engine=engine,
        query_encoder=query_encoder.value,
        query_cache_mb=query_cache_mb,
        query_precision=query_precision.value,
        api_key_file=api_key_file,
    )


def demo(
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")
    ] = 8000,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")
    ] = True,
    folder: Annotated[
        Path | None,
        typer.Option(help="Folder for the indexes. Default: one in the user's cache."),
    ] = None,
) -> None:
    """Search Python's own documentation on a page, without building anything first.

    Its words are indexed in seconds, its concepts meanwhile, once.
    """
    from rich.console import Console

    from lexicept.pipelines.demo import demo

    demo(folder=folder, port=port, browser=browser, say=Console(stderr=True).print)
