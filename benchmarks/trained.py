"""``python -m benchmarks.trained``: a trained model, tuned on one split, reported on another.

Sweeps pruning and RRA on the choosing split, takes the best nDCG@10 within each budget of QD-FLOPs,
and evaluates these settings alone, once, on the reporting split.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from pathlib import Path

from benchmarks.start_up import LEXICEPT
from lexicept.corpora import read_qrels, read_queries
from lexicept.evaluation.effectiveness import JudgedQueries
from lexicept.evaluation.sweep import Point, SweepGrid, sweep
from lexicept.index.reader import IndexReader

QUERY_DIMS = (8, 10, 12, 14, 16, 20, 24, 32, 48, None)
DOCUMENT_DIMS = (60, 80, 100, 125, 150, 200, 250, 300, 400, None)
ALPHAS = (None, 1.0, 1.5)
SCALES = (0.25, 0.5, 0.75, 1.0)
"""Factors on the concepts' weights beside words."""


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.trained", description=__doc__)
    parser.add_argument("model", type=Path, help="A trained encoder, or an index that has one.")
    parser.add_argument("--choose", required=True, help="FOLDER:SPLIT to choose settings on.")
    parser.add_argument("--documents", help="Of the choosing split; those of its FOLDER if not.")
    parser.add_argument("--report", required=True, help="FOLDER:SPLIT to report on.")
    parser.add_argument("--out", type=Path, required=True, help="Indexes and sweeps go here.")
    parser.add_argument("--vocabulary", choices=["concepts", "all"], required=True)
    parser.add_argument("--budgets", default="1,1.5,2,2.5,3,5,8,1000")
    parser.add_argument("--coarse", action="store_true", help="A grid of a tenth, without RRA.")
    arguments = parser.parse_args()
    vocabulary = None if arguments.vocabulary == "all" else "concepts"
    step, alphas = (3, (None,)) if arguments.coarse else (1, ALPHAS)
    scales = SCALES if arguments.vocabulary == "all" else (1.0,)
    grid = SweepGrid(QUERY_DIMS[::step], DOCUMENT_DIMS[::step], alpha=alphas, query_scale=scales)
    tried = _sweep(arguments, arguments.choose, "choose", grid, vocabulary)
    lines = []
    for budget in map(float, arguments.budgets.split(",")):
        within = [point for point in tried if point.qd_flops <= budget]
        if not within:
            continue
        best = max(within, key=lambda point: point.ndcg)
        query, document, alpha, scale = best.setting
        settings = SweepGrid((query,), (document,), alpha=(alpha,), query_scale=(scale,))
        (point,) = _sweep(arguments, arguments.report, "report", settings, vocabulary)
        lines.append((budget, best, point))
        print(json.dumps({"budget": budget, "chosen_on": best.ndcg, **point.to_json()}), flush=True)
    print(_table(lines))


def _sweep(
    arguments: argparse.Namespace, path: str, name: str, grid: SweepGrid, vocabulary: str | None
) -> list[Point]:
    folder, _, split = path.rpartition(":")
    index = _index(arguments, (name == "choose" and arguments.documents) or folder)
    out = arguments.out / f"{name}-{arguments.vocabulary}"
    queries = list(read_queries(folder, split))
    qrels = list(read_qrels(folder, split))
    return sweep(index, JudgedQueries(queries, qrels), grid, out, vocabulary)


def _index(arguments: argparse.Namespace, corpus: str) -> IndexReader:
    if (arguments.model / "manifest.json").exists():
        return IndexReader.open(arguments.model)
    path = arguments.out / f"{Path(corpus).name}.index"
    if not path.exists():
        command = [LEXICEPT, "build", corpus, "--out", str(path), "--model", str(arguments.model)]
        subprocess.run(command, check=True)
    return IndexReader.open(path)


def _table(records: list[tuple[float, Point, Point]]) -> str:
    lines = ["| QD-FLOPs at most | chosen on: nDCG@10 | QD-FLOPs | nDCG@10 | RR@10 | limits, α |"]
    lines.append("| --- " * 6 + "|")
    for budget, setting, point in records:
        query, document, alpha, scale = point.setting
        limits = f"{query or 'all'} / {document or 'all'}" + (f", α {alpha}" if alpha else "")
        limits += f", scale {scale:g}" if scale != 1 else ""
        mrr = point.values["RR@10"]
        values = f"{setting.ndcg:.4f} | {point.qd_flops:.2f} | {point.ndcg:.4f} | {mrr:.4f}"
        lines.append(f"| {budget:g} | {values} | {limits} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
