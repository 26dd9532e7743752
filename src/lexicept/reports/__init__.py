"""Reports about an index: one HTML file about the collection, search results and costs.

The file can be read without a network and without scripts. Slow measurements use a sample of a
large collection, and the report says so in place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lexicept.corpora import Qrel, Query
from lexicept.errors import InputError
from lexicept.index.reader import IndexReader
from lexicept.progress import Progress, silent
from lexicept.reports.about import summary, topics
from lexicept.reports.comparison import comparison
from lexicept.reports.cost import cost
from lexicept.reports.effectiveness import effectiveness
from lexicept.reports.measured import MeasuredIndex, ReportQueries
from lexicept.reports.page import Page, ReportSection, render

__all__ = ["build_report"]


def build_report(
    index: IndexReader,
    queries: Sequence[Query] = (),
    qrels: Sequence[Qrel] = (),
    against: IndexReader | None = None,
    progress: Progress = silent,
) -> str:
    """Return the report of an index as one HTML page. Raises InputError for queries without
    judgements, or indexes that share no document.

    Args:
        queries: judged queries; without any, sentences of the documents search for their documents.
        against: another index of the same documents, compared query by query.
    """
    if queries and not qrels:
        raise InputError("queries without judgements: there is nothing to evaluate")
    judged = ReportQueries.from_judged(queries, qrels) if queries else None
    searched = judged or ReportQueries.from_documents(index)
    name, other_name = _names(index, against)
    measured = MeasuredIndex(index, name, searched if searched.queries else None)
    steps: list[Callable[[], ReportSection]] = [
        lambda: summary(measured, index.atlas),
        lambda: topics(measured, index.atlas),
    ]
    if measured.has_queries:
        steps.append(lambda: effectiveness(measured))
    if against is not None:
        second = MeasuredIndex(against, other_name, searched if searched.queries else None)
        steps.append(lambda: comparison(measured, second))
    steps.append(lambda: cost(measured))
    sections = []
    for done, step in enumerate(steps):
        progress("report", done, len(steps))
        sections.append(step())
    progress("report", len(steps), len(steps))
    subtitle = (
        f"{index.num_documents:,} documents; index written by lexicept {index.manifest['lexicept']}"
    )
    return render(Page(f"Report: {name}", subtitle, sections))


def _names(index: IndexReader, against: IndexReader | None) -> tuple[str, str]:
    """Return the names of the indexes in the report: folder names, or paths if those are equal."""
    path, other_path = index.path, index.path if against is None else against.path
    if against is not None and path.resolve().name == other_path.resolve().name:
        return str(path), str(other_path)
    return path.resolve().name, other_path.resolve().name
