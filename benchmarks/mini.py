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
from benchmarks.judged import (
    NDCG,
    SUBJECT,
    Collection,
    System,
    ahead,
    decimal,
    opened,
)
from benchmarks.pareto import draw
from benchmarks.rerankers import baselines
from lexicept.evaluation.runs import run_of_hits
from lexicept.measures import mean_length, qd_flops
from lexicept.vectors import place_columns

ALL = "words, concepts and whole texts"

SEARCHED = {
    "concepts": ["concepts"],
    SUBJECT: ["words", "concepts"],
    ALL: ["words", "concepts", "texts"],
}
"""Vocabularies of each system; costs are those of all but the words."""


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
    for place in arguments.collections:
        collection = opened(place, arguments.out, options, arguments.every)
        systems = [*baselines(collection, arguments.out), *searched(collection)]
        print(compared(collection, systems).markdown(), flush=True)
        measured.append((collection, systems))
    if arguments.plot:
        chosen_on = [opened(place, arguments.out, options) for place in arguments.plot]
        for table in draw(chosen_on, measured, arguments.out):
            print(table.markdown(), flush=True)


def searched(collection: Collection) -> list[System]:
    """Measure concepts alone, words and concepts, and these with whole texts where the index has
    them."""
    index, qrels = collection.index, collection.qrels
    documents = index.engine.matrix()
    known = {vocabulary.name for vocabulary in index.vocabularies}
    systems = []
    asked = index.query_vectors(collection.texts)
    for name, vocabularies in SEARCHED.items():
        if not known.issuperset(vocabularies):
            continue
        spans = [(of, index.span(of)) for of in vocabularies]
        vectors = place_columns([(s.start, asked[:, s]) for _, s in spans], asked.shape[1])
        costly = [span for of, span in spans if of != "words"]
        cost = sum(qd_flops(asked[:, span], documents[:, span]) for span in costly)
        length = sum(mean_length(documents[:, span]) for span in costly)
        hits = index.rank(vectors, 10)
        run = run_of_hits([query.id for query in collection.queries], hits)
        systems.append(System.of_run(name, qrels, run, cost, length))
    return systems


def compared(collection: Collection, systems: Sequence[System]) -> Table:
    """Return nDCG@10, how far the default is ahead with its interval, and costs."""
    ours = next(s for name in (ALL, SUBJECT) for s in systems if s.name == name)
    rows = []
    for system in systems:
        cost = "" if system.qd_flops is None else f"{system.qd_flops:.2f}"
        length = "" if system.document_length is None else f"{system.document_length:.0f}"
        cells = [system.name, decimal(system.mean, 4)]
        if system is ours:
            cells = [f"**{cell}**" for cell in cells]
        rows.append([*cells, "" if system is ours else ahead(ours, system), cost, length])
    title = f"{collection.name}, {len(ours.ndcg)} queries"
    columns = [title, NDCG, f"{ours.name} ahead by", "QD-FLOPs", "length"]
    return Table(title, columns, rows)


if __name__ == "__main__":
    main()
