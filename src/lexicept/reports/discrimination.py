"""The section on how well each dimension tells documents apart, for its cost.

A dimension's power is the variance of its weight over all documents, zeros counted: the variance
that it gives to the scores of a query with weight 1 on it. Its cost is the length of its posting
list. Both as shares of their sums over a vocabulary can be compared: a dimension that takes a
larger share of the postings than of the variance costs more than it says.
"""

from __future__ import annotations

import numpy as np

from lexicept.reports import charts
from lexicept.reports.material import Spread, Subject
from lexicept.reports.page import Block, Column, Figure, Group, Note, Section, Table, text_column
from lexicept.reports.wording import count, metered, percent, three, two
from lexicept.vectors import Floats, Integers

ROWS = 15
POINTS = 2000
"""Points of the chart."""

FLOOR = 1e-5
"""Smallest power in the chart, as a share of the largest; smaller ones are drawn here."""

COMMON = 0.01
"""Smallest share of documents of a dimension listed as least discriminative."""


def variance_shares(spread: Spread) -> Floats:
    """Return each dimension's share of its vocabulary's variance [V]; all 0 without variance."""
    total = spread.variance.sum()
    shares: Floats = spread.variance / total if total else np.zeros_like(spread.variance)
    return shares


def discrimination(subject: Subject) -> Section:
    """Write the section with each vocabulary's most and least discriminative dimensions."""
    blocks: list[Block] = []
    for name in reversed(subject.names):
        spread = subject.spread(name)
        if spread.documents.any():
            blocks.append(Group(name.capitalize(), _vocabulary(subject, name, spread)))
    return Section(
        "discrimination",
        "Discriminative dimensions",
        "A dimension with the same weight in all documents adds the same to every score: it costs "
        "time and changes no ranking. A dimension whose weight varies decides rankings. Power is "
        "the variance of a dimension's weight over all documents (0 where a document lacks it), "
        "as a share of its vocabulary's sum. Cost is its share of all postings. Dimensions above "
        "the diagonal have more power than cost.",
        blocks,
    )


def _vocabulary(subject: Subject, name: str, spread: Spread) -> list[Block]:
    power = variance_shares(spread)
    cost = spread.documents / spread.documents.sum()
    terms = subject.terms(name)
    best = np.argsort(-power, kind="stable")[:ROWS]
    best = best[power[best] > 0]
    common = np.flatnonzero(spread.documents >= max(COMMON * len(subject), 10))
    ratio = power[common] / cost[common]
    worst = common[np.argsort(ratio, kind="stable")[:ROWS]]
    worst = worst[power[worst] < cost[worst]]
    blocks: list[Block] = [_plot(subject, name, power, cost, best, worst)]
    for title, chosen in (
        (f"The {len(best)} most discriminative {name}", best),
        (f"The {len(worst)} least discriminative {name}", worst),
    ):
        rows = [
            (
                terms[n],
                int(spread.documents[n]),
                spread.documents[n] / len(subject),
                float(spread.mean[n]),
                float(power[n]),
                float(cost[n]),
                float(power[n] / cost[n]),
            )
            for n in chosen.tolist()
        ]
        if rows:
            blocks.append(_table(title, name, rows))
    return blocks


def _table(
    title: str, name: str, rows: list[tuple[str, int, float, float, float, float, float]]
) -> Table:
    most = max(max(row[4], row[5]) for row in rows)
    return Table(
        title,
        [
            text_column(name.capitalize()),
            Column("Documents", count),
            Column("Share of documents", percent),
            Column("Mean weight", three),
            Column("Power", lambda share: metered(share, most)),
            Column("Cost", lambda share: metered(share, most)),
            Column("Power / cost", two),
        ],
        rows,
        "Mean weight: over the documents that have it. The least discriminative have the lowest "
        f"power for their cost, among those in at least {COMMON:.0%} of the documents (and 10).",
    )


def _plot(
    subject: Subject, name: str, power: Floats, cost: Floats, best: Integers, worst: Integers
) -> Block:
    shown = np.flatnonzero(power > 0)
    if not shown.size:
        return Note(f"All documents have the same {name} with the same weights.")
    total = shown.size
    if total > POINTS:
        chosen = np.random.default_rng(0).choice(shown, POINTS, replace=False)
        shown = np.union1d(chosen, np.concatenate([best, worst]))
    terms = subject.terms(name)
    drawn = np.maximum(power, FLOOR * power.max())
    marks = [
        charts.Mark(float(cost[n]), float(drawn[n]), terms[n])
        for n in [*best[:3].tolist(), *worst[:3].tolist()]
    ]
    svg = charts.scatter(
        f"Power against cost of {name}",
        [charts.Series(name, cost[shown].tolist(), drawn[shown].tolist())],
        "cost: share of all postings",
        "power: share of the variance",
        log_x=True,
        log_y=True,
        diagonal=True,
        marks=marks,
    )
    points = f"{total:,} {name}" if total == shown.size else f"{shown.size:,} of {total:,} {name}"
    return Figure(
        svg,
        f"Each point is one of {points} with any variance, on logarithmic axes. On the dashed "
        "diagonal power equals cost. The three most and least discriminative are named. Powers "
        "below 1/100,000 of the largest are drawn at that height.",
    )
