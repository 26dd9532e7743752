"""The section on effectiveness: measures by vocabulary, composition of scores, failures."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from lexicept.evaluation.comparison import compare, intervals
from lexicept.measures import e2
from lexicept.reports import charts
from lexicept.reports.cost import qd_flops
from lexicept.reports.material import DEPTH, MEASURES, Subject, weights_of
from lexicept.reports.page import Block, Column, Figure, Note, Section, Table, text_column
from lexicept.reports.wording import count, cut, one, percent, three, two
from lexicept.vectors import row_numbers

TOP = 10
FAILURES = 12


def effectiveness(subject: Subject) -> Section:
    """Write the section with measures, their spread over queries, and the worst queries."""
    questions = subject.questions
    assert questions is not None
    blocks: list[Block] = []
    if not questions.judged:
        blocks.append(
            Note(
                "No judged queries were given. Random sentences of the documents replace them, "
                "each with its own document as the only relevant one. They share words with it, "
                "so the values are far higher than with real queries, and favour words. Compare "
                "them only with one another."
            )
        )
    searched: list[str | None] = [*subject.names] if len(subject.names) > 1 else []
    searched.append(None)
    values = {name: subject.measured(name) for name in searched}
    blocks.append(_measures(subject, values))
    if len(searched) > 1:
        blocks.append(_chart(values))
    blocks.append(_spread(values[None]["nDCG@10"]))
    blocks.append(_composition(subject))
    failures = _failures(subject, values[None]["nDCG@10"])
    if failures.rows:
        blocks.append(failures)
    return Section(
        "evaluation",
        "Evaluation",
        "nDCG@10 is 1 if the relevant documents come first, lower the deeper they rank, and 0 if "
        "none is among the first ten. R@100 is the share of the relevant documents among the "
        "first hundred. RR@10 is one over the rank of the first relevant document. "
        f"Means over {questions.describe()}.",
        blocks,
    )


def _measures(subject: Subject, values: dict[str | None, dict[str, dict[str, float]]]) -> Table:
    whole = {_title(subject, None): values[None]}
    parts = {_title(subject, name): each for name, each in values.items() if name is not None}
    tests = {one.system: one for one in compare({**whole, **parts}) if one.measure == "nDCG@10"}
    rows = []
    for name, measured in values.items():
        means = [float(np.mean(list(measured[measure].values()))) for measure in MEASURES]
        flops, (low, high) = qd_flops(subject, name), intervals(measured)["nDCG@10"]
        title = _title(subject, name)
        p = tests[title].p_holm if title in tests else float("nan")
        rows.append((title, *means, flops, e2(means[2], flops), (high - low) / 2, p))
    columns = [text_column("Searched"), *(Column(measure, three) for measure in MEASURES)]
    columns += [Column("QD-FLOPs", two), Column("E²", three)]
    columns.append(Column("nDCG@10 ±", lambda value: "" if np.isnan(value) else three(value)))
    note = (
        "E² is RR@10 minus a penalty for QD-FLOPs (SAE-SPLADE): .01 for each, and much more beyond "
        "5. ±: 95 % confidence interval of the mean over the queries."
    )
    if len(rows) > 1:
        columns.append(Column("p", lambda value: "" if np.isnan(value) else f"{value:.2g}"))
        note += (
            " p: paired t-test of nDCG@10 against that of all vocabularies, corrected for the "
            "number of tests (Holm)."
        )
    return Table("Effectiveness and cost", columns, [row[: len(columns)] for row in rows], note)


def _title(subject: Subject, name: str | None) -> str:
    return name or ("all together" if len(subject.names) > 1 else subject.names[0])


def _chart(values: dict[str | None, dict[str, dict[str, float]]]) -> Figure:
    series = [
        (name or "all", [float(np.mean(list(measured[m].values()))) for m in MEASURES])
        for name, measured in values.items()
    ]
    svg = charts.columns("Measures by vocabulary", MEASURES, series, "", "mean over the queries")
    return Figure(svg, "Each vocabulary searched alone, and all in one search.")


def _spread(ndcg: dict[str, float]) -> Figure:
    edges = np.linspace(0, 1, 11)
    values = np.array(list(ndcg.values()))
    counts, _ = np.histogram(values, edges)
    svg = charts.histogram(
        "Queries by nDCG@10", edges.tolist(), counts.tolist(), "nDCG@10", "queries"
    )
    caption = (
        f"Queries by nDCG@10, all vocabularies: {percent((values == 0).mean())} have nothing "
        f"relevant among the first ten, {percent((values >= 1 - 1e-9).mean())} are perfect."
    )
    return Figure(svg, caption)


def _composition(subject: Subject) -> Table:
    """Return the table of each vocabulary's share of the first results' scores."""
    index = subject.index
    pairs = [(query, hit.number) for query, hits in enumerate(subject.hits()) for hit in hits[:TOP]]
    queries, rows = (
        np.array(side, np.int64) for side in (zip(*pairs, strict=True) if pairs else ((), ()))
    )
    weights = weights_of(index.engine, rows, slice(0, index.engine.num_dimensions))
    products = sp.csr_array(subject.asked[queries].multiply(weights))
    prior = index.engine.offsets[rows] * (subject.asked @ index.derived.background)[queries]
    total = np.asarray(products.sum(axis=1)).ravel() + prior
    entries: list[tuple[Any, ...]] = []
    for name in subject.names:
        span = subject.span(name)
        inside = (products.indices >= span.start) & (products.indices < span.stop)
        sums = np.bincount(
            row_numbers(products)[inside], products.data[inside], minlength=len(pairs)
        )
        dimensions = inside.sum() / max(len(pairs), 1)
        entries.append((name, _mean(sums, total), dimensions))
    if index.rra is not None:
        entries.append(("RRA's prior", _mean(prior, total), 1.0))
    return Table(
        f"Parts of the scores of the first {TOP} results",
        [
            text_column("Part"),
            Column("Share of the score", percent),
            Column("Dimensions per result", one),
        ],
        entries,
        f"Means over {len(pairs):,} results in all vocabularies. Dimensions: those that the query "
        "and the result share.",
    )


def _mean(part: Any, total: Any) -> float:
    shares = np.divide(part, total, out=np.zeros(len(total)), where=total > 0)
    return float(shares.mean()) if shares.size else 0.0


def _failures(subject: Subject, ndcg: dict[str, float]) -> Table:
    questions = subject.questions
    assert questions is not None
    relevant: dict[str, set[str]] = {}
    for qrel in questions.qrels:
        if qrel.relevance > 0:
            relevant.setdefault(qrel.query_id, set()).add(qrel.document_id)
    ranked = []
    for query, hits in zip(questions.queries, subject.hits(), strict=True):
        wanted = relevant.get(query.id, set())
        ranks = [rank for rank, hit in enumerate(hits, 1) if hit.id in wanted]
        if wanted and ndcg[query.id] < 1:
            first = ranks[0] if ranks else DEPTH + 1
            top = hits[0].id if hits else None
            ranked.append((ndcg[query.id], -first, query, top, first))
    worst = sorted(ranked, key=lambda row: row[:2])[:FAILURES]
    rows = []
    for value, _, query, top, first in worst:
        best = "nothing" if top is None else f"{top}: {_shown(subject, top)}"
        rows.append((cut(query.text), query.id, value, first, best))
    return Table(
        "The queries with the lowest nDCG@10",
        [
            text_column("Query"),
            text_column("Id"),
            Column("nDCG@10", three),
            Column(
                "First relevant at", lambda rank: count(rank) if rank <= DEPTH else f"> {DEPTH}"
            ),
            text_column("Found first"),
        ],
        rows,
        "Judgements are rarely complete: the first result may be relevant and not judged.",
    )


def _shown(subject: Subject, document_id: str) -> str:
    document = subject.index.document(document_id)
    return cut(document.title or document.text, 90)
