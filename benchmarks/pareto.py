"""Effectiveness against cost: limits of documents and queries, chosen on development data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby, product
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np

from benchmarks.common import Table
from benchmarks.judged import NDCG, SUBJECT, Collection, System, decimal
from lexicept.engines import ExactEngine
from lexicept.evaluation.runs import run_of_rows
from lexicept.index.impacts import VocabularySettings
from lexicept.measures import qd_flops
from lexicept.vectors import canonical_csr, largest_weights, prune_rows, stack_columns

DOCUMENTS = (40, 80, 120, 160, 240, None)
QUERIES = (16, 32, 64, None)
BUDGETS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)


class Limits(NamedTuple):
    """Limits on concepts."""

    document_max_active_dims: int | None
    query_max_active_dims: int | None
    query_max_qd_flops: float

    def __str__(self) -> str:
        return " / ".join("all" if limit is None else f"{limit:g}" for limit in self)


class Point(NamedTuple):
    """A collection with some limits."""

    concepts: System
    both: System


GRID = [Limits(*values) for values in product(DOCUMENTS, QUERIES, BUDGETS)]


def draw(
    chosen_on: Sequence[Collection], shown: Sequence[tuple[Collection, list[System]]], out: Path
) -> Iterator[Table]:
    """Choose limits for every budget, draw what they find in each collection, and yield a table.

    The choice is the largest nDCG@10 of words and concepts, the mean over the collections to choose
    on, among the limits whose budget is not above the given one.
    """
    tried = {collection.name: evaluated(collection, GRID) for collection in chosen_on}
    means = {
        limits: float(np.mean([points[limits].both.mean for points in tried.values()]))
        for limits in GRID
    }
    selection = {
        budget: max(
            (limits for limits in GRID if limits.query_max_qd_flops <= budget),
            key=means.__getitem__,
        )
        for budget in BUDGETS
    }
    for collection, systems in shown:
        points = evaluated(collection, list(dict.fromkeys(selection.values())))
        cloud = [*tried.get(collection.name, {}).values()]
        front = [points[limits] for limits in selection.values()]
        plot(collection.name, systems, front, cloud, out / f"{collection.name}.png")
        lines = [
            [
                f"{budget:g}",
                str(limits),
                decimal(means[limits], 4),
                decimal(points[limits].concepts.mean, 4),
                decimal(points[limits].both.mean, 4),
                f"{points[limits].both.qd_flops:.2f}",
                f"{points[limits].both.document_length:.0f}",
            ]
            for budget, limits in selection.items()
        ]
        choice = f"chosen on {' and '.join(tried)}: {NDCG}"
        columns = ["budget", "limits: documents / queries / QD-FLOPs", choice]
        columns += [f"{collection.name}: concepts", SUBJECT, "QD-FLOPs", "length"]
        yield Table(collection.name, columns, lines)


def evaluated(collection: Collection, grid: Sequence[Limits]) -> dict[Limits, Point]:
    """Measure an index with other limits; neighbours in the grid share the documents' weights."""
    index, qrels = collection.index, collection.qrels
    names = [vocabulary.name for vocabulary in index.vocabularies]
    settings = index.settings["concepts"]
    tf = index.tf()[names.index("concepts")]
    weights = settings.weighting.documents(tf)
    asked = settings.weighting.queries(
        canonical_csr(index.vectorizer("concepts").queries(collection.texts))
    )
    words = index.document_vectors().select("words").weights
    query_words = index.query_vectors(collection.texts, "words")[:, index.span("words")]
    ids = [query.id for query in collection.queries]
    points = {}
    for limit, group in groupby(grid, lambda limits: limits.document_max_active_dims):
        pruned_weights = weights if limit is None else prune_rows(weights, limit)
        engine = ExactEngine.build(stack_columns([words, pruned_weights]))
        bounds, df = (
            largest_weights(pruned_weights),
            np.bincount(pruned_weights.indices, minlength=pruned_weights.shape[1]),
        )
        for limits in group:
            setting: VocabularySettings = replace(settings, **limits._asdict())
            pruned = setting.prune_queries(asked, bounds, df, pruned_weights.shape[0])
            cost = (qd_flops(pruned, pruned_weights), pruned_weights.nnz / pruned_weights.shape[0])
            systems = []
            for name, beside in (("concepts", query_words * 0), (SUBJECT, query_words)):
                hits = engine.search(canonical_csr(stack_columns([beside, pruned])), 10)
                run = run_of_rows(ids, hits, index.ids)
                systems.append(System.of_run(name, qrels, run, *cost))
            points[limits] = Point(*systems)
    return points


def plot(
    title: str,
    systems: Sequence[System],
    front: Sequence[Point],
    cloud: Sequence[Point],
    path: Path,
) -> None:
    """Plot nDCG@10 against the concepts' QD-FLOPs; systems without postings are lines."""
    figure, axes = plt.subplots(figsize=(6, 4))
    axes.scatter([p.both.qd_flops for p in cloud], [p.both.mean for p in cloud], s=5, color="0.8")
    for name, style in (("both", "o-"), ("concepts", "o--")):
        drawn = [getattr(point, name) for point in front]
        axes.plot(
            [system.qd_flops for system in drawn],
            [system.mean for system in drawn],
            style,
            markersize=4,
            label=drawn[0].name,
        )
    flat = [system for system in systems if system.qd_flops is None]
    for i, system in enumerate(flat, 2):
        axes.axhline(system.mean, color=f"C{i}", linewidth=1, label=system.name)
    axes.set(title=title, xlabel="QD-FLOPs of the concepts", ylabel=NDCG, xscale="log")
    axes.set_xticks(BUDGETS, [f"{budget:g}" for budget in BUDGETS])
    axes.minorticks_off()
    axes.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1, 1))
    figure.savefig(path, dpi=120, bbox_inches="tight")
    plt.close(figure)
