"""``python -m benchmarks.mini FOLDER:SPLIT ... --out OUT``: the default build beside BM25 and
the dense model whose states it reads, in one run.

All settings are fixed beforehand. Differences from all vocabularies together have 95 %
confidence intervals: paired bootstrap over queries. ``--plot`` draws words and concepts against
cost, with settings that were chosen on the collections that it names. Indexes and
embeddings are kept in OUT, and an interrupted run goes on from there.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks.common import Table
from benchmarks.judged import NDCG, Collection, System, ahead, decimal, opened
from benchmarks.pareto import draw
from benchmarks.rerankers import baselines
from lexicept.evaluation.runs import run_of_hits
from lexicept.measures import mean_length, qd_flops

ALL, SPARSE = "all", "sparse"

SEARCHED: dict[str, tuple[str | None, bool]] = {
    "concepts": ("concepts", False),
    SPARSE: (None, False),
    ALL: (None, True),
}
"""Vocabulary of each system, None for all, and whether the similarity of whole texts is added;
costs are those of the concepts."""


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mini", description=__doc__)
    parser.add_argument("collections", nargs="+", metavar="FOLDER:SPLIT")
    parser.add_argument("--every", type=int, default=1, help="Take every so many queries.")
    parser.add_argument(
        "--plot",
        nargs="+",
        default=[],
        metavar="FOLDER:SPLIT",
        help="Draw effectiveness against cost, with settings chosen on these collections.",
    )
    parser.add_argument("--model", help="Another model in place of the packaged one.")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    options = ["--model", arguments.model] if arguments.model else []
    measured = []
    for path in arguments.collections:
        collection = opened(path, arguments.out, options, arguments.every)
        systems = [*baselines(collection, arguments.out), *searched(collection)]
        print(compared(collection, systems).markdown(), flush=True)
        measured.append((collection, systems))
    if arguments.plot:
        chosen_on = [opened(path, arguments.out, options) for path in arguments.plot]
        for table in draw(chosen_on, measured, arguments.out):
            print(table.markdown(), flush=True)


def searched(collection: Collection) -> list[System]:
    """Measure concepts alone, and words and concepts without and with the similarity of whole
    texts."""
    index, qrels = collection.index, collection.qrels
    span = index.span("concepts")
    documents = index.engine.matrix()[:, span]
    systems = []
    for name, (vocabulary, rescore) in SEARCHED.items():
        weighted = index.weigh(collection.texts, vocabulary, rescore=rescore)
        cost = qd_flops(weighted.weights[:, span], documents)
        hits = index.rank(weighted, 10)
        run = run_of_hits([query.id for query in collection.queries], hits)
        systems.append(System.of_run(name, qrels, run, cost, mean_length(documents)))
    return systems


def compared(collection: Collection, systems: Sequence[System]) -> Table:
    """Return nDCG@10, how far the default is ahead with its interval, and costs."""
    ours = next(system for system in systems if system.name == ALL)
    lines = []
    for system in systems:
        cost = "" if system.qd_flops is None else f"{system.qd_flops:.2f}"
        length = "" if system.document_length is None else f"{system.document_length:.0f}"
        cells = [system.name, decimal(system.mean, 4)]
        if system is ours:
            cells = [f"**{cell}**" for cell in cells]
        lines.append([*cells, "" if system is ours else ahead(ours, system), cost, length])
    title = f"{collection.name}, {len(ours.ndcg)} queries"
    columns = [title, NDCG, f"{ours.name} ahead by", "QD-FLOPs", "length"]
    return Table(title, columns, lines)


if __name__ == "__main__":
    main()
