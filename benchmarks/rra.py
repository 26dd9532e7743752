"""RRA: the time of one re-weighting, and the α that is chosen without judgements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from benchmarks.collections import zipf_collection
from benchmarks.common import README, Table, interleaved
from lexicept.corpora import Qrel, read_documents, read_qrels, read_queries
from lexicept.encoding.words import WordVectorizer
from lexicept.evaluation.effectiveness import evaluate_queries
from lexicept.evaluation.runs import run_of_rows
from lexicept.evaluation.significance import compare
from lexicept.index.impacts import Derived, RRASettings
from lexicept.index.reader import IndexReader
from lexicept.rra import reweight
from lexicept.weighting import BM25
from reproduction.alpha import ALPHAS, QUERY_SHARE, KnownItems, choose_alpha
from reproduction.sentences import from_texts

NDCG = "nDCG@10"
MOST_DOCUMENTS, MOST_QUERIES = 6000, 1500
COLLECTIONS = {
    "cacm": ("test", "development"),
    "vaswani_npl": ("test", "development"),
    "medquad": ("train", "development"),
    "squad_train": ("train", "development"),
    "scifact": ("test", "test"),
    "cranfield": ("test", "test"),
    "squad_dev": ("test", "test"),
}
"""Collection → its split, and what it is for here."""


def run(data: Path) -> list[Table]:
    """Time RRA, and choose α on all collections that are there."""
    tables = [times()]
    lines = [_words(data / name, *use) for name, use in COLLECTIONS.items() if _here(data / name)]
    for name, use in COLLECTIONS.items():
        index = README.parent / ".cache" / name
        if index.is_dir() and _here(data / name):
            lines.append(_index(index, data / name, *use))
    if lines:
        columns = ["collection", "weights", "use", "no RRA", "α 1", "α by verbatim sentences"]
        columns += ["α chosen", "difference from no RRA", "p", "best in hindsight"]
        tables.append(Table("rra_alpha", columns, lines))
    return tables


def _here(folder: Path) -> bool:
    if not folder.is_dir():
        print(f"SKIPPED {folder.name}: there is no {folder}")
    return folder.is_dir()


def times(
    num_documents: int = 3_633, num_dimensions: int = 30_522, nonzeros: int = 276, rounds: int = 9
) -> Table:
    """Time a synthetic collection of NFCorpus' size under SPLADE: one million non-zeros."""
    X = zipf_collection(num_documents, num_dimensions, nonzeros, seed=0)
    took = interleaved(
        {
            "1 iteration": lambda: reweight(X, alpha=1.25),
            "2 iterations": lambda: reweight(X, alpha=1.25, iterations=2),
        },
        rounds,
    )
    lines = [[name, f"{X.nnz:,}", f"{median(each):.3f} s"] for name, each in took.items()]
    return Table("rra", ["RRA", "non-zeros", "time"], lines)


class _Judged(NamedTuple):
    query_ids: list[str]
    queries: sp.csr_array
    qrels: list[Qrel]


def _words(folder: Path, split: str, use: str) -> list[str]:
    """Choose α for BM25, on a random part of a large collection."""
    documents = list(read_documents(folder))
    random = np.random.default_rng(0)
    documents_used = sorted(random.permutation(len(documents))[:MOST_DOCUMENTS])
    documents = [documents[i] for i in documents_used]
    ids = [document.id for document in documents]
    texts = [document.content for document in documents]
    vectorizer = WordVectorizer("en")
    weights = sp.csr_array(BM25(k1=0.9, b=0.4).documents(vectorizer.documents(texts)))
    judged = _judged(folder, split, set(ids), vectorizer.queries, random)
    line = _row(
        texts, ids, lambda rra: Derived.reweighted(weights, rra), vectorizer.queries, judged
    )
    return [folder.name, "BM25", use, *line]


def _index(path: Path, folder: Path, split: str, use: str) -> list[str]:
    """Choose α for an index of words and concepts."""
    index = IndexReader.open(path)
    settings, ids = list(index.settings.values()), list(index.ids)
    texts = [index.stored(i).content for i in range(len(ids))]
    random = np.random.default_rng(0)
    judged = _judged(folder, split, set(ids), index.query_vectors, random)

    def derive(rra: RRASettings | None) -> Derived:
        return Derived.compute(index.tf(), settings, rra)

    line = _row(texts, ids, derive, index.query_vectors, judged)
    return [folder.name, "words and concepts", use, *line]


def _judged(
    folder: Path,
    split: str,
    known: set[str],
    vectors: Callable[[Sequence[str]], sp.csr_array],
    random: np.random.Generator,
) -> _Judged:
    qrels = [qrel for qrel in read_qrels(folder, split) if qrel.document_id in known]
    names = sorted({qrel.query_id for qrel in qrels if qrel.relevance > 0})
    queries_used = {names[i] for i in random.permutation(len(names))[:MOST_QUERIES]}
    queries = [query for query in read_queries(folder, split) if query.id in queries_used]
    judgements = [qrel for qrel in qrels if qrel.query_id in queries_used]
    return _Judged([q.id for q in queries], vectors([q.text for q in queries]), judgements)


def _row(
    texts: Sequence[str],
    ids: Sequence[str],
    derive: Callable[[RRASettings | None], Derived],
    vectors: Callable[[Sequence[str]], sp.csr_array],
    judged: _Judged,
) -> list[str]:
    """Return nDCG@10 without RRA, at α 1, and at the α of two kinds of pseudo-queries."""
    values = {alpha: _values(alpha, derive, ids, judged) for alpha in (None, *ALPHAS)}
    means = {alpha: float(np.mean(list(each.values()))) for alpha, each in values.items()}
    document_indices, sentences = from_texts(texts)
    verbatim = choose_alpha(derive, KnownItems(document_indices, vectors(sentences))).alpha
    document_indices, halves = from_texts(texts, share=QUERY_SHARE)
    best_alpha = choose_alpha(
        derive, KnownItems.mismatched(document_indices, vectors(halves))
    ).alpha
    systems = {"without": {"nDCG@10": values[None]}, "chosen": {"nDCG@10": values[best_alpha]}}
    (test,) = compare(systems)
    best = max(ALPHAS, key=lambda alpha: means[alpha])
    cells = [f"{means[alpha]:.4f} (α {alpha:g})" for alpha in (verbatim, best_alpha, best)]
    differences = [f"{test.difference:+.4f}", f"{test.p:.2g}"]
    return [f"{means[None]:.4f}", f"{means[1.0]:.4f}", *cells[:2], *differences, cells[2]]


def _values(
    alpha: float | None,
    derive: Callable[[RRASettings | None], Derived],
    ids: Sequence[str],
    judged: _Judged,
) -> dict[str, float]:
    derived = derive(None if alpha is None else RRASettings(alpha))
    hits = derived.engine.search(judged.queries, 100, judged.queries @ derived.background)
    run = run_of_rows(judged.query_ids, hits, ids)
    return evaluate_queries(judged.qrels, run, [NDCG])[NDCG]
