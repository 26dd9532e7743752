"""The command that serves an index to language models: mcp."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lexicept.cli.common import (
    IndexArgument,
    QueryEncoder,
    QueryEncoderOption,
    SearchEngineOption,
    option_names,
)
from lexicept.cli.configuration import ConfigOption
from lexicept.errors import require


def mcp(
    index: IndexArgument,
    http: Annotated[
        bool,
        typer.Option(
            "--http", help="Serve http://127.0.0.1:PORT/mcp instead of standard input and output."
        ),
    ] = False,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of --http; 0 takes a free one.")
    ] = 8000,
    engine: SearchEngineOption = "exact",
    query_encoder: QueryEncoderOption = QueryEncoder.model,
    api_key_file: Annotated[
        Path | None, typer.Option(help="File with the key that every request of --http must carry.")
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Serve an index to language models as tools of the Model Context Protocol (MCP).

    A client starts this command by itself and talks to its standard input and output. The tools
    search, explain, read documents, list concepts and steer.
    """
    require("mcp", "mcp")
    from lexicept.integrations.mcp import serve

    with option_names():
        serve(
            index,
            http=http,
            port=port,
            engine=engine,
            query_encoder=query_encoder.value,
            api_key_file=api_key_file,
        )
