"""The command that measures an index under many settings: sweep."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from lexicept.cli.common import (
    DatasetArgument,
    IgnoreIdenticalIdsOption,
    IndexArgument,
    JsonOption,
    RestartOption,
    SearchVocabularyOption,
    ignored_ids,
    print_json,
    single_vocabulary,
)
from lexicept.cli.configuration import ConfigOption
from lexicept.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

    from lexicept.evaluation.sweep import Point

Number = TypeVar("Number", int, float)
Word = TypeVar("Word")

SplitOption = Annotated[
    str, typer.Option(help="Split of the judged queries: dev or train, never test.")
]
QueryDimsOption = Annotated[
    str, typer.Option(help="Limits of the dimensions in a query; none is no limit.")
]
DocumentDimsOption = Annotated[
    str, typer.Option(help="Limits of the dimensions in a document; none is no limit.")
]
TokenKOption = Annotated[
    str,
    typer.Option(
        help="Active concepts per token; own is the model's own number, all is no limit. Every "
        "value except own encodes all documents again."
    ),
]
AlphaOption = Annotated[str, typer.Option(help="RRA's strength α; none is without RRA.")]
QueryCostOption = Annotated[
    str, typer.Option(help="Limits of a query's QD-FLOPs; none is no limit.")
]
QueryScaleOption = Annotated[str, typer.Option(help="Factors on the concept weights of queries.")]


def sweep(
    index: IndexArgument,
    dataset: DatasetArgument,
    out: Annotated[Path, typer.Option(help="Folder to write the points and the plot to.")],
    split: SplitOption = "dev",
    vocabulary: SearchVocabularyOption = None,
    query_max_active_dims: QueryDimsOption = "8,16,32,none",
    document_max_active_dims: DocumentDimsOption = "50,100,200,none",
    k: TokenKOption = "own",
    alpha: AlphaOption = "none,1,1.25",
    query_scale: QueryScaleOption = "1",
    query_max_qd_flops: QueryCostOption = "none",
    config: ConfigOption = None,
    ignore_identical_ids: IgnoreIdenticalIdsOption = False,
    restart: RestartOption = False,
    as_json: JsonOption = False,
) -> None:
    """Plot effectiveness against cost for all combinations of settings.

    Separate the values of an option with commas. If words and concepts are searched together, the
    limits apply to the concepts. Choose settings on a dev or train split, never on test.
    Re-running the command resumes an interrupted sweep.
    """
    from lexicept.pipelines.index import open as open_index
    from lexicept.pipelines.sweep import sweep

    with open_index(index) as opened:
        result = sweep(
            opened,
            dataset,
            out,
            split=split,
            vocabulary=single_vocabulary(opened.reader, vocabulary),
            query_max_active_dims=_values(
                "--query-max-active-dims", query_max_active_dims, int, {"none": None}
            ),
            document_max_active_dims=_values(
                "--document-max-active-dims", document_max_active_dims, int, {"none": None}
            ),
            k=_values("--k", k, int, {"own": None, "all": "all"}),
            alpha=_values("--alpha", alpha, float, {"none": None}),
            query_scale=_values("--query-scale", query_scale, float, {}),
            query_max_qd_flops=_values(
                "--query-max-qd-flops", query_max_qd_flops, float, {"none": None}
            ),
            ignore_identical_ids=ignore_identical_ids,
            restart=restart,
            progress=True,
        )
    if as_json:
        best = [point.to_json() for point in result.front]
        report = {"points": len(result.points), "folder": str(out), "front": best}
        print_json(report | {"ignore_identical_ids": ignore_identical_ids})
    else:
        from rich.console import Console

        title = f"{len(result.front)} of {len(result.points)} points: {out}"
        Console().print(_table(result.front, title + ignored_ids(ignore_identical_ids)))


def _values(
    option: str, text: str, number: Callable[[str], Number], words: Mapping[str, Word]
) -> tuple[Number | Word, ...]:
    """Split values at commas. Raises InputError for one that is no number and no known word."""
    values: list[Number | Word] = []
    for part in text.split(","):
        name = part.strip()
        try:
            values.append(words[name] if name in words else number(name))
        except ValueError:
            kind = "a whole number" if number is int else "a number"
            known = " or ".join([kind, *words])
            raise InputError(f"{option} {text!r}: {name!r} is not {known}") from None
    return tuple(values)


def _table(front: list[Point], title: str) -> Table:
    """Return the Pareto front as a table, with settings as the options take them."""
    from rich.table import Table
    from rich.text import Text

    from lexicept.measures import E2, NDCG, QD_FLOPS, RR
    from lexicept.sanitize import safe

    table = Table(title=Text(safe(title)), title_justify="left")
    measures = (QD_FLOPS, NDCG, RR, E2)
    columns = (
        *(measure.title for measure in measures),
        *("query dims", "document dims", "k", "alpha", "query scale", "QD-FLOPs limit"),
    )
    for column in columns:
        table.add_column(column, justify="right")
    for point in front:
        setting = point.setting
        table.add_row(
            *(measure.format(point.values[measure.name]) for measure in measures),
            str(setting.query_max_active_dims or "none"),
            str(setting.document_max_active_dims or "none"),
            str(setting.k or "own"),
            "none" if setting.alpha is None else f"{setting.alpha:g}",
            f"{setting.query_scale:g}",
            "none" if setting.query_max_qd_flops is None else f"{setting.query_max_qd_flops:g}",
        )
    return table
