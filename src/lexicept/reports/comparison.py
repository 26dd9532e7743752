"""The comparison of two indexes, query by query: wins, losses, contributions to both."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from lexicept.corpora import Query
from lexicept.errors import InputError
from lexicept.evaluation.significance import paired_t_test
from lexicept.index.hits import Hit
from lexicept.measures import (
    DOCUMENT_LENGTH,
    E2,
    NDCG,
    QD_FLOPS,
    QUERY_LENGTH,
    SearchCosts,
    measure_named,
    search_costs,
)
from lexicept.reports import charts, page
from lexicept.reports.measured import MEASURES, MeasuredIndex

CASES = 4
"""Number of wins that are explained, and of losses."""

TERMS = 6
"""Contributions in each explanation."""

TIE = 1e-9


class Duel(NamedTuple):
    """A query's relevant document with the largest difference of ranks, and a rival."""

    relevant: str
    rival: str | None
    """The first irrelevant result of the losing side; None without any."""


def comparison(measured: MeasuredIndex, baseline: MeasuredIndex) -> page.ReportSection:
    """Write the section with the measures of both indexes, and explained wins and losses. Raises
    InputError if the indexes share no document."""
    shared = len(measured.document_ids & baseline.document_ids)
    if not shared:
        raise InputError(f"{baseline.index.path} has no document of {measured.index.path}")
    blocks: list[page.Block] = []
    if shared < max(len(measured), len(baseline)):
        text = f"{page.count(shared)} documents are in both: {page.count(len(measured))} are in "
        text += f"{measured.name}, {page.count(len(baseline))} in {baseline.name}."
        blocks.append(page.Note(text))
    if measured.has_queries:
        ours, theirs = (side.measured()[NDCG.name] for side in (measured, baseline))
        differences = {query: value - theirs[query] for query, value in ours.items()}
        blocks.append(_measures([measured, baseline]))
        blocks += _overview(measured, baseline, ours, theirs)
        blocks += _cases(measured, baseline, differences)
    else:
        blocks.append(
            page.Note("No queries, and no sentences in the documents: nothing to compare.")
        )
    return page.ReportSection(
        "comparison",
        "Two indexes compared",
        f"{measured.name} against {baseline.name}, query by query. A win is a query with a higher "
        f"nDCG@10 in {measured.name}. A score is a sum of parts, and so is a relevant document's "
        "lead over its rival, the best result that is not relevant: the tables show which parts "
        "make it.",
        blocks,
    )


def _measures(sides: Sequence[MeasuredIndex]) -> page.Table:
    names = [*MEASURES, *(m.name for m in (QD_FLOPS, E2, QUERY_LENGTH, DOCUMENT_LENGTH))]
    cells = []
    for side in sides:
        values = {m: float(np.mean(list(v.values()))) for m, v in side.measured().items()}
        lengths = side.posting_lengths
        values |= search_costs(SearchCosts(side.query_weights, lengths, len(side), values["RR@10"]))
        cells.append([side.name, *(values[name] for name in names)])
    measures = [measure_named(name) for name in names]
    columns = [page.text_column("Index"), *(page.Column(m.title, m.format) for m in measures)]
    note = f"Means over {sides[0].queries.describe()}."
    return page.Table("Effectiveness and cost", columns, cells, note)


def _overview(
    measured: MeasuredIndex,
    baseline: MeasuredIndex,
    ours: Mapping[str, float],
    theirs: Mapping[str, float],
) -> list[page.Block]:
    values = np.array([ours[query] - theirs[query] for query in ours])
    wins, losses = int((values > TIE).sum()), int((values < -TIE).sum())
    figures = [
        page.Number("Wins", page.count(wins), f"queries better in {measured.name}"),
        page.Number("Losses", page.count(losses), f"queries better in {baseline.name}"),
        page.Number(
            "Ties", page.count(values.size - wins - losses), "queries with the same nDCG@10"
        ),
    ]
    if values.size > 1:
        test = paired_t_test(ours, theirs)
        meaning = f"of nDCG@10; p {test.p:.2g} in a paired t-test"
        figures.append(page.Number("Mean difference", page.signed(test.difference), meaning))
    chart = charts.differences(
        "Difference of nDCG@10, query by query",
        np.sort(values)[::-1].tolist(),
        "queries, from the largest win to the largest loss",
        "difference of nDCG@10",
    )
    caption = f"Above 0 {measured.name} is better, below 0 {baseline.name} is."
    return [page.Numbers(figures), page.Figure(chart, caption)]


def _cases(
    measured: MeasuredIndex, baseline: MeasuredIndex, differences: Mapping[str, float]
) -> list[page.Block]:
    queries = measured.queries.queries
    gains = [differences.get(query.id, 0.0) for query in queries]
    order = sorted(range(len(gains)), key=lambda index: -gains[index])
    blocks: list[page.Block] = []
    wins = [index for index in order[:CASES] if gains[index] > TIE]
    losses = [index for index in order[: -CASES - 1 : -1] if gains[index] < -TIE]
    for title, winner, loser, indices in (
        (f"Largest wins of {measured.name}", measured, baseline, wins),
        (f"Largest losses of {measured.name}", baseline, measured, losses),
    ):
        cases = [_case(winner, loser, n, queries[n], abs(gains[n])) for n in indices]
        if cases:
            blocks.append(page.Group(title, cases))
    return blocks


def _case(
    winner: MeasuredIndex, loser: MeasuredIndex, index: int, query: Query, gain: float
) -> page.Group:
    winner_hits, loser_hits = winner.hits(None)[index], loser.hits(None)[index]
    duel = _duel(winner, winner_hits, loser_hits, query)
    winner_rank, loser_rank = (_rank(hits, duel.relevant) for hits in (winner_hits, loser_hits))
    text = (
        f"{winner.name} is better by {gain:.3f}: it has the relevant {duel.relevant} at "
        f"{winner_rank}, {loser.name} at {loser_rank}. {duel.relevant}: "
        f"{_beginning(winner, loser, duel.relevant)}"
    )
    blocks: list[page.Block] = [page.Paragraph(text)]
    if duel.rival is not None:
        beginning = _beginning(loser, winner, duel.rival)
        blocks.append(page.Paragraph(f"In its place in {loser.name}, {duel.rival}: {beginning}"))
    blocks += [_lead(side, query, duel) for side in (winner, loser)]
    return page.Group(f"{page.cut(query.text)} ({query.id})", blocks)


def _duel(
    winner: MeasuredIndex, winner_hits: list[Hit], loser_hits: list[Hit], query: Query
) -> Duel:
    relevant = {
        qrel.document_id: qrel.relevance
        for qrel in winner.queries.qrels
        if qrel.query_id == query.id and qrel.relevance > 0
    }

    def gain(document: str) -> float:
        discounts = _discount(winner_hits, document) - _discount(loser_hits, document)
        return relevant[document] * discounts

    rivals = (hit.id for hit in loser_hits if hit.id not in relevant)
    return Duel(max(relevant, key=gain), next(rivals, None))


def _discount(hits: list[Hit], document: str) -> float:
    """Return nDCG@10's discount at the rank of a document; 0 below rank 10."""
    return sum(1 / math.log2(1 + hit.rank) for hit in hits[:10] if hit.id == document)


def _rank(hits: list[Hit], document: str) -> str:
    """Return the rank of a document among the results, in words."""
    ranks = [f"rank {hit.rank}" for hit in hits if hit.id == document]
    return ranks[0] if ranks else f"no rank (not among {len(hits)} results)"


def _lead(measured: MeasuredIndex, query: Query, duel: Duel) -> page.Block:
    """Return the table of the relevant document's lead over the rival, by part of the score."""
    # By vocabulary and name: the scores of the relevant document and of the rival.
    scores: dict[tuple[str, str], list[float]] = {}
    totals = [0.0, 0.0]
    for side, document in enumerate((duel.relevant, duel.rival)):
        if document is None or document not in measured.document_ids:
            continue
        explained = measured.index.explain(query.text, document, spans=False)
        totals[side] = explained.score
        for contribution in explained.contributions:
            key = contribution.vocabulary, contribution.term
            scores.setdefault(key, [0.0, 0.0])[side] += contribution.score
        for whole_part in explained.whole_parts:
            scores.setdefault(("", whole_part.name), [0.0, 0.0])[side] = whole_part.score
    # Parts by what they add to, or take from, the lead of the relevant document.
    ranked = sorted(scores.items(), key=lambda item: -abs(item[1][0] - item[1][1]))
    cells: list[tuple[Any, ...]] = [
        (term, name, ours, theirs, ours - theirs) for (name, term), (ours, theirs) in ranked[:TERMS]
    ]
    if len(ranked) > TERMS:
        ours, theirs = np.sum([pair for _, pair in ranked[TERMS:]], axis=0).tolist()
        cells.append((f"{len(ranked) - TERMS} more", "", ours, theirs, ours - theirs))
    return page.Table(
        f"Scores in {measured.name}",
        [
            page.text_column("Part"),
            page.text_column("Vocabulary"),
            page.Column(page.cut(duel.relevant, 30), page.three_decimals),
            page.Column(page.cut(duel.rival or "no rival", 30), page.three_decimals),
            page.Column("Lead", page.signed),
        ],
        cells,
        total=("Score", "", totals[0], totals[1], totals[0] - totals[1]),
    )


def _beginning(measured: MeasuredIndex, baseline: MeasuredIndex, document_id: str) -> str:
    """Return the beginning of a document, from the index that has the document."""
    for side in (measured, baseline):
        if document_id in side.document_ids:
            return page.cut(side.index.document(document_id).content, 220)
    return "in neither index"
