"""The command that builds another engine beside an index: engine."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from lexicept.cli.common import IndexArgument, JsonOption, RestartOption, print_report
from lexicept.cli.configuration import ConfigOption
from lexicept.errors import InputError


class EngineChoice(StrEnum):
    """What is built."""

    seismic = "seismic"
    milvus = "milvus"


def engine(
    index: IndexArgument,
    name: Annotated[EngineChoice, typer.Argument(metavar="ENGINE", help="seismic or milvus.")],
    recall: Annotated[
        float | None,
        typer.Option(
            help="Of Seismic: the part of the 10 best documents to find, .95 by default; the lower "
            "the faster. 1 prunes nothing."
        ),
    ] = None,
    queries: Annotated[
        str | None,
        typer.Option(
            help="To tune Seismic on: a BEIR folder or an ir_datasets name. By default sentences "
            "of the documents."
        ),
    ] = None,
    split: Annotated[str, typer.Option(help="Which of the queries.")] = "train",
    uri: Annotated[
        str | None,
        typer.Option(
            help="Of a Milvus server, such as http://127.0.0.1:19530 (LEXICEPT_MILVUS_TOKEN: its "
            "credentials). By default a file beside the index."
        ),
    ] = None,
    config: ConfigOption = None,
    restart: RestartOption = False,
    as_json: JsonOption = False,
) -> None:
    """Build another engine from an index, beside it; search takes it with --engine.

    One that is there is replaced once the new one is whole. Re-running the command resumes an
    interrupted load into Milvus. After an update of the index the engine must be rebuilt.
    """
    import time

    from lexicept.corpora import read_queries
    from lexicept.index import updates
    from lexicept.index.reader import IndexReader
    from lexicept.progress import ProgressBars

    seismic = name is EngineChoice.seismic
    if seismic and uri is not None:
        raise InputError("--uri is Milvus's")
    if not seismic and (recall, queries) != (None, None):
        raise InputError("--recall and --queries are Seismic's: Milvus searches exactly")
    settings: dict[str, Any] = {"recall": 0.95 if recall is None else recall}
    if not seismic:
        settings = {"uri": uri}
    texts = [] if queries is None else [query.text for query in read_queries(queries, split)]
    start = time.monotonic()
    with ProgressBars() as progress:
        manifest = updates.add_engine(index, name.value, settings, texts, progress, restart=restart)
    seconds = round(time.monotonic() - start, 1)
    built = IndexReader.open(index, engine=name.value).searcher
    facts = {key: value for key, value in manifest["facts"].items() if "scale" not in key}
    report = {"engine": name.value, **facts, "bytes": built.size, "seconds": seconds}
    print_report({key: value for key, value in report.items() if value is not None}, as_json)
