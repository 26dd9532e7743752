"""Effectiveness and cost of a run or an index: ir_measures, significance, E²."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

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
from lexicept.index.conditions import alike
from lexicept.index.impacts import Derived, VocabularySettings
from lexicept.index.passages import Ranking
from lexicept.index.reader import IndexReader
from lexicept.measures import E2_BETA, E2_MU1, E2_MU2, E2_TAU, e2, mean_length, qd_flops
from lexicept.queries.syntax import ParsedQuery
from lexicept.vectorizers.words import WordVectorizer
from lexicept.vectors import canonical_csr, place_columns
from lexicept.weighting import BM25

MEASURES = ("nDCG@10", "RR@10", "R@100", "Success@5")
"""Measures of every evaluation."""

PLAIN_BM25 = BM25()
"""The BM25 that ΔE² is against."""


def evaluate(
    qrels: Iterable[Qrel], run: Run, measures: Sequence[str] = MEASURES
) -> dict[str, float]:
    """Return the mean of each measure over the judged queries; one without results scores 0.

    Raises:
        InputError: no judgements, or a measure that ir_measures does not know.
    """
    return _means(evaluate_queries(qrels, run, measures))


def evaluate_queries(
    qrels: Iterable[Qrel], run: Run, measures: Sequence[str] = MEASURES
) -> dict[str, dict[str, float]]:
    """Return measure → query id → value, for every judged query.

    Raises:
        InputError: no judgements, or a measure that ir_measures does not know.
    """
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


EXPLAINED = {
    "nDCG@10": "±: 95 % confidence interval of the mean over the queries (Student's t)",
    "qd_flops": "qd_flops: dimensions that a query and a document share, the mean over all pairs",
    "qd_flops_with_offset": "qd_flops_with_offset: with RRA's number per document as one more",
    "query_length": "query_length, document_length: mean dimensions of a query and of a document",
    "e2": f"e2: RR@10 minus a penalty for cost: E² = RR@10 − {E2_MU1:g} F − {E2_MU2:g} "
    f"log(1 + exp({E2_BETA:g} (F − {E2_TAU:g}))) / {E2_BETA:g}, F = qd_flops (SAE-SPLADE)",
    "delta_e2": f"delta_e2: e2 minus that of BM25 (k1 {PLAIN_BM25.k1:g}, b {PLAIN_BM25.b:g}) over "
    "the same texts; papers print 100 times both",
}
"""An explanation, in a line, of each value whose name does not explain it."""


def explained(names: Container[str]) -> list[str]:
    """Return the explanations of some values, in lines."""
    return [line for name, line in EXPLAINED.items() if name in names]


class SystemResults(NamedTuple):
    """The results of a system for judged queries, and their measures."""

    values: dict[str, float]
    """Means of the measures over the judged queries, and costs; see ``evaluate_index``."""
    per_query: dict[str, dict[str, float]]
    """Measure → query id → value, for every judged query."""
    run: Run
    """Query id → document id → score."""

    @property
    def without_results(self) -> int:
        """The number of judged queries without results, which score 0."""
        queries = next(iter(self.per_query.values()))
        return sum(not self.run.get(query) for query in queries)


def evaluate_run(
    run: Run,
    qrels: Sequence[Qrel],
    measures: Sequence[str] = (),
    *,
    ignore_identical_ids: bool = False,
) -> SystemResults:
    """Measure the effectiveness of a run.

    Args:
        measures: more than ``MEASURES``, in ir_measures' notation.
        ignore_identical_ids: drop a hit whose id is its query's (see ``without_identical_ids``).

    Raises:
        InputError: no judgements, or a measure that ir_measures does not know.
    """
    if ignore_identical_ids:
        run = without_identical_ids(run)
    per_query = evaluate_queries(qrels, run, list(dict.fromkeys([*MEASURES, *measures])))
    return SystemResults(_means(per_query), per_query, run)


def evaluate_index(
    index: IndexReader,
    queries: Sequence[Query],
    qrels: Sequence[Qrel],
    vocabulary: str | None = None,
    measures: Sequence[str] = (),
    *,
    ignore_identical_ids: bool = False,
    vectors: sp.csr_array | None = None,
    bm25: float | None = None,
    syntax: bool = False,
) -> SystemResults:
    """Measure effectiveness and cost of an index on judged queries.

    Args:
        vocabulary: search in one vocabulary only; None searches all of them.
        measures: more than ``MEASURES``, in ir_measures' notation.
        ignore_identical_ids: drop a hit whose id is its query's (see ``without_identical_ids``).
        vectors: the queries' weights in all vocabularies [n, V]; None encodes them.
        bm25: the E² of plain BM25 over the same texts; None searches by it.
        syntax: read the queries' syntax, such as phrases and conditions; see ``asked``.

    Returns:
        The measures; ``qd_flops`` (shared dimensions of a query and a document; with RRA also
        ``qd_flops_with_offset``, where the documents' offsets count as one more posting list);
        ``query_length`` and ``document_length`` (mean non-zeros); ``e2`` (SAE-SPLADE) and
        ``delta_e2``, its difference from BM25 over the same texts. E² is in units of MRR: papers
        print 100 times that.

    Raises:
        InputError: no judgements, an unknown vocabulary or measure, or what a search refuses.
    """
    parsed = asked(index, queries, syntax)
    if vectors is None:
        vectors = index.query_vectors(parsed, vocabulary)
    elif vocabulary is not None:
        span = index.span(vocabulary)
        vectors = place_columns([(span.start, vectors[:, span])], vectors.shape[1])
    hits = index.search_weighted(parsed, vectors, RUN_DEPTH + ignore_identical_ids)
    run = run_of_hits([query.id for query in queries], hits)
    results = _cut(run, qrels, measures, ignore_identical_ids)
    documents = index.document_vectors()
    weights = documents.weights if vocabulary is None else documents.select(vocabulary).weights
    shown = vectors if vocabulary is None else vectors[:, documents.span(vocabulary)]
    results.values.update(_costs(shown, weights, results.values["RR@10"]))
    if index.rra is not None:
        offsets = sum(map(bool, hits)) / max(len(hits), 1)
        results.values["qd_flops_with_offset"] = results.values["qd_flops"] + offsets
    if bm25 is None:
        shared: Any = {"ignore_identical_ids": ignore_identical_ids, "syntax": syntax}
        plain = evaluate_bm25(index, queries, qrels, **shared)
        bm25 = plain.values["e2"]
    results.values["delta_e2"] = results.values["e2"] - bm25
    return results


def asked(index: IndexReader, queries: Sequence[Query], syntax: bool) -> list[ParsedQuery]:
    """Return judged queries as they are searched: their texts as they are, or, with ``syntax``, in
    the parts that they have in an index."""
    return [index.parse(one.text) if syntax else ParsedQuery(one.text) for one in queries]


def evaluate_bm25(
    index: IndexReader,
    queries: Sequence[Query],
    qrels: Sequence[Qrel],
    weighting: BM25 = PLAIN_BM25,
    measures: Sequence[str] = (),
    *,
    ignore_identical_ids: bool = False,
    syntax: bool = False,
) -> SystemResults:
    """Measure BM25 over the words of an index's texts, whatever vocabularies it has.

    Args:
        weighting: BM25 with the k1 and b to search by.
        measures: as in ``evaluate_index``.
        ignore_identical_ids: as in ``evaluate_index``.
        syntax: as in ``evaluate_index``.

    Raises:
        InputError: no judgements, an unknown measure, or conditions that a search refuses.
    """
    names = [vocabulary.name for vocabulary in index.vocabularies]
    vectorizer: WordVectorizer
    if "words" in names:
        vectorizer = WordVectorizer.load(index.folder / "words")
        tf = index.tf()[names.index("words")]
    else:
        vectorizer = WordVectorizer()
        tf = vectorizer.documents(Contents(index.folder))
    derived = Derived.compute([tf], [VocabularySettings(weighting)], None)
    parsed = asked(index, queries, syntax)
    vectors = weighting.queries(canonical_csr(vectorizer.queries([one.text for one in parsed])))
    depth = RUN_DEPTH + ignore_identical_ids
    rankings: list[Ranking] = [(np.empty(0, np.int64), np.empty(0, np.float32))] * len(parsed)
    for places in alike(parsed):
        mask = index.mask(parsed[places[0]])
        found = index.passages.ranked(derived.engine, vectors[places], depth, mask=mask)
        for place, ranking in zip(places, found, strict=True):
            rankings[place] = ranking
    run = run_of_rows([query.id for query in queries], rankings, index.document_ids)
    results = _cut(run, qrels, measures, ignore_identical_ids)
    results.values.update(_costs(vectors, derived.engine.matrix(), results.values["RR@10"]))
    return results


def _cut(
    run: Run, qrels: Sequence[Qrel], measures: Sequence[str], ignore_identical_ids: bool
) -> SystemResults:
    """Measure a run, which has one hit more per query if identical ids are ignored."""
    if ignore_identical_ids:
        run = without_identical_ids(run, RUN_DEPTH)
    return evaluate_run(run, qrels, measures)


def _costs(queries: sp.csr_array, documents: sp.csr_array, mrr: float) -> dict[str, float]:
    flops = qd_flops(queries, documents)
    return {
        "qd_flops": flops,
        "query_length": mean_length(queries),
        "document_length": mean_length(documents),
        "e2": e2(mrr, flops),
    }


def _means(per_query: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    return {name: float(np.mean(list(values.values()))) for name, values in per_query.items()}


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
