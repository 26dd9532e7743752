"""The command that builds another engine beside an index: engine."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from lexicept.cli.common import IndexArgument, JsonOption, print_report
from lexicept.cli.configuration import ConfigOption


class EngineChoice(StrEnum):
    """Engines that are built beside an index."""

    seismic = "seismic"


def engine(
    index: IndexArgument,
    name: Annotated[
        EngineChoice, typer.Argument(metavar="ENGINE", help="Engine to build: seismic.")
    ],
    recall: Annotated[
        float | None,
        typer.Option(
            help="Seismic: share of the 10 best documents that it must find, 0.95 by default. A "
            "lower share is faster; 1 prunes nothing."
        ),
    ] = None,
    queries: Annotated[
        str | None,
        typer.Option(
            help="Seismic: queries to tune it on, a BEIR folder or an ir_datasets name. Default: "
            "sentences of the documents."
        ),
    ] = None,
    split: Annotated[str, typer.Option(help="Split of --queries.")] = "train",
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Build another engine beside an index; `lexicept search --engine` searches with it.

    An existing engine is replaced once the new one is complete. After a change of the index, build
    the engine again.
    """
    import time

    from lexicept.corpora import read_queries
    from lexicept.index import updates
    from lexicept.index.reader import IndexReader
    from lexicept.progress import ProgressBars

    settings = {"recall": 0.95 if recall is None else recall}
    texts = [] if queries is None else [query.text for query in read_queries(queries, split)]
    start = time.monotonic()
    with ProgressBars() as progress:
        manifest = updates.add_engine(index, name.value, settings, texts, progress)
    seconds = round(time.monotonic() - start, 1)
    built = IndexReader.open(index, engine=name.value).searcher
    facts = {key: value for key, value in manifest["facts"].items() if "scale" not in key}
    report = {"engine": name.value, **facts, "bytes": built.size, "seconds": seconds}
    print_report({key: value for key, value in report.items() if value is not None}, as_json)
