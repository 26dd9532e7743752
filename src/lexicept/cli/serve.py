"""Commands that serve an index: serve, mcp."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lexicept.cli.declarations import takes
from lexicept.errors import require


@takes("lexicept.pipelines.serve:serve")
def serve(**options: Any) -> None:
    """Serve a search page and an HTTP API (/openapi.json) until interrupted.

    INDEX may be a folder of documents: it is indexed in FOLDER.index while words are searched. The
    page searches, explains and steers. Changes of the index are served within seconds. Each
    worker loads the concept model.
    """
    from lexicept.pipelines.serve import serve

    serve(**options)


def mcp(
    index: Path, *, http: bool = False, port: int = 8000, api_key_file: Path | None = None
) -> None:
    """Serve an index to language models as tools of the Model Context Protocol (MCP).

    A client starts this command by itself and talks to its standard input and output. The tools
    search, explain, read documents, list concepts and steer.

    Args:
        http: serve streamable HTTP at http://127.0.0.1:PORT/mcp until interrupted.
        port: port of HTTP; 0 takes a free one.
        api_key_file: file of one line with the key of requests over HTTP.
    """
    require("mcp", "mcp")
    from lexicept.integrations.mcp import serve

    serve(index, http=http, port=port, api_key_file=api_key_file)
