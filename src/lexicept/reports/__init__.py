"""Reports about an index: one HTML file about the collection, what queries find, and what it costs.

The file can be read without a network and without scripts. Slow measurements use a sample of a
large collection, and the report says so in place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from lexicept.corpora import Qrel, Query
from lexicept.errors import InputError
from lexicept.index.impacts import Derived
from lexicept.index.reader import IndexReader
from lexicept.progress import Progress, silent
from lexicept.reports.about import construction, summary, topics
from lexicept.reports.comparison import compared
from lexicept.reports.cost import cost, dead, posting_lists
from lexicept.reports.discrimination import discrimination
from lexicept.reports.effectiveness import effectiveness
from lexicept.reports.material import Questions, Subject
from lexicept.reports.page import Page, Section, render
from lexicept.reports.related import related
from lexicept.reports.reweighting import reweighting, without_or_with
from lexicept.reports.unexplained import unexplained

__all__ = ["build_report"]


def build_report(
    index: IndexReader,
    queries: Sequence[Query] = (),
    qrels: Sequence[Qrel] = (),
    against: IndexReader | None = None,
    progress: Progress = silent,
) -> str:
    """Return the report of an index as one HTML page.

    Args:
        queries: judged queries; without any, sentences of the documents search their documents.
        qrels: their judgements.
        against: another index of the same documents, compared query by query.

    Raises:
        InputError: queries without judgements, or indexes that share no document.
    """
    if queries and not qrels:
        raise InputError("queries without judgements: there is nothing to evaluate")
    with TemporaryDirectory() as folder:
        progress("re-weighting", 0, 1)
        # Done before a model is loaded, as it takes more memory than the sections.
        changed = without_or_with(index, Path(folder) / "postings")
        progress("re-weighting", 1, 1)
        return _report(index, queries, qrels, against, changed, progress)


def _report(
    index: IndexReader,
    queries: Sequence[Query],
    qrels: Sequence[Qrel],
    against: IndexReader | None,
    changed: Derived,
    progress: Progress,
) -> str:
    """Return the report; ``changed`` is what ``reweighting`` compares the index with."""
    given = Questions.given(queries, qrels) if queries else Questions.from_documents(index)
    questions = given if given.queries else None
    names = _names(index, against)
    subject = Subject(index, names[0], questions)
    other = None if against is None else Subject(against, names[1], questions)
    steps: list[Callable[[], Section]] = [
        lambda: summary(subject, index.atlas),
        lambda: topics(subject, index.atlas),
    ]
    if questions is not None:
        steps.append(lambda: effectiveness(subject))
    if other is not None:
        steps.append(lambda: compared(subject, other))
    if {"words", "concepts"} <= {*subject.names}:
        steps += [lambda: related(subject), lambda: unexplained(subject)]
    steps += [
        lambda: reweighting(subject, changed),
        lambda: construction(subject),
        lambda: cost(subject),
        lambda: dead(subject),
        lambda: posting_lists(subject, other),
        lambda: discrimination(subject),
    ]
    sections = []
    for done, step in enumerate(steps):
        progress("report", done, len(steps))
        sections.append(step())
    progress("report", len(steps), len(steps))
    subtitle = (
        f"{index.num_documents:,} documents; index written by lexicept {index.manifest['lexicept']}"
    )
    return render(Page(f"Report: {names[0]}", subtitle, sections))


def _names(index: IndexReader, against: IndexReader | None) -> tuple[str, str]:
    """Return the indexes' names in the report: folder names, or paths if those are equal."""
    first, second = index.path, index.path if against is None else against.path
    if against is not None and first.resolve().name == second.resolve().name:
        return str(first), str(second)
    return first.resolve().name, second.resolve().name
