"""``python -m benchmarks.mini FOLDER:SPLIT ... --out OUT``: lexicept-mini on collections it never
saw, beside BM25, the dense model that it is made of, their fusion, and concepts trained on the
collection itself.

Differences from words and concepts together have 95 % confidence intervals: paired bootstrap over
queries. The fusion's weight is fixed, and for comparison the best on the very queries that it is
reported on. Indexes are kept in OUT.
"""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import scipy.sparse as sp

from benchmarks.baselines import WEIGHTS
from benchmarks.common import Table
from benchmarks.start_up import LEXICEPT
from lexicept.corpora import Qrel, Query, read_qrels, read_queries
from lexicept.evaluation import effectiveness
from lexicept.evaluation.sweep import Point, SweepGrid, sweep
from lexicept.index.builder import Contents
from lexicept.index.reader import IndexReader
from lexicept.measures import mean_length, qd_flops
from lexicept.models.loading import DEFAULT_BACKBONE
from lexicept.progress import ProgressBars
from lexicept.training.candidates.neural_teachers import embeddings
from lexicept.vectors import Floats

NDCG = "nDCG@10"
RESAMPLES = 10_000
FUSION = 20.0
"""Weight of the cosine beside BM25, that of lexicept-mini's teacher."""

GRID = SweepGrid(
    document_max_active_dims=(40, 80, 160), query_max_qd_flops=(0.25, 0.5, 1.0, 1.5, 3.0, None)
)
BATCH = 256


class System(NamedTuple):
    """Effectiveness and cost of a search system."""

    name: str
    ndcg: Mapping[str, float]
    """nDCG@10 by query."""
    qd_flops: float | None = None
    """QD-FLOPs of its concepts alone."""
    document_length: float | None = None


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mini", description=__doc__)
    parser.add_argument("collections", nargs="+", metavar="FOLDER:SPLIT")
    parser.add_argument("--every", type=int, default=1, help="Take every so many queries.")
    parser.add_argument("--own", action="store_true", help="Also concepts of the collection.")
    parser.add_argument("--plot", action="store_true", help="Sweep pruning, and plot.")
    parser.add_argument("--model", help="Another model in place of the packaged one.")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    for place in arguments.collections:
        folder, _, split = place.rpartition(":")
        queries = sorted(read_queries(folder, split))[:: arguments.every]
        kept = {query.id for query in queries}
        qrels = [qrel for qrel in read_qrels(folder, split) if qrel.query_id in kept]
        sources = {"lexicept-mini": ["--model", arguments.model] if arguments.model else []}
        if arguments.own:
            sources["trained here"] = ["--train-concepts"]
        indexes = {
            name: built(folder, arguments.out / f"{Path(folder).name}.{name.split()[0]}", options)
            for name, options in sources.items()
        }
        systems = baselines(indexes["lexicept-mini"], queries, qrels, arguments.out)
        for name, index in indexes.items():
            systems += searched(name, index, queries, qrels)
        print(compared(Path(folder).name, systems, "lexicept-mini, both").markdown(), flush=True)
        if arguments.plot:
            work = arguments.out / f"{Path(folder).name}.sweep"
            points = {
                name: sweep(index, queries, qrels, GRID, work / name.replace(" ", "-"))
                for name, index in indexes.items()
            }
            plot(points, systems, work.with_suffix(".png"))


def built(folder: str, path: Path, options: Sequence[str]) -> IndexReader:
    """Build an index of a collection, or open it."""
    if not path.exists():
        command = [LEXICEPT, "build", folder, "--out", str(path), *options]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return IndexReader.open(path)


def baselines(
    index: IndexReader, queries: Sequence[Query], qrels: Sequence[Qrel], work: Path
) -> list[System]:
    """Measure BM25, the dense model, and their fusions."""
    texts = [query.text for query in queries]
    with ProgressBars() as progress:
        asked, documents = embeddings(
            DEFAULT_BACKBONE, texts, Contents(index.folder), work / "embeddings", progress
        )
    words = (
        index.query_vectors(texts, "words"),
        sp.csr_array(index.document_vectors().select("words").weights),
    )
    words = (words[0][:, index.span("words")], words[1])

    def fused(weights: tuple[float, float]) -> Mapping[str, float]:
        run = {}
        for start in range(0, len(queries), BATCH):
            part = slice(start, start + BATCH)
            scores = weights[0] * (words[0][part] @ words[1].T).toarray()
            scores = scores + weights[1] * (single(asked[part]) @ single(documents).T)
            for query, row in zip(queries[part], scores, strict=True):
                best = np.argsort(-row, kind="stable")[:10]
                run[query.id] = {index.ids[d]: float(row[d]) for d in best}
        return effectiveness.evaluate_queries(qrels, run, [NDCG])[NDCG]

    all_weights = {weight: fused((1.0, weight)) for weight in WEIGHTS}
    best = max(all_weights, key=lambda weight: float(np.mean([*all_weights[weight].values()])))
    return [
        System("BM25", all_weights[0.0]),
        System("dense MiniLM", fused((0.0, 1.0))),
        System(f"BM25 + {FUSION:g} cos", all_weights[FUSION]),
        System(f"BM25 + {best:g} cos, weight of these queries", all_weights[best]),
    ]


def single(vectors: Floats) -> Floats:
    """Half precision is slow to multiply."""
    return vectors.astype(np.float32)


def searched(
    name: str, index: IndexReader, queries: Sequence[Query], qrels: Sequence[Qrel]
) -> list[System]:
    """Measure concepts alone, and words and concepts."""
    span = index.span("concepts")
    asked = index.query_vectors([query.text for query in queries], "concepts")[:, span]
    documents = index.document_vectors().select("concepts").weights
    cost = (qd_flops(asked, documents), mean_length(documents))
    systems = []
    for shown, vocabulary in (("concepts", "concepts"), ("both", None)):
        run = effectiveness.evaluate_index(index, queries, qrels, vocabulary).run
        values = effectiveness.evaluate_queries(qrels, run, [NDCG])[NDCG]
        systems.append(System(f"{name}, {shown}", values, *cost))
    return systems


def compared(title: str, systems: Sequence[System], subject: str) -> Table:
    """Return nDCG@10, the subject's gain over each with its interval, and costs."""
    (ours,) = (system for system in systems if system.name == subject)
    rows = []
    for system in systems:
        difference = np.array([ours.ndcg[query] - system.ndcg[query] for query in ours.ndcg])
        low, high = interval(difference)
        ahead = "" if system is ours else f"{difference.mean():+.3f} [{low:+.3f}, {high:+.3f}]"
        cost = "" if system.qd_flops is None else f"{system.qd_flops:.2f}"
        length = "" if system.document_length is None else f"{system.document_length:.0f}"
        mean = float(np.mean([*system.ndcg.values()]))
        rows.append([system.name, f"{mean:.4f}", ahead, cost, length])
    columns = [f"{title}, {len(ours.ndcg)} queries", NDCG, "mini ahead by", "QD-FLOPs", "length"]
    return Table(title, columns, rows)


def interval(differences: Floats) -> tuple[float, float]:
    """Return the 95 % interval of means of resampled queries."""
    random = np.random.default_rng(0)
    drawn = random.integers(differences.size, size=(RESAMPLES, differences.size), dtype=np.int32)
    low, high = np.percentile(differences[drawn].mean(axis=1), [2.5, 97.5])
    return float(low), float(high)


def plot(points: Mapping[str, Sequence[Point]], systems: Sequence[System], path: Path) -> None:
    """Plot nDCG@10 against QD-FLOPs of all vocabularies; systems without postings are lines."""
    figure, axes = plt.subplots(figsize=(6, 4))
    for name, measured in points.items():
        axes.scatter([p.qd_flops for p in measured], [p.ndcg for p in measured], s=12, label=name)
    for number, system in enumerate(systems[:3]):
        mean = float(np.mean([*system.ndcg.values()]))
        axes.axhline(mean, color=f"C{number + 5}", linewidth=1, label=system.name)
    axes.set(xlabel="QD-FLOPs, words and concepts", ylabel=NDCG, xscale="log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("{x:g}")
    axes.legend(fontsize=7)
    figure.savefig(path, dpi=120, bbox_inches="tight")
    plt.close(figure)


if __name__ == "__main__":
    main()
