"""The command that writes an index in the format of another engine: export."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from lexicept.cli.common import IndexArgument, JsonOption, RestartOption, print_report
from lexicept.cli.configuration import ConfigOption
from lexicept.errors import InputError


class FormatChoice(StrEnum):
    """Formats of other engines."""

    anserini = "anserini"
    ciff = "ciff"
    opensearch = "opensearch"
    elasticsearch = "elasticsearch"
    qdrant = "qdrant"


def export(
    index: IndexArgument,
    format_: Annotated[FormatChoice, typer.Option("--format", help="Engine to write for.")],
    out: Annotated[Path, typer.Option(help="Folder to write; must not exist.")],
    bits: Annotated[
        int,
        typer.Option(
            min=1, max=16, help="Bits per weight for anserini and ciff, which take integers."
        ),
    ] = 8,
    queries: Annotated[
        str | None,
        typer.Option(
            help="Queries to write too, in the engine's format: a BEIR folder or an ir_datasets "
            "name."
        ),
    ] = None,
    split: Annotated[str, typer.Option(help="Split of --queries.")] = "test",
    filter_: Annotated[
        str | None,
        typer.Option(
            "--filter",
            help="Which documents the written --queries may find, by their fields; for "
            "opensearch, elasticsearch and qdrant.",
        ),
    ] = None,
    config: ConfigOption = None,
    restart: RestartOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write an index in the format of another engine, which needs no lexicept to load it.

    Re-running the command resumes an interrupted export.
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
    )
    from lexicept.index.reader import IndexReader
    from lexicept.progress import ProgressBars

    filtered: list[ExportFormat] = [Elasticsearch(filter_), OpenSearch(filter_), Qdrant(filter_)]
    forms: list[ExportFormat] = filtered if filter_ is not None else [Anserini(), CIFF(), *filtered]
    form = {form.name: form for form in forms}.get(format_.value)
    if form is None:
        raise InputError(f"--filter: {format_.value} keeps no fields")
    opened = IndexReader.open(index)
    asked = [] if queries is None else list(read_queries(queries, split))
    with ProgressBars() as progress:
        export_index(opened, form, out, bits, asked, progress, restart=restart)
    files = [path for path in out.rglob("*") if path.is_file()]
    report = {
        "folder": str(out),
        "documents": len(opened),
        "queries": len(asked),
        "files": len(files),
        "bytes": sum(path.stat().st_size for path in files),
    }
    print_report(report, as_json)
