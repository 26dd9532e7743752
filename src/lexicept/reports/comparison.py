"""The comparison of two indexes, query by query: wins, losses, contributions to both."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from lexicept.corpora import Query
from lexicept.errors import InputError
from lexicept.evaluation.significance import paired_t_test
from lexicept.index.stored import Hit
from lexicept.measures import e2, mean_length
from lexicept.reports import charts
from lexicept.reports.cost import qd_flops
from lexicept.reports.material import MEASURES, Subject
from lexicept.reports.page import (
    Block,
    Column,
    Figure,
    Group,
    Note,
    Number,
    Numbers,
    Paragraph,
    Section,
    Table,
    text_column,
)
from lexicept.reports.wording import count, cut, one, signed, three, two

CASES = 4
"""Number of wins that are explained, and of losses."""

TERMS = 6
"""Contributions shown in each explanation."""

TIE = 1e-9


class Duel(NamedTuple):
    """The relevant document whose rank differs most for a query, and its rival."""

    relevant: str
    rival: str | None
    """The first result of the losing side that is not relevant; None where there is none."""


def compared(subject: Subject, other: Subject) -> Section:
    """Write the section with both indexes' measures, wins and losses, the largest explained.

    Raises:
        InputError: the indexes share no document.
    """
    shared = len(subject.known & other.known)
    if not shared:
        raise InputError(f"{other.index.path} has no document of {subject.index.path}")
    blocks: list[Block] = []
    if shared < max(len(subject), len(other)):
        text = f"{count(shared)} documents are in both: {count(len(subject))} are in "
        text += f"{subject.name}, {count(len(other))} in {other.name}."
        blocks.append(Note(text))
    if subject.questions is None:
        blocks.append(Note("No queries, and no sentences in the documents: nothing to compare."))
    else:
        ours, theirs = subject.measured(), other.measured()
        blocks.append(_measures((subject, ours), (other, theirs)))
        differences = {q: value - theirs["nDCG@10"][q] for q, value in ours["nDCG@10"].items()}
        blocks += _overview(subject, other, ours["nDCG@10"], theirs["nDCG@10"])
        blocks += _cases(subject, other, differences)
    return Section(
        "comparison",
        "Two indexes compared",
        f"{subject.name} against {other.name}, query by query. A win is a query with a higher "
        f"nDCG@10 in {subject.name}. A score is a sum over dimensions, and so is a relevant "
        "document's lead over its rival, the best result that is not relevant: the tables show "
        "which dimensions make it.",
        blocks,
    )


def _measures(*sides: tuple[Subject, Mapping[str, Mapping[str, float]]]) -> Table:
    rows = []
    for subject, measured in sides:
        means = [float(np.mean(list(measured[m].values()))) for m in MEASURES]
        flops = qd_flops(subject)
        lengths = (mean_length(subject.asked), subject.index.engine.num_postings / len(subject))
        rows.append((subject.name, *means, flops, e2(means[2], flops), *lengths))
    return Table(
        "Effectiveness and cost",
        [
            text_column("Index"),
            *(Column(measure, three) for measure in MEASURES),
            Column("QD-FLOPs", two),
            Column("E²", three),
            Column("Query length", one),
            Column("Document length", one),
        ],
        rows,
        f"Means over {sides[0][0].questions.describe()}." if sides[0][0].questions else "",
    )


def _overview(
    subject: Subject, other: Subject, ours: Mapping[str, float], theirs: Mapping[str, float]
) -> list[Block]:
    values = np.array([ours[query] - theirs[query] for query in ours])
    wins, losses = int((values > TIE).sum()), int((values < -TIE).sum())
    items = [
        Number("Wins", count(wins), f"queries better in {subject.name}"),
        Number("Losses", count(losses), f"queries better in {other.name}"),
        Number("Ties", count(values.size - wins - losses), "queries with the same nDCG@10"),
    ]
    if values.size > 1:
        test = paired_t_test(ours, theirs)
        meaning = f"of nDCG@10; p {test.p:.2g} in a paired t-test"
        items.append(Number("Mean difference", signed(test.difference), meaning))
    ordered = np.sort(values)[::-1]
    svg = charts.differences(
        "Difference of nDCG@10, query by query",
        ordered.tolist(),
        "queries, from the largest win to the largest loss",
        "difference of nDCG@10",
    )
    caption = f"Above 0 {subject.name} is better, below 0 {other.name} is."
    return [Numbers(items), Figure(svg, caption)]


def _cases(subject: Subject, other: Subject, differences: Mapping[str, float]) -> list[Block]:
    assert subject.questions is not None
    queries = subject.questions.queries
    gains = [differences.get(query.id, 0.0) for query in queries]
    order = sorted(range(len(gains)), key=lambda number: -gains[number])
    blocks: list[Block] = []
    for title, winner, loser, numbers, sign in (
        (f"Largest wins of {subject.name}", subject, other, order[:CASES], 1),
        (f"Largest losses of {subject.name}", other, subject, order[: -CASES - 1 : -1], -1),
    ):
        cases: list[Block] = []
        for number in numbers:
            if sign * gains[number] > TIE:
                cases.append(_case(winner, loser, number, queries[number], abs(gains[number])))
        if cases:
            blocks.append(Group(title, cases))
    return blocks


def _case(winner: Subject, loser: Subject, number: int, query: Query, gain: float) -> Group:
    duel = _duel(winner, loser, number, query)
    first, second = (_rank(s.hits()[number], duel.relevant) for s in (winner, loser))
    text = (
        f"{winner.name} is better by {gain:.3f}: it has the relevant {duel.relevant} at {first}, "
        f"{loser.name} at {second}. {duel.relevant}: {_shown(winner, loser, duel.relevant)}"
    )
    blocks: list[Block] = [Paragraph(text)]
    if duel.rival is not None:
        shown = _shown(loser, winner, duel.rival)
        blocks.append(Paragraph(f"In its place in {loser.name}, {duel.rival}: {shown}"))
    blocks += [_lead(side, query, duel) for side in (winner, loser)]
    return Group(f"{cut(query.text)} ({query.id})", blocks)


def _duel(winner: Subject, loser: Subject, number: int, query: Query) -> Duel:
    assert winner.questions is not None
    relevant = {
        qrel.document_id: qrel.relevance
        for qrel in winner.questions.qrels
        if qrel.query_id == query.id and qrel.relevance > 0
    }
    places = [{hit.id: n for n, hit in enumerate(s.hits()[number], 1)} for s in (winner, loser)]
    gained = {
        document: relevance * (_discount(places[0], document) - _discount(places[1], document))
        for document, relevance in relevant.items()
    }
    displaced = max(gained, key=lambda document: gained[document])
    rivals = (hit.id for hit in loser.hits()[number] if hit.id not in relevant)
    return Duel(displaced, next(rivals, None))


def _discount(places: Mapping[str, int], document: str) -> float:
    """Return nDCG@10's discount at a document's rank; 0 below rank 10."""
    rank = places.get(document, 11)
    return 1 / math.log2(1 + rank) if rank <= 10 else 0.0


def _rank(hits: list[Hit], document: str) -> str:
    """Return a document's rank among the results, in words."""
    places = [rank for rank, hit in enumerate(hits, 1) if hit.id == document]
    return f"rank {places[0]}" if places else f"no rank (not among {len(hits)} results)"


def _lead(subject: Subject, query: Query, duel: Duel) -> Block:
    """Return the table of the relevant document's lead over its rival, by dimension."""
    documents = [duel.relevant] + ([] if duel.rival is None else [duel.rival])
    known = [name for name in documents if name in subject.known]
    parts: dict[tuple[str, str], list[float]] = {}
    totals = [0.0, 0.0]
    for document in known:
        side = documents.index(document)
        explained = subject.index.explain(query.text, document, spans=False)
        totals[side] = explained.score
        for part in explained.contributions:
            parts.setdefault((part.vocabulary, part.term), [0.0, 0.0])[side] += part.score
        if explained.prior:
            parts.setdefault(("RRA", "prior of the document"), [0.0, 0.0])[side] = explained.prior
    ranked = sorted(parts.items(), key=lambda item: -abs(item[1][0] - item[1][1]))
    rows: list[tuple[Any, ...]] = [
        (term, name, ours, theirs, ours - theirs) for (name, term), (ours, theirs) in ranked[:TERMS]
    ]
    rest = ranked[TERMS:]
    if rest:
        sums = [sum(pair[side] for _, pair in rest) for side in (0, 1)]
        rows.append((f"{len(rest)} more", "", *sums, sums[0] - sums[1]))
    return Table(
        f"Scores in {subject.name}",
        [
            text_column("Dimension"),
            text_column("Vocabulary"),
            Column(cut(duel.relevant, 30), three),
            Column(cut(duel.rival or "no rival", 30), three),
            Column("Lead", signed),
        ],
        rows,
        total=("Score", "", *totals, totals[0] - totals[1]),
    )


def _shown(subject: Subject, other: Subject, document_id: str) -> str:
    """Return a document's beginning, from the index that has it."""
    for side in (subject, other):
        if document_id in side.known:
            return cut(side.index.document(document_id).content, 220)
    return "in neither index"
