"""How well an index answers queries, in each vocabulary and in all, and where it fails."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from lexicept.evaluation.significance import paired_t_test
from lexicept.measures import e2
from lexicept.reports import charts
from lexicept.reports.cost import qd_flops
from lexicept.reports.material import DEPTH, MEASURES, Subject
from lexicept.reports.page import Block, Column, Figure, Note, Section, Table, text_column
from lexicept.reports.wording import count, cut, one, percent, three, two
from lexicept.vectors import row_numbers

TOP = 10
FAILURES = 12


def effectiveness(subject: Subject) -> Section:
    """Measures, the spread over queries, what scores are made of, and failures."""
    questions = subject.questions
    assert questions is not None
    blocks: list[Block] = []
    if not questions.judged:
        blocks.append(
            Note(
                "No judged queries were given. Random sentences of the documents stand in for "
                "them, each with its own document as the only right answer: they share its very "
                "words, so that the values are far above those of real queries, and favour words. "
                "Compare them with one another only."
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
        "nDCG@10 is 1 where the relevant documents stand first and less the deeper they are, down "
        "to 0 where none is among the first ten. R@100 is the share of the relevant documents "
        "that are among the first hundred, RR@10 one over the rank of the first relevant one. "
        f"Means over {questions.describe()}.",
        blocks,
    )


def _measures(subject: Subject, values: dict[str | None, dict[str, dict[str, float]]]) -> Table:
    rows = []
    whole = values[None]["nDCG@10"]
    for name, measured in values.items():
        means = [float(np.mean(list(measured[measure].values()))) for measure in MEASURES]
        flops = qd_flops(subject, name)
        p = float("nan")
        if name is not None and len(whole) > 1:
            p = paired_t_test(whole, measured["nDCG@10"]).p
        rows.append((_title(subject, name), *means, flops, e2(means[2], flops), p))
    columns = [text_column("Searched"), *(Column(measure, three) for measure in MEASURES)]
    columns += [Column("QD-FLOPs", two), Column("E²", three)]
    note = "E² is RR@10 less a penalty for QD-FLOPs (SAE-SPLADE)."
    if len(rows) > 1:
        columns.append(Column("p", lambda value: "" if np.isnan(value) else f"{value:.2g}"))
        note += " p: paired t-test of nDCG@10 against that of all vocabularies."
    return Table("Effectiveness and cost", columns, [row[: len(columns)] for row in rows], note)


def _title(subject: Subject, name: str | None) -> str:
    return name or ("all together" if len(subject.names) > 1 else subject.names[0])


def _chart(values: dict[str | None, dict[str, dict[str, float]]]) -> Figure:
    series = [
        (name or "all", [float(np.mean(list(measured[m].values()))) for m in MEASURES])
        for name, measured in values.items()
    ]
    svg = charts.columns("Measures by vocabulary", MEASURES, series, "", "mean over the queries")
    return Figure(svg, "What each vocabulary finds alone, and all of them in one search.")


def _spread(ndcg: dict[str, float]) -> Figure:
    edges = np.linspace(0, 1, 11)
    found = np.array(list(ndcg.values()))
    counts, _ = np.histogram(found, edges)
    svg = charts.histogram(
        "Queries by nDCG@10", edges.tolist(), counts.tolist(), "nDCG@10", "queries"
    )
    caption = (
        f"Queries by nDCG@10, all vocabularies: {percent((found == 0).mean())} find nothing "
        f"relevant in the first ten, {percent((found >= 1 - 1e-9).mean())} could not be better."
    )
    return Figure(svg, caption)


def _composition(subject: Subject) -> Table:
    """What of the scores of the first ten results comes from where."""
    index = subject.index
    pairs = [
        (query, index.document_number(hit.id))
        for query, hits in enumerate(subject.hits())
        for hit in hits[:TOP]
    ]
    queries, rows = (
        np.array(side, np.int64) for side in (zip(*pairs, strict=True) if pairs else ((), ()))
    )
    products = sp.csr_array(subject.asked[queries].multiply(subject.matrix[rows]))
    prior = index.engine.offsets[rows] * (subject.asked @ index.derived.background)[queries]
    total = np.asarray(products.sum(axis=1)).ravel() + prior
    found: list[tuple[Any, ...]] = []
    for name in subject.names:
        span = subject.span(name)
        inside = (products.indices >= span.start) & (products.indices < span.stop)
        sums = np.bincount(
            row_numbers(products)[inside], products.data[inside], minlength=len(pairs)
        )
        dimensions = inside.sum() / max(len(pairs), 1)
        found.append((name, _mean(sums, total), dimensions))
    if index.rra is not None:
        found.append(("RRA's prior", _mean(prior, total), 1.0))
    return Table(
        f"What the scores of the first {TOP} results are made of",
        [
            text_column("Part"),
            Column("Share of the score", percent),
            Column("Dimensions per result", one),
        ],
        found,
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
        "The queries that fare worst",
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
        "Judgements are rarely complete: what stands first may be right and not judged.",
    )


def _shown(subject: Subject, document_id: str) -> str:
    document = subject.index.document(document_id)
    return cut(document.title or document.text, 90)
