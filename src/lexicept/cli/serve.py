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


@takes("lexicept.integrations.mcp:serve")
def mcp(index: Path, **options: Any) -> None:
    """Serve an index to language models as tools of the Model Context Protocol (MCP).

    A client starts this command by itself and talks to its standard input and output. The tools
    search, explain, read documents, list concepts and steer.
    """
    require("mcp", "mcp")
    from lexicept.integrations.mcp import serve

    serve(index, **options)
