"""The section on Rational Retrieval Acts (RRA): the effect on this index."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from lexicept.analysis.rra_effect import RRAEffect, document_effect, rra_effect
from lexicept.engines import PostingsEngine
from lexicept.evaluation.effectiveness import evaluate_queries
from lexicept.evaluation.runs import run_of_rows
from lexicept.evaluation.significance import paired_t_test
from lexicept.index.impacts import Derived, RRASettings
from lexicept.index.passages import Ranking
from lexicept.index.reader import IndexReader
from lexicept.reports import charts
from lexicept.reports.material import DEPTH, MEASURES, Subject, pieces, searched, weights_of
from lexicept.reports.page import (
    Block,
    Column,
    Figure,
    Group,
    Note,
    Paragraph,
    Section,
    Table,
    text_column,
)
from lexicept.reports.wording import count, cut, percent, signed, three, two
from lexicept.vectors import Integers

DOCUMENTS = 3000
"""Most documents whose ranks are compared."""

FREQUENT = 15

MOVED = 8
"""Rows of the example document's risers, and of its fallers."""

POINTS = 1500
MIN_DOCUMENTS = 5
"""Fewest compared documents with a dimension in the chart."""


def without_or_with(index: IndexReader, folder: Path) -> Derived:
    """Return what is derived from an index with RRA's default settings, or without RRA where it has
    any.

    Args:
        folder: where it is written; one that does not exist yet.
    """
    tf = [index.stored_tf(vocabulary) for vocabulary in index.vocabularies]
    other = RRASettings() if index.rra is None else None
    changed = Derived.compute(tf, list(index.settings.values()), other, folder)
    _return_freed_memory()
    return changed


def _return_freed_memory() -> None:
    """Return memory that threads have freed, and glibc keeps, to the system: 0.1 GB and more."""
    if sys.platform == "linux" and hasattr(library := ctypes.CDLL(None), "malloc_trim"):
        library.malloc_trim(0)


def reweighting(subject: Subject, changed: Derived) -> Section:
    """Write the section with results, frequent dimensions and one document without and with RRA.

    Args:
        changed: see ``without_or_with``.
    """
    index = subject.index
    blocks: list[Block] = []
    if index.rra is None:
        blocks.append(
            Note(
                "This index is not re-weighted. This section shows the effect of RRA with the "
                f"paper's α {RRASettings().alpha:g}; lexicept index reweight makes such an index."
            )
        )
    if subject.questions is not None:
        blocks.append(_results(subject, changed))
    blocks += _compared(subject, changed.engine)
    return Section(
        "rra",
        "Rational Retrieval Acts",
        "Rational Retrieval Acts (RRA) re-weights a collection without training: a dimension that "
        "many other documents share loses weight in a document, one that distinguishes the "
        "document gains. Its one parameter, α, sets how strongly. RRA's weights have a scale of "
        "their own, so ranks within documents are compared: 1 is a document's largest weight, "
        "close to 0 its smallest.",
        blocks,
    )


def _compared(subject: Subject, changed: PostingsEngine) -> list[Block]:
    """Return the frequent dimensions, and one document, without and with RRA."""
    engines = [subject.index.engine, changed]
    if subject.index.rra is not None:
        engines.reverse()
    every = slice(0, changed.num_dimensions)
    rows = subject.sample(DOCUMENTS)
    blocks = _dimensions(subject, *(weights_of(engine, rows, every) for engine in engines))
    example = _median_document(engines[0])
    if example is not None:
        only = np.array([example])
        before, after = (weights_of(engine, only, every) for engine in engines)
        blocks.append(_document(subject, before, after, example))
    return blocks


def _results(subject: Subject, changed: Derived) -> Table:
    """Return the table of the queries' measures without and with RRA."""
    questions = subject.questions
    assert questions is not None
    index = subject.index

    def search(asked: sp.csr_array) -> list[Ranking]:
        return index.passages.ranked(changed.engine, asked, DEPTH, asked @ changed.background)

    results = searched(search, changed.engine, subject.asked)
    run = run_of_rows([query.id for query in questions.queries], results, index.document_ids)
    values = [subject.measured(), evaluate_queries(questions.qrels, run, MEASURES)]
    if subject.index.rra is not None:
        values.reverse()
    rows = []
    for measure in MEASURES:
        before, after = values[0][measure], values[1][measure]
        p = paired_t_test(after, before).p if len(before) > 1 else float("nan")
        means = [float(np.mean(list(side.values()))) for side in (before, after)]
        rows.append((measure, *means, means[1] - means[0], p))
    return Table(
        "Search without and with RRA",
        [
            text_column("Measure"),
            Column("Without", three),
            Column("With", three),
            Column("Difference", signed),
            Column("p", lambda value: f"{value:.2g}"),
        ],
        rows,
        f"Means over {questions.describe()}; p is from a paired t-test.",
    )


def _dimensions(subject: Subject, before: sp.csr_array, after: sp.csr_array) -> list[Block]:
    blocks: list[Block] = []
    series = []
    effect = rra_effect(before, after)
    for name in subject.names:
        span = subject.span(name)
        numbers = np.flatnonzero(effect.documents[span] >= MIN_DOCUMENTS) + span.start
        if not numbers.size:
            continue
        shown = numbers
        if numbers.size > POINTS:
            shown = np.random.default_rng(0).choice(numbers, POINTS, replace=False)
        shares = effect.documents[shown] / before.shape[0]
        series.append(charts.Series(name, shares.tolist(), effect.rank_change[shown].tolist()))
        blocks.append(_frequent(subject, name, effect, numbers, before.shape[0]))
    if not series:
        return blocks
    svg = charts.scatter(
        "Change of rank against frequency",
        series,
        "share of documents with the dimension",
        "change of the mean rank",
        log_x=True,
    )
    of = "all documents"
    if before.shape[0] < len(subject):
        of = f"{before.shape[0]:,} of {len(subject):,} documents, drawn at random"
    drawn = f"at most {POINTS:,} of each vocabulary"
    caption = (
        f"Each point is a dimension in at least {MIN_DOCUMENTS} documents, {drawn}. Below 0 it "
        f"lost rank to others in its documents, above 0 it gained. From {of}."
    )
    return [Figure(svg, caption), *blocks]


def _frequent(
    subject: Subject, name: str, effect: RRAEffect, numbers: Integers, documents: int
) -> Table:
    order = np.argsort(-effect.documents[numbers], kind="stable")[:FREQUENT]
    start, terms = subject.span(name).start, subject.terms(name)
    rows = [
        (
            terms[n - start],
            effect.documents[n] / documents,
            float(effect.share_before[n]),
            float(effect.share_after[n]),
            float(effect.rank_before[n]),
            float(effect.rank_after[n]),
            float(effect.rank_change[n]),
        )
        for n in numbers[order].tolist()
    ]
    return Table(
        f"The most frequent {name} without and with RRA",
        [
            text_column(name.capitalize()),
            Column("Share of documents", percent),
            Column("Share of the weight, without", percent),
            Column("with", percent),
            Column("Rank, without", two),
            Column("with", two),
            Column("Change", lambda value: f"{value:+z.2f}"),
        ],
        rows,
        "Means over the documents that have it. Share of the weight: of the sum of the document's "
        "weights.",
    )


def _median_document(engine: PostingsEngine) -> int | None:
    """Return the document of median length among those with any dimension."""
    lengths = np.zeros(engine.num_documents, np.int64)
    for _, _, documents, _ in pieces(engine, slice(0, engine.num_dimensions)):
        lengths += np.bincount(documents, minlength=lengths.size)
    order = np.argsort(lengths, kind="stable")
    filled = order[lengths[order] > 0]
    return int(filled[filled.size // 2]) if filled.size else None


def _document(subject: Subject, before: sp.csr_array, after: sp.csr_array, number: int) -> Group:
    document = subject.index.stored(number)
    changes = document_effect(before, after, 0)
    changes.sort(key=lambda change: change.rank_after - change.rank_before)
    moved = changes if len(changes) <= 2 * MOVED else changes[:MOVED] + changes[-MOVED:]
    rows = []
    for change in moved:
        name, term = subject.label(change.dimension)
        documents = int(subject.posting_lengths[change.dimension])
        rank = change.rank_after
        rows.append((term, name, documents, change.before, change.rank_before, rank))
    table = Table(
        f"What rises and falls most among its {len(changes)} dimensions",
        [
            text_column("Dimension"),
            text_column("Vocabulary"),
            Column("Documents with it", count),
            Column("Weight without RRA", three),
            Column("Rank without", count),
            Column("Rank with", count),
        ],
        rows,
    )
    text = Paragraph(f"{document.id}: {cut(document.content, 300)}")
    return Group("A document of median length", [text, table])
