"""The command that writes a report about an index: report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lexicept.cli.common import IndexArgument, JsonOption, print_report
from lexicept.cli.configuration import ConfigOption


def report(
    index: IndexArgument,
    out: Annotated[Path, typer.Option(help="HTML file to write; an existing one is replaced.")],
    queries: Annotated[
        str | None,
        typer.Option(
            help="Judged queries to measure: a BEIR folder or an ir_datasets name. Default: "
            "sentences of the documents, as pseudo-queries."
        ),
    ] = None,
    split: Annotated[str, typer.Option(help="Split of the judged queries.")] = "test",
    against: Annotated[
        Path | None, typer.Option(help="Another index of the same documents to compare with.")
    ] = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write an HTML report about an index: topics and results, then cost and posting lists.

    The report is one file that works offline and without scripts.
    """
    from lexicept.pipelines.report import report

    path = report(index, out, queries=queries, split=split, against=against, progress=True)
    print_report({"file": str(path), "bytes": path.stat().st_size}, as_json)
