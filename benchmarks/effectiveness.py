"""Effectiveness on judged collections: words, concepts, both, and RRA. Needs the data folder."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import mean

import bm25s
import numpy as np
import scipy.sparse as sp
import Stemmer

from benchmarks.common import README, Table, read_vectors
from benchmarks.start_up import LEXICEPT
from lexicept.corpora import Qrel, read_documents, read_qrels, read_queries
from lexicept.encoding.words import WordVectorizer
from lexicept.engines import ExactEngine
from lexicept.evaluation import effectiveness, significance
from lexicept.index.builder import Contents
from lexicept.index.impacts import Derived, RRASettings, VocabularySettings
from lexicept.index.reader import IndexReader
from lexicept.measures import qd_flops
from lexicept.vectors import largest_weights, prune_rows
from lexicept.weighting import BM25
from reproduction.alpha import KnownItems, choose_alpha, known_item_ndcg
from reproduction.sentences import from_texts
from reproduction.vector_queries import from_vectors

NDCG = "nDCG@10"
Found = Iterable[tuple[np.ndarray, np.ndarray]]


def run(data: Path, index: Path | None = None) -> list[Table]:
    """Make all tables whose data are present."""
    index = index or README.parent / ".cache" / "scifact"
    vocabulary, tables = data / "bert_vocab" / "vocab.txt", []
    scifact, nfcorpus = data / "scifact", data / "nfcorpus_splade_v3"
    if scifact.is_dir():
        tables += [words(scifact), vocabularies(scifact, index), pruning(scifact, index)]
    else:
        print(f"SKIPPED words, vocabularies, pruning: there is no {scifact}")
    if nfcorpus.is_dir() and vocabulary.exists():
        tables += [rra(nfcorpus, vocabulary)]
    else:
        print(f"SKIPPED rra_effectiveness: there is no {nfcorpus} or no {vocabulary}")
    return tables


def ndcg(
    query_ids: Sequence[str], document_ids: Sequence[str], rankings: Found, qrels: Sequence[Qrel]
) -> dict[str, float]:
    """Return the nDCG@10 of every query from its documents' numbers and scores, best first."""
    run = {
        query: {document_ids[int(d)]: float(s) for d, s in zip(*result, strict=True) if s > 0}
        for query, result in zip(query_ids, rankings, strict=True)
    }
    return effectiveness.evaluate_queries(qrels, run, [NDCG])[NDCG]


def words(folder: Path) -> Table:
    """Compare lexicept's words with bm25s, at two settings of BM25."""
    ids, bodies = zip(*((d.id, d.content) for d in read_documents(folder)), strict=True)
    query_ids, texts = zip(*read_queries(folder), strict=True)
    qrels = list(read_qrels(folder))
    options = {"stopwords": "en", "stemmer": Stemmer.Stemmer("english"), "show_progress": False}
    tokens, query_tokens = (bm25s.tokenize(list(t), **options) for t in (bodies, texts))
    vectorizer = WordVectorizer()
    counts, query_counts = vectorizer.documents(bodies), vectorizer.queries(texts)
    lines = []
    for k1, b in ((0.9, 0.4), (1.5, 0.75)):
        peer = bm25s.BM25(method="lucene", k1=k1, b=b)
        peer.index(tokens, show_progress=False)
        theirs = zip(*peer.retrieve(query_tokens, k=10, show_progress=False), strict=True)
        engine = Derived.compute([counts], [VocabularySettings(BM25(k1, b))], None).engine
        values = [
            mean(ndcg(query_ids, ids, results, qrels).values())
            for results in (theirs, engine.search(query_counts, 10))
        ]
        lines.append([f"k1 {k1}, b {b}", *(f"{value:.4f}" for value in values)])
    return Table("words", ["SciFact, nDCG@10", "bm25s", "lexicept words"], lines)


def vocabularies(folder: Path, path: Path) -> Table:
    """Measure effectiveness and cost of each vocabulary of an index."""
    if not path.exists():
        command = [LEXICEPT, "build", str(folder), "--out", str(path), "--train"]
        subprocess.run(command, check=True)
    index = IndexReader.open(path)
    queries, qrels = list(read_queries(folder)), list(read_qrels(folder))
    judged = effectiveness.JudgedQueries(queries, qrels)
    columns = [NDCG, "R@100", "qd_flops", "query_length", "document_length"]
    names = [vocabulary.name for vocabulary in index.vocabularies]
    lines = []
    for name in [*names, None] if len(names) > 1 else names:
        values = effectiveness.evaluate_index(index, judged, name).values
        cells = [f"{values[column]:.{4 if '@' in column else 2}f}" for column in columns]
        lines.append([name or "both", *cells])
    return Table("vocabularies", ["SciFact", *columns], lines)


def pruning(folder: Path, path: Path, budget: float = 4.0) -> Table:
    """Choose pruning limits by pseudo-queries within a budget of QD-FLOPs."""
    index = IndexReader.open(path)
    queries, qrels = list(read_queries(folder)), list(read_qrels(folder))
    sources, texts = from_texts(Contents(index.folder))
    documents, pseudo = index.document_vectors(), index.query_vectors(texts)
    span = documents.span("concepts")
    words, concepts = documents.select("words").weights, documents.select("concepts").weights
    pseudo_words, pseudo_concepts = pseudo[:, documents.span("words")], pseudo[:, span]
    tried = []
    for limits in product(range(16, 41, 4), (150, 200, 250, 300, 400)):
        documents_pruned = prune_rows(concepts, limits[1])
        queries_pruned = prune_rows(pseudo_concepts, limits[0], largest_weights(documents_pruned))
        # Words find nearly every sentence's document: only concepts alone tell limits apart.
        items, nothing = KnownItems(sources, queries_pruned), np.zeros(queries_pruned.shape[0])
        found = known_item_ndcg(ExactEngine.build(documents_pruned), items, nothing).mean()
        cost = qd_flops(queries_pruned, documents_pruned) + qd_flops(pseudo_words, words)
        tried.append((found, cost, limits))
    value, cost, limits = max(point for point in tried if point[1] <= budget)
    limited = copy(index)
    setting = replace(
        index.settings["concepts"],
        query_max_active_dims=limits[0],
        document_max_active_dims=limits[1],
    )
    limited.settings = index.settings | {"concepts": setting}
    limited.derived = Derived.compute(index.tf(), list(limited.settings.values()), None)
    test = effectiveness.evaluate_index(limited, effectiveness.JudgedQueries(queries, qrels)).values
    cells = [f"{value:.4f}", f"{cost:.2f}", f"{test[NDCG]:.4f}", f"{test['qd_flops']:.2f}"]
    columns = [f"SciFact, chosen for QD-FLOPs ≤ {budget:g}"]
    columns += ["pseudo-queries, concepts", "pseudo-queries, QD-FLOPs", NDCG, "QD-FLOPs"]
    return Table("pruning", columns, [[f"queries {limits[0]}, documents {limits[1]}", *cells]])


def rra(folder: Path, vocabulary: Path, fixed: float = 1.25) -> Table:
    """Measure RRA on SPLADE-v3 vectors, at a fixed α and at one chosen by pseudo-queries."""
    ids, X, query_ids, Q, _ = read_vectors(folder, vocabulary, 0.01)
    items = KnownItems.mismatched(*from_vectors(X))
    qrels = list(read_qrels(folder))
    choice = choose_alpha(lambda settings: Derived.reweighted(X, settings), items)
    lines: list[list[str]] = []
    plain: dict[str, float] = {}
    for name, alpha in (
        ("no RRA", None),
        (f"α {fixed}", fixed),
        (f"α {choice.alpha:g}, chosen", choice.alpha),
    ):
        derived = Derived.reweighted(X, None if alpha is None else RRASettings(alpha))
        values = ndcg(query_ids, ids, search(derived, Q), qrels)
        plain = plain or values
        (test,) = significance.compare({"without": {NDCG: plain}, "with": {NDCG: values}})
        cells = ["–", "–"] if alpha is None else [f"{test.difference:+.4f}", f"{test.p:.4f}"]
        known = choice.without if alpha is None else choice.tried[alpha]
        lines.append([name, f"{known:.4f}", f"{mean(values.values()):.4f}", *cells])
    columns = ["NFCorpus, SPLADE-v3", "pseudo-queries", NDCG, "difference", "p"]
    return Table("rra_effectiveness", columns, lines)


def search(derived: Derived, queries: sp.csr_array) -> Found:
    """Return the top 10 of every query, document offsets included."""
    return derived.engine.search(queries, 10, queries @ derived.background)
