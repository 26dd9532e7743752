"""The command that measures an index under many settings: sweep."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from lexicept.cli.common import SearchVocabulary, ignored_ids, print_json, show
from lexicept.cli.declarations import takes

if TYPE_CHECKING:
    from rich.table import Table

    from lexicept.evaluation.sweep import Point


@takes("lexicept.pipelines.sweep:sweep")
def sweep(
    index: Path,
    *,
    vocabulary: SearchVocabulary | None = None,
    as_json: bool = False,
    **options: Any,
) -> None:
    """Plot effectiveness against cost for all combinations of settings.

    Separate the values of an option with commas; none is no limit. If words and concepts are
    searched together, the limits apply to the concepts. Choose settings on a dev or train split,
    never on test. Re-running the command resumes an interrupted sweep.

    Args:
        vocabulary: vocabulary to search. By default all that the index has.
    """
    from lexicept.pipelines.index import open as open_index
    from lexicept.pipelines.opened import single_vocabulary
    from lexicept.pipelines.sweep import sweep

    with open_index(index) as opened:
        name = single_vocabulary(opened.reader, vocabulary)
        result = sweep(opened, **options, vocabulary=name, progress=True)
    ignored = options.get("ignore_identical_ids", False)
    if as_json:
        best = [point.to_json() for point in result.front]
        report = {"points": len(result.points), "folder": str(result.folder), "front": best}
        print_json(report | {"ignore_identical_ids": ignored})
    else:
        title = f"{len(result.front)} of {len(result.points)} points: {result.folder}"
        show(_table(result.front, title + ignored_ids(ignored)))


def _table(front: list[Point], title: str) -> Table:
    """Return the Pareto front as a table, with settings as the options take them."""
    from lexicept.cli.display import BORDERS, grid, right
    from lexicept.measures import E2, NDCG, QD_FLOPS, RR

    measures = (QD_FLOPS, NDCG, RR, E2)
    names = [measure.title for measure in measures]
    names += ["query dims", "document dims", "k", "alpha", "query scale", "QD-FLOPs limit"]
    table = grid([right(name) for name in names], title, box=BORDERS)
    for point in front:
        setting = point.setting
        table.add_row(
            *(measure.format(point.values[measure.name]) for measure in measures),
            str(setting.query_max_active_dims or "none"),
            str(setting.document_max_active_dims or "none"),
            str(setting.k or "none"),
            "none" if setting.alpha is None else f"{setting.alpha:g}",
            f"{setting.query_scale:g}",
            "none" if setting.query_max_qd_flops is None else f"{setting.query_max_qd_flops:g}",
        )
    return table
