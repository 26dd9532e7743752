"""The section on effectiveness: measures by vocabulary, composition of scores, failures."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np

from lexicept.evaluation.significance import compare, intervals
from lexicept.explanation.contributions import PRIOR, SIMILARITY
from lexicept.explanation.explanation import Explanation
from lexicept.measures import E2, NDCG, QD_FLOPS, RR, e2, measure_named
from lexicept.reports import charts, page
from lexicept.reports.measured import DEPTH, MEASURES, MeasuredIndex

TOP = 10
EXPLAINED = 300
"""Queries whose results are explained for the parts of scores."""
FAILURES = 12


def effectiveness(measured: MeasuredIndex) -> page.ReportSection:
    """Write the section with measures, the spread over queries, and the worst queries."""
    blocks: list[page.Block] = []
    if not measured.queries.judged:
        blocks.append(
            page.Note(
                "No judged queries were given. Random sentences of the documents replace them, "
                "each with its own document as the only relevant one. They share words with it, "
                "so the values are far higher than with real queries, and favour words. Compare "
                "them only with one another."
            )
        )
    ndcg = measured.measured()[NDCG.name]
    blocks += [_measures(measured), _ndcg_figure(ndcg), _composition(measured)]
    failures = _failures(measured, ndcg)
    if failures.rows:
        blocks.append(failures)
    return page.ReportSection(
        "evaluation",
        "Evaluation",
        "nDCG@10 is 1 if the relevant documents come first, lower the deeper they rank, and 0 if "
        "none is among the first ten. R@100 is the share of the relevant documents among the "
        "first hundred. RR@10 is one over the rank of the first relevant document. "
        f"Means over {measured.queries.describe()}.",
        blocks,
    )


def _measures(measured: MeasuredIndex) -> page.Table:
    """Return the table of measures in all vocabularies together, and in each alone."""
    names = {name: name for name in measured.vocabularies}
    compared = len(names) > 1
    vocabularies: dict[str, str | None] = {"all together": None, **names} if compared else {}
    vocabularies = vocabularies or {measured.vocabularies[0]: None}
    per_query = {name: measured.measured(v) for name, v in vocabularies.items()}
    p_values = {
        test.system: test.p_holm for test in compare(per_query) if test.measure == NDCG.name
    }
    cells = []
    for name, values in per_query.items():
        means = [float(np.mean(list(values[measure].values()))) for measure in MEASURES]
        mrr, flops = means[MEASURES.index(RR.name)], measured.qd_flops(vocabularies[name])
        low, high = intervals(values)[NDCG.name]
        p_value = p_values.get(name, float("nan"))
        cells.append([name, *means, flops, e2(mrr, flops), (high - low) / 2, p_value])
    columns = [page.text_column("Searched"), *map(_measure_column, MEASURES)]
    columns += [page.Column(measure.title, measure.format) for measure in (QD_FLOPS, E2)]
    columns.append(
        page.Column("nDCG@10 ±", lambda value: "" if np.isnan(value) else f"{value:.3f}")
    )
    note = (
        "E² is RR@10 minus a penalty for QD-FLOPs (SAE-SPLADE): .01 for each, and much more beyond "
        "5. Both costs are those of the postings. ±: 95 % confidence interval of the mean over the "
        "queries."
    )
    if compared:
        columns.append(page.Column("p", lambda value: "" if np.isnan(value) else f"{value:.2g}"))
        note += (
            " p: paired t-test of nDCG@10 against that of all vocabularies, corrected for the "
            "number of tests (Holm)."
        )
    cells = [line[: len(columns)] for line in cells]
    return page.Table("Effectiveness and cost", columns, cells, note)


def _measure_column(name: str) -> page.Column:
    measure = measure_named(name)
    return page.Column(measure.title, measure.format)


def _ndcg_figure(ndcg: dict[str, float]) -> page.Figure:
    edges, values = np.linspace(0, 1, 11), np.array(list(ndcg.values()))
    counts, _ = np.histogram(values, edges)
    chart = charts.histogram(
        "Queries by nDCG@10", edges.tolist(), counts.tolist(), NDCG.title, "queries"
    )
    caption = (
        f"Queries by nDCG@10, all vocabularies: {page.percent((values == 0).mean())} have nothing "
        f"relevant among the first ten, {page.percent((values >= 1 - 1e-9).mean())} are perfect."
    )
    return page.Figure(chart, caption)


def _composition(measured: MeasuredIndex) -> page.Table:
    """Return the table of each vocabulary's share of the scores of the first results."""
    explained: list[Explanation] = []
    judged = zip(measured.queries.queries, measured.hits(None), strict=True)
    for query, hits in islice(judged, EXPLAINED):
        first = hits[:TOP]
        explained += measured.index.explained(query.text, first)
    scores = np.array([explanation.score for explanation in explained])
    cells: list[tuple[Any, ...]] = []
    for name in measured.vocabularies:
        shared = [
            [entry.score for entry in explanation.contributions if entry.vocabulary == name]
            for explanation in explained
        ]
        dimensions = sum(map(len, shared)) / max(len(explained), 1)
        cells.append((name, _mean_share(np.array([*map(sum, shared)]), scores), dimensions))
    for name, key in ((SIMILARITY, "similarity"), (PRIOR, "prior")):
        parts = np.array([getattr(explanation, key) for explanation in explained])
        if parts.any():
            cells.append((name, _mean_share(parts, scores), 0.0))
    return page.Table(
        f"Parts of the scores of the first {TOP} results",
        [
            page.text_column("Part"),
            page.Column("Share of the score", page.percent),
            page.Column("Dimensions per result", page.one_decimal),
        ],
        cells,
        f"Means over {len(explained):,} results in all vocabularies. Dimensions: those that the "
        "query and the result share.",
    )


def _mean_share(summands: Any, totals: Any) -> float:
    shares = np.divide(summands, totals, out=np.zeros(len(totals)), where=totals > 0)
    return float(shares.mean()) if shares.size else 0.0


def _failures(measured: MeasuredIndex, ndcg: dict[str, float]) -> page.Table:
    relevant: dict[str, set[str]] = {}
    for qrel in measured.queries.qrels:
        if qrel.relevance > 0:
            relevant.setdefault(qrel.query_id, set()).add(qrel.document_id)
    failures = []
    for query, hits in zip(measured.queries.queries, measured.hits(None), strict=True):
        if query.id in relevant and ndcg[query.id] < 1:
            ranks = (hit.rank for hit in hits if hit.id in relevant[query.id])
            rank = next(ranks, DEPTH + 1)
            best = f"{hits[0].id}: {_title(measured, hits[0].id)}" if hits else "nothing"
            failures.append((page.cut(query.text), query.id, ndcg[query.id], rank, best))
    return page.Table(
        "The queries with the lowest nDCG@10",
        [
            page.text_column("Query"),
            page.text_column("Id"),
            _measure_column(NDCG.name),
            page.Column(
                "First relevant at", lambda n: page.count(n) if n <= DEPTH else f"> {DEPTH}"
            ),
            page.text_column("Found first"),
        ],
        sorted(failures, key=lambda failure: (failure[2], -failure[3]))[:FAILURES],
        "Judgements are rarely complete: the first result may be relevant and not judged.",
    )


def _title(measured: MeasuredIndex, document_id: str) -> str:
    document = measured.index.document(document_id)
    return page.cut(document.title or document.text, 90)
