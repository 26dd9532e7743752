"""Effectiveness and cost of a run, an index or BM25 on judged queries."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import ir_measures
import numpy as np

from lexicept.corpora import Qrel, Query
from lexicept.encoding.words import WordVectorizer
from lexicept.engines.interface import Ranking
from lexicept.errors import InputError
from lexicept.evaluation.runs import RUN_DEPTH, Run, run_of_hits, run_of_rows, without_identical_ids
from lexicept.index.builder import Contents
from lexicept.index.conditions import positions_by_mask
from lexicept.index.impacts import Derived, VocabularySettings
from lexicept.index.queries import WeightedQueries
from lexicept.index.reader import IndexReader
from lexicept.measures import E2, EFFECTIVENESS, RR, SearchCosts, search_costs
from lexicept.queries.syntax import ParsedQuery
from lexicept.vectors import canonical_csr, place_columns
from lexicept.weighting import BM25

MEASURES = tuple(measure.name for measure in EFFECTIVENESS)
"""Measures of every evaluation."""

PLAIN_BM25 = BM25()
"""The BM25 of ΔE²."""


@dataclass(frozen=True)
class JudgedQueries:
    """Queries with relevance judgements, and the rules of an evaluation."""

    queries: Sequence[Query]
    qrels: Sequence[Qrel]
    measures: Sequence[str] = ()
    """Measures besides ``MEASURES``, in ir_measures' notation."""
    ignore_identical_ids: bool = False
    """Drop a hit with the id of the query (see ``without_identical_ids``)."""
    syntax: bool = False
    """Read phrases and conditions in the queries; False searches for the plain texts."""

    @property
    def query_ids(self) -> list[str]:
        return [query.id for query in self.queries]

    @property
    def depth(self) -> int:
        """Results to search for, of which ``cut`` drops at most one."""
        return RUN_DEPTH + self.ignore_identical_ids

    def parsed(self, index: IndexReader) -> list[ParsedQuery]:
        """Return the queries as an index searches for them."""
        return [
            index.parse(query.text) if self.syntax else ParsedQuery(query.text)
            for query in self.queries
        ]

    def cut(self, run: Run) -> Run:
        """Return a run of ``depth`` hits without ignored hits, at most ``RUN_DEPTH`` a query."""
        return without_identical_ids(run, RUN_DEPTH) if self.ignore_identical_ids else run


def evaluate(
    qrels: Iterable[Qrel], run: Run, measures: Sequence[str] = MEASURES
) -> dict[str, float]:
    """Return the mean of each measure over the judged queries; see ``evaluate_queries``."""
    return _means(evaluate_queries(qrels, run, measures))


def evaluate_queries(
    qrels: Iterable[Qrel], run: Run, measures: Sequence[str] = MEASURES
) -> dict[str, dict[str, float]]:
    """Return measure → query id → value, for every judged query; no results score 0. Equal scores
    rank in the order of the run. Raises InputError without judgements, or for a measure that
    ir_measures does not know or can't compute."""
    judged: dict[str, dict[str, int]] = {}
    for qrel in qrels:
        judged.setdefault(qrel.query_id, {})[qrel.document_id] = qrel.relevance
    if not judged:
        raise InputError("no judgements: there is nothing to evaluate")
    parsed = {name: _parse_measure(name) for name in measures}
    values = {name: dict.fromkeys(judged, 0.0) for name in measures}
    # ir_measures fails for queries without results, which score 0 here.
    queries = [query for query in judged if run.get(query)]
    # Numbers as ids of queries: gdeval (ERR) reads no others.
    numbered = {str(n): judged[query] for n, query in enumerate(queries)}
    ranks = {str(n): _descending_ranks(run[query]) for n, query in enumerate(queries)}
    for name, measure in parsed.items() if queries else ():
        try:
            for metric in ir_measures.iter_calc([measure], numbered, ranks):
                values[name][queries[int(metric.query_id)]] = float(metric.value)
        except Exception as error:  # each provider has its own kinds
            raise InputError(f"ir_measures can't compute {name} of this run: {error}") from error
    return values


def _descending_ranks(documents: Mapping[str, float]) -> dict[str, float]:
    """Return the documents of a query, best first, with falling whole numbers as scores: each
    provider of ir_measures has its own order of equal scores."""
    ranked = sorted(documents, key=lambda document: -documents[document])
    return {document: float(len(ranked) - n) for n, document in enumerate(ranked)}


class SystemResults(NamedTuple):
    """The results of a system for judged queries, and their measures."""

    values: dict[str, float]
    """Means of the measures over the judged queries, and costs."""
    per_query: dict[str, dict[str, float]]
    """Measure → query id → value, for every judged query."""
    run: Run
    """Query id → document id → score."""

    @property
    def without_results(self) -> int:
        """The number of judged queries without results, which score 0."""
        queries = next(iter(self.per_query.values()))
        return sum(not self.run.get(query) for query in queries)


def evaluate_run(run: Run, judged: JudgedQueries) -> SystemResults:
    """Measure the effectiveness of a run; see ``evaluate_queries``."""
    if judged.ignore_identical_ids:
        run = without_identical_ids(run)
    names = list(dict.fromkeys([*MEASURES, *judged.measures]))
    per_query = evaluate_queries(judged.qrels, run, names)
    return SystemResults(_means(per_query), per_query, run)


def evaluate_index(
    index: IndexReader,
    judged: JudgedQueries,
    vocabulary: str | None = None,
    *,
    weighted: WeightedQueries | None = None,
    rescore: bool = True,
    bm25_e2: float | None = None,
) -> SystemResults:
    """Measure effectiveness and cost of an index on judged queries. Raises InputError for no
    judgements, an unknown vocabulary or measure, or a refused search.

    Args:
        weighted: the queries in all vocabularies; None encodes the queries.
        rescore: see ``IndexReader.search``. Costs are those of the postings alone.
        bm25_e2: the E² of plain BM25 over the same texts; None searches by BM25.

    Returns:
        The values of the measures of effectiveness and of ``lexicept.measures.COSTS``.
    """
    parsed = judged.parsed(index)
    if weighted is None:
        weighted = index.weigh(parsed, vocabulary)
    elif vocabulary is not None:
        span, weights = index.span(vocabulary), weighted.weights
        weights = place_columns([(span.start, weights[:, span])], weights.shape[1])
        weighted = WeightedQueries(weights)
    if not rescore:
        weighted = weighted._replace(text_vectors=None)
    hits = index.rank(weighted, judged.depth, parsed)
    results = evaluate_run(judged.cut(run_of_hits(judged.query_ids, hits)), judged)
    span = slice(None) if vocabulary is None else index.span(vocabulary)
    costs = SearchCosts(
        weighted.weights[:, span],
        index.engine.df[span],
        index.engine.num_documents,
        results.values[RR.name],
        offset_share=None if index.rra is None else sum(map(bool, hits)) / max(len(hits), 1),
        bm25_e2=plain_bm25_e2(index, judged) if bm25_e2 is None else bm25_e2,
    )
    results.values.update(search_costs(costs))
    return results


def plain_bm25_e2(index: IndexReader, judged: JudgedQueries) -> float:
    """Return the E² of plain BM25 over the words of an index's texts."""
    return evaluate_bm25(index, judged).values[E2.name]


def evaluate_bm25(
    index: IndexReader,
    judged: JudgedQueries,
    weighting: BM25 = PLAIN_BM25,
    *,
    bm25_e2: float | None = None,
) -> SystemResults:
    """Measure BM25 over the words of an index's texts, whatever vocabularies the index has. Raises
    InputError for no judgements, an unknown measure, or conditions that a search refuses.

    Args:
        bm25_e2: as in ``evaluate_index``; None leaves ΔE² out.
    """
    words = [vocabulary for vocabulary in index.vocabularies if vocabulary.name == "words"]
    if words:
        words_of_index = WordVectorizer.load(index.folder / "words")
        # Plain BM25 searches for all words of a query.
        vectorizer = WordVectorizer(words_of_index.tokenizer.language, words_of_index.terms)
        tf = index.stored_tf(words[0]).load()
    else:
        vectorizer = WordVectorizer()
        tf = vectorizer.documents(Contents(index.folder))
    derived = Derived.compute([tf], [VocabularySettings(weighting)], None)
    parsed = judged.parsed(index)
    vectors = weighting.queries(canonical_csr(vectorizer.queries([query.text for query in parsed])))
    rankings: list[Ranking] = [(np.empty(0, np.int64), np.empty(0, np.float32))] * len(parsed)
    # Queries with the same conditions share a mask of documents.
    for mask, positions in positions_by_mask(index.query_masks(parsed)):
        ranked = index.passages.ranked(derived.engine, vectors[positions], judged.depth, mask=mask)
        for position, ranking in zip(positions, ranked, strict=True):
            rankings[position] = ranking
    run = run_of_rows(judged.query_ids, rankings, index.document_ids)
    results = evaluate_run(judged.cut(run), judged)
    engine = derived.engine
    rr = results.values[RR.name]
    costs = SearchCosts(vectors, engine.df, engine.num_documents, rr, bm25_e2=bm25_e2)
    results.values.update(search_costs(costs))
    return results


def _means(per_query: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    return {name: float(np.mean(list(values.values()))) for name, values in per_query.items()}


def depth_of(measure: str) -> int:
    """Return the cutoff of a measure. Raises InputError for a measure unknown to ir_measures."""
    return int(_parse_measure(measure).params.get("cutoff", RUN_DEPTH))


def _parse_measure(name: str) -> ir_measures.Measure:
    try:
        measure = _measure(ast.parse(name, mode="eval").body)
        measure.validate_params()
        # A cutoff of 0 ends the whole process in pytrec_eval.
        if measure.params.get("cutoff", 1) > 0 and ir_measures.DefaultPipeline.supports(measure):
            return measure
    # The parser of Python runs out of memory for thousands of brackets.
    except (
        ValueError, SyntaxError, TypeError, LookupError, AssertionError, RecursionError, MemoryError
    ):  # fmt: skip
        pass
    raise InputError(f"no measure {name!r}; examples: {', '.join(MEASURES)}, AP, P@5")


def _measure(node: ast.expr) -> ir_measures.Measure:
    """Return the measure of NAME or NAME(PARAMETER=VALUE, ...), with or without @CUTOFF. Raises
    ValueError, or TypeError for unknown parameters."""
    # The parser of ir_measures 0.4 fails in Python 3.14.
    match node:
        case ast.BinOp(ast.Name() | ast.Call(), ast.MatMult(), cutoff):
            return _measure(node.left) @ ast.literal_eval(cutoff)
        case ast.Call(ast.Name(), [], keywords):
            values = {str(each.arg): ast.literal_eval(each.value) for each in keywords}
            return _measure(node.func)(**values)
        case ast.Name(name):
            measure = getattr(ir_measures, name, None)
            if isinstance(measure, ir_measures.Measure):
                return measure
    raise ValueError("no measure")
