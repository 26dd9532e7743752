"""Effectiveness and cost of a run or an index: ir_measures, significance, E²."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import ir_measures
import numpy as np
import scipy.sparse as sp

from lexicept.corpora import Qrel, Query
from lexicept.errors import InputError
from lexicept.evaluation.runs import (
    RUN_DEPTH,
    Run,
    run_of_hits,
    run_of_rows,
    without_identical_ids,
)
from lexicept.index.builder import Contents
from lexicept.index.impacts import Derived, VocabularySettings
from lexicept.index.reader import IndexReader
from lexicept.measures import e2, mean_length, qd_flops
from lexicept.vectorizers.words import WordVectorizer
from lexicept.weighting import BM25

MEASURES = ("nDCG@10", "RR@10", "R@100", "Success@5")


def evaluate(
    qrels: Iterable[Qrel], run: Run, measures: Sequence[str] = MEASURES
) -> dict[str, float]:
    """Return the mean of each measure over the judged queries; one without results scores 0.

    Raises:
        InputError: a measure that ir_measures does not know.
    """
    per_query = evaluate_queries(qrels, run, measures)
    return {name: float(np.mean(list(values.values()))) for name, values in per_query.items()}


def evaluate_queries(
    qrels: Iterable[Qrel], run: Run, measures: Sequence[str] = MEASURES
) -> dict[str, dict[str, float]]:
    """Return measure → query id → value, for every judged query."""
    judged: dict[str, dict[str, int]] = {}
    for qrel in qrels:
        judged.setdefault(qrel.query_id, {})[qrel.document_id] = qrel.relevance
    if not judged:
        raise InputError("no judgements: there is nothing to evaluate")
    parsed = {name: _parse_measure(name) for name in measures}
    values = {name: dict.fromkeys(judged, 0.0) for name in measures}
    plain = {query: dict(documents) for query, documents in run.items() if query in judged}
    if plain:
        computed: dict[ir_measures.Measure, dict[str, float]] = {m: {} for m in parsed.values()}
        for metric in ir_measures.iter_calc(list(computed), judged, plain):
            computed[metric.measure][metric.query_id] = float(metric.value)
        for name, measure in parsed.items():  # two names may mean one measure: RR@10 and MRR@10
            values[name].update(computed[measure])
    return values


class IndexReport(NamedTuple):
    """Effectiveness and cost of an index; see ``evaluate_index``."""

    values: dict[str, float]
    run: dict[str, dict[str, float]]


def evaluate_index(
    index: IndexReader,
    queries: Sequence[Query],
    qrels: Sequence[Qrel],
    vocabulary: str | None = None,
    measures: Sequence[str] = (),
    *,
    ignore_identical_ids: bool = False,
) -> IndexReport:
    """Measure effectiveness and cost of an index on judged queries.

    Args:
        vocabulary: search in one vocabulary only; None searches all of them.
        measures: more than ``MEASURES``, in ir_measures' notation.
        ignore_identical_ids: drop a hit whose id is its query's (see ``without_identical_ids``).

    Returns:
        The measures; ``qd_flops`` (shared dimensions of a query and a document; with RRA also
        ``qd_flops_with_offset``, where the documents' offsets count as one more posting list);
        ``query_length`` and ``document_length`` (mean non-zeros); ``e2`` (SAE-SPLADE) and
        ``delta_e2``, its difference from BM25 over the same texts. E² is in units of MRR: papers
        print 100 times that.
    """
    vectors = index.query_vectors([query.text for query in queries], vocabulary)
    hits = index.search_vectors(vectors, RUN_DEPTH + ignore_identical_ids)
    run = run_of_hits([query.id for query in queries], hits)
    if ignore_identical_ids:
        run = without_identical_ids(run, RUN_DEPTH)
    names = list(dict.fromkeys([*MEASURES, *measures]))
    values = evaluate(qrels, run, names)
    documents = index.document_vectors()
    weights = documents.weights if vocabulary is None else documents.select(vocabulary).weights
    shown = vectors if vocabulary is None else vectors[:, documents.span(vocabulary)]
    flops = qd_flops(shown, weights)
    values |= {
        "qd_flops": flops,
        "query_length": mean_length(shown),
        "document_length": mean_length(weights),
        "e2": e2(values["RR@10"], flops),
    }
    if index.rra is not None:
        values["qd_flops_with_offset"] = flops + sum(map(bool, hits)) / max(len(hits), 1)
    baseline = _bm25_e2(index, queries, qrels, ignore_identical_ids)
    values["delta_e2"] = values["e2"] - baseline
    return IndexReport(values, run)


def _bm25_e2(
    index: IndexReader,
    queries: Sequence[Query],
    qrels: Sequence[Qrel],
    ignore_identical_ids: bool,
) -> float:
    """Return the E² of plain BM25 over the index's texts, whatever vocabularies it has."""
    names = [vocabulary.name for vocabulary in index.vocabularies]
    vectorizer: WordVectorizer
    if "words" in names:
        vectorizer = WordVectorizer.load(index.folder / "words")
        tf = index.tf()[names.index("words")]
    else:
        vectorizer = WordVectorizer()
        tf = vectorizer.documents(Contents(index.folder))
    derived = Derived.compute([tf], [VocabularySettings(BM25())], None)
    vectors = sp.csr_array(vectorizer.queries([query.text for query in queries]))
    rankings = derived.engine.search(vectors, 10 + ignore_identical_ids)
    run = run_of_rows([query.id for query in queries], rankings, index.ids)
    if ignore_identical_ids:
        run = without_identical_ids(run, 10)
    mrr = evaluate(qrels, run, ["RR@10"])["RR@10"]
    return e2(mrr, qd_flops(vectors, derived.engine.matrix()))


def depth_of(measure: str) -> int:
    """Return how many documents of each query a measure looks at.

    Raises:
        InputError: ir_measures does not know the measure.
    """
    return int(_parse_measure(measure).params.get("cutoff", RUN_DEPTH))


def _parse_measure(name: str) -> ir_measures.Measure:
    try:
        measure = ir_measures.parse_measure(name)
        measure.validate_params()
        # A cutoff of 0 ends the whole process in pytrec_eval.
        if measure.params.get("cutoff", 1) > 0 and ir_measures.DefaultPipeline.supports(measure):
            return measure
    except (NameError, ValueError, SyntaxError, TypeError, KeyError, AssertionError):
        pass
    raise InputError(f"no measure {name!r}; examples: {', '.join(MEASURES)}, AP, P@5")
