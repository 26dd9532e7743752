"""The command that writes a report about an index."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lexicept.cli.common import IndexArgument, JsonOption, print_report, require
from lexicept.cli.configuration import ConfigOption


def report(
    index: IndexArgument,
    out: Annotated[Path, typer.Option(help="The HTML file to write; replaced where it exists.")],
    queries: Annotated[
        str | None,
        typer.Option(
            help="Judged queries: a BEIR folder or an ir_datasets name. By default sentences of "
            "the documents look for their documents."
        ),
    ] = None,
    split: Annotated[str, typer.Option(help="Which judgements.")] = "test",
    against: Annotated[
        Path | None, typer.Option(help="Another index of the same documents, to compare with.")
    ] = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Describe an index in one HTML file: topics, cost, posting lists, results, comparisons.

    The file is complete: it needs no network, and no script to be read.
    """
    require("report", "matplotlib")
    from lexicept.corpora import read_qrels, read_queries
    from lexicept.index.reader import IndexReader
    from lexicept.progress import ProgressBars
    from lexicept.reports import write_report

    opened = IndexReader.open(index)
    other = None if against is None else IndexReader.open(against)
    asked = [] if queries is None else list(read_queries(queries, split))
    judged = [] if queries is None else list(read_qrels(queries, split))
    with ProgressBars() as progress:
        write_report(opened, out, asked, judged, other, progress)
    print_report({"file": str(out), "bytes": out.stat().st_size}, as_json)
