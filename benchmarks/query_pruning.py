"""``python -m benchmarks.query_pruning DATA --out FOLDER``: query limits by weight and by impact.

CACM and Vaswani in default builds, which FOLDER keeps, and NFCorpus in SPLADE-v3's vectors.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import scipy.sparse as sp

from benchmarks.common import Table, read_vectors
from benchmarks.judged import NDCG, Collection, System, ahead, decimal, opened
from lexicept.corpora import read_qrels
from lexicept.engines import ExactEngine
from lexicept.evaluation.runs import run_of_rows
from lexicept.index.impacts import VocabularySettings
from lexicept.measures import qd_flops
from lexicept.vectors import canonical_csr, stack_columns
from lexicept.weighting import Unchanged

DIMS = (3, 5, 8, 16, 32)
BUDGETS = (0.5, 1.0, 2.0)
LIMITS = [*((dims, None) for dims in DIMS), *((None, budget) for budget in BUDGETS)]

Prune = Callable[[VocabularySettings], tuple[sp.csr_array, sp.csr_array]]
Evaluate = Callable[[sp.csr_array, sp.csr_array], System]


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.query_pruning", description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="Folder of indexes.")
    arguments = parser.parse_args()
    for table in run(arguments.data, arguments.out):
        print(f"\n{table.name}\n\n{table.markdown()}", flush=True)


def run(data: Path, out: Path) -> Iterator[Table]:
    """Yield a table for each collection."""
    for name in ("cacm:test", "vaswani_npl:test"):
        collection = opened(str(data / name), out, [])
        for beside in (False, True):
            yield of_index(collection, beside)
    yield of_vectors(data / "nfcorpus_splade_v3", data / "bert_vocab" / "vocab.txt")


def of_index(collection: Collection, beside: bool) -> Table:
    """Compare queries of an index's concepts, alone or beside its words."""
    index = collection.index
    settings = index.settings["concepts"]
    names = [vocabulary.name for vocabulary in index.vocabularies]
    documents = settings.weighting.documents(index.tf()[names.index("concepts")])
    tf = canonical_csr(index.vectorizer("concepts").queries(collection.texts))
    queries = settings.weighting.queries(tf)
    words = index.document_vectors().select("words").weights
    query_words = index.query_vectors(collection.texts, "words")[:, index.span("words")] * beside
    ids = [query.id for query in collection.queries]

    def evaluate(pruned_queries: sp.csr_array, kept: sp.csr_array) -> System:
        engine = ExactEngine.build(stack_columns([words, kept]))
        hits = engine.search(canonical_csr(stack_columns([query_words, pruned_queries])), 10)
        result = run_of_rows(ids, hits, index.ids)
        return System.of_run("", collection.qrels, result, qd_flops(pruned_queries, kept))

    name = f"{collection.name}, {'words and concepts' if beside else 'concepts'}"
    limits = replace(settings, query_max_active_dims=None, query_max_qd_flops=None)
    return compared(name, limits, lambda setting: setting.prune(queries, documents), evaluate)


def of_vectors(folder: Path, vocabulary: Path) -> Table:
    """Compare queries of published vectors."""
    vectors = read_vectors(folder, vocabulary, 0.01)
    qrels = list(read_qrels(folder))
    judged = {qrel.query_id for qrel in qrels}
    query_indices = [i for i, name in enumerate(vectors.query_ids) if name in judged]
    ids, queries = (
        [vectors.query_ids[i] for i in query_indices],
        sp.csr_array(vectors.queries[query_indices]),
    )

    def evaluate(pruned_queries: sp.csr_array, kept: sp.csr_array) -> System:
        hits = ExactEngine.build(kept).search(pruned_queries, 10)
        actual = run_of_rows(ids, hits, vectors.document_ids)
        return System.of_run("", qrels, actual, qd_flops(pruned_queries, kept))

    limits = VocabularySettings(Unchanged())
    prune: Prune = lambda setting: setting.prune(queries, vectors.documents)  # noqa: E731
    return compared("nfcorpus_splade_v3", limits, prune, evaluate)


def compared(name: str, limits: VocabularySettings, prune: Prune, evaluate: Evaluate) -> Table:
    """Evaluate every limit in both ways."""
    lines = []
    for dims, budget in LIMITS:
        setting = replace(limits, query_max_active_dims=dims, query_max_qd_flops=budget)
        weight = evaluate(*prune(replace(setting, pruning="weight")))
        impact = evaluate(*prune(replace(setting, pruning="impact")))
        limit_text = f"{dims} dimensions" if budget is None else f"{budget:g} QD-FLOPs"
        lines.append(
            [
                limit_text,
                *(f"{decimal(s.mean, 4)} @ {s.qd_flops:.2f}" for s in (weight, impact)),
                ahead(impact, weight),
            ]
        )
    columns = [f"{name}: {NDCG} @ QD-FLOPs", "by weight", "by impact", "impact − weight"]
    return Table(name, columns, lines)


if __name__ == "__main__":
    main()
