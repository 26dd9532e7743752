"""The command that writes an index for other engines: export."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from lexicept.cli.common import print_report


def export(
    index: Path,
    *,
    format: Literal["anserini", "ciff", "opensearch", "elasticsearch", "qdrant"],  # noqa: A002
    out: Path,
    bits: int = 8,
    queries: str | None = None,
    split: str = "test",
    restart: bool = False,
    as_json: bool = False,
) -> None:
    """Write an index in the format of another engine, which needs no lexicept to load it.

    Re-running the command resumes an interrupted export.

    Args:
        format: engine to write for.
        bits: bits of a weight, 1 to 16, for anserini and ciff, which take integers.
        queries: queries to write too, in the engine's format: a BEIR folder or an ir_datasets name.
    """
    from lexicept.corpora import read_queries
    from lexicept.exports import (
        CIFF,
        Anserini,
        Elasticsearch,
        ExportFormat,
        OpenSearch,
        Qdrant,
        export_index,
        left_out,
    )
    from lexicept.index.reader import IndexReader
    from lexicept.progress import ProgressLine

    forms: list[ExportFormat] = [Anserini(), CIFF(), Elasticsearch(), OpenSearch(), Qdrant()]
    form = {form.name: form for form in forms}[format]
    opened = IndexReader.open(index)
    query_list = [] if queries is None else list(read_queries(queries, split))
    with ProgressLine() as progress:
        export_index(opened, form, out, bits, query_list, progress, restart=restart)
    files = [path for path in out.rglob("*") if path.is_file()]
    report = {
        "folder": str(out),
        "documents": len(opened),
        "queries": (out / form.queries_file).read_bytes().count(b"\n") if query_list else 0,
        "files": len(files),
        "bytes": sum(path.stat().st_size for path in files),
        "left out": left_out(opened, form),
    }
    print_report(report, as_json)
