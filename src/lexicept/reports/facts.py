"""The facts of a report: plain values, which the template names and formats."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import PurePosixPath
from typing import Any

import numpy as np
from markupsafe import Markup

from lexicept.evaluation.significance import compare, intervals
from lexicept.explanation.contributions import PRIOR, SIMILARITY, Span
from lexicept.explanation.explanation import Explanation
from lexicept.explanation.html import highlighted
from lexicept.index.impacts import weigher_of
from lexicept.measures import NDCG, RR, e2, mean_length
from lexicept.parallel.shards import shards_of
from lexicept.progress import Progress
from lexicept.reports.measured import DEPTH, MEASURES, MeasuredIndex
from lexicept.sanitize import around, one_line, shortened

Rows = list[list[Any]]
"""The cells of a table, row by row."""

CARDS = 12
"""Concepts and words that are shown as the most telling."""
EXAMPLES = 3
"""Passages of a concept."""
FREQUENT_CONCEPTS = 150
TELLING_TERMS = 60
TOP = 10
"""Results of a query whose scores are taken apart."""
EXPLAINED = 300
"""Queries whose results are explained for the parts of scores."""
FAILURES = 12
EXPENSIVE = 15
QUANTILES = (0.5, 0.9, 0.99, 1.0)
CONTEXT = 90
"""Characters before and after the highlighted words of an example."""


def report_facts(measured: MeasuredIndex, progress: Progress) -> dict[str, Any]:
    """Return the facts of each section by its name; ``evaluation`` is None without queries."""
    sections: dict[str, Callable[[MeasuredIndex], Any]] = {
        "topics": topics,
        "evaluation": evaluation if measured.has_queries else lambda _: None,
        "cost": cost,
    }
    facts: dict[str, Any] = {"measured": measured}
    for done, (name, section) in enumerate(sections.items()):
        progress("report", done, len(sections))
        facts[name] = section(measured)
    progress("report", len(sections), len(sections))
    return facts


def topics(measured: MeasuredIndex) -> list[dict[str, Any]]:
    """Return the most telling dimensions of each vocabulary, and the concepts of an atlas."""
    sections = []
    for name in reversed(measured.vocabularies):  # concepts describe topics better than words
        atlas = measured.index.atlas if name == "concepts" else None
        telling = measured.spread(name).telling(TELLING_TERMS)
        if atlas is None:
            terms = [measured.index.weigher.term((name, dimension)) for dimension in telling]
        else:
            terms = [atlas.labels[dimension] for dimension in telling]
        # A number tells two concepts of one name apart; here the name alone is enough.
        names = [re.sub(r" ?#\d+$", "", one_line(term)) for term in terms[:CARDS]]
        section: dict[str, Any] = {"name": name, "telling": [*filter(None, dict.fromkeys(names))]}
        if atlas is None:
            section["terms"] = _telling_terms(measured, name, telling, terms)
        else:
            dimensions = telling[:CARDS]
            section["cards"] = [_card(measured, dimension, dimensions) for dimension in dimensions]
            section["frequent"] = _frequent_concepts(measured)
        sections.append(section)
    return sections


def _telling_terms(
    measured: MeasuredIndex, vocabulary: str, dimensions: Sequence[int], terms: Sequence[str]
) -> Rows:
    spread = measured.spread(vocabulary)
    counts = spread.documents[dimensions]
    shares = spread.variance_shares[dimensions]
    columns = (terms, counts.tolist(), (counts / len(measured)).tolist(), shares.tolist())
    return [list(cells) for cells in zip(*columns, strict=True)]


def _card(measured: MeasuredIndex, dimension: int, cards: Sequence[int]) -> dict[str, Any]:
    atlas = measured.index.atlas
    assert atlas is not None
    concept = atlas[dimension]
    passages = [
        (passage(measured.index.document(e.document_id).content, e.start, e.end), e.document_id)
        for e in concept.examples[:EXAMPLES]
    ]
    nearest = [
        (atlas.labels[near], f"concept-{near}" if near in cards else None)
        for near, _ in concept.nearest[:4]
    ]
    return {
        "dimension": dimension,
        "label": concept.label,
        "documents": concept.documents,
        "words": [word for word, _ in concept.words[:8]],
        "passages": passages,
        "nearest": nearest,
    }


def _frequent_concepts(measured: MeasuredIndex) -> Rows:
    atlas = measured.index.atlas
    assert atlas is not None
    lines: Rows = []
    for dimension in atlas.most_frequent()[:FREQUENT_CONCEPTS]:
        concept = atlas[dimension]
        words = ", ".join(word for word, _ in concept.words[:6])
        share = concept.documents / len(measured)
        lines.append([concept.label, words, concept.documents, share, concept.firing_frequency])
    return lines


def passage(text: str, start: int, end: int) -> Markup:
    """Return a highlighted span of a document, with whole words around the span."""
    begin, stop = around(text, start, end, CONTEXT)
    flat = re.sub(r"\s", " ", text[begin:stop])
    marked = highlighted(flat, [Span(start - begin, end - begin)])
    return ("… " if begin else "") + marked + (" …" if stop < len(text) else "")


def evaluation(measured: MeasuredIndex) -> dict[str, Any]:
    """Return effectiveness and cost by vocabulary, the parts of scores, and the worst queries."""
    ndcg = measured.measured()[NDCG.name]
    values = np.array(list(ndcg.values()))
    low, high = intervals({NDCG.name: ndcg})[NDCG.name]
    return {
        "mean": float(values.mean()),
        "half": (high - low) / 2,
        "nothing": float((values == 0).mean()),
        "perfect": float((values >= 1 - 1e-9).mean()),
        "systems": _systems(measured),
        "parts": _parts(measured),
        "failures": _failures(measured, ndcg),
    }


def _systems(measured: MeasuredIndex) -> Rows:
    """Return measures, costs, half an interval and p of all vocabularies, and of each alone."""
    names = measured.vocabularies
    searched: dict[str, str | None] = {names[0]: None}
    if len(names) > 1:
        searched = {"all together": None, **{name: name for name in names}}
    per_query = {name: measured.measured(vocabulary) for name, vocabulary in searched.items()}
    tests = compare(per_query)
    p_values = {test.system: test.p_holm for test in tests if test.measure == NDCG.name}
    lines: Rows = []
    for name, values in per_query.items():
        means = [float(np.mean(list(values[measure].values()))) for measure in MEASURES]
        flops = measured.qd_flops(searched[name])
        efficiency = e2(means[MEASURES.index(RR.name)], flops)
        low, high = intervals(values)[NDCG.name]
        p_value = p_values.get(name, float("nan"))
        lines.append([name, *means, flops, efficiency, (high - low) / 2, p_value])
    return lines


def _parts(measured: MeasuredIndex) -> Rows:
    """Return each part's mean share of the scores of first results, and its mean dimensions."""
    explained: list[Explanation] = []
    searched = zip(measured.queries.queries, measured.hits(None), strict=True)
    for query, hits in islice(searched, EXPLAINED):
        explained += measured.index.explained(query.text, hits[:TOP])
    scores = np.array([explanation.score for explanation in explained])
    lines: Rows = []
    for name in measured.vocabularies:
        shared = [
            [part.score for part in explanation.contributions if part.vocabulary == name]
            for explanation in explained
        ]
        dimensions = sum(map(len, shared)) / max(len(explained), 1)
        lines.append([name, _mean_share([*map(sum, shared)], scores), dimensions])
    for name, attribute in ((SIMILARITY, "similarity"), (PRIOR, "prior")):
        scores_of_part = [getattr(explanation, attribute) for explanation in explained]
        if any(scores_of_part):
            lines.append([name, _mean_share(scores_of_part, scores), 0.0])
    return lines


def _mean_share(parts: Sequence[float], totals: Any) -> float:
    shares = np.divide(parts, totals, out=np.zeros(len(totals)), where=totals > 0)
    return float(shares.mean()) if shares.size else 0.0


def _failures(measured: MeasuredIndex, ndcg: dict[str, float]) -> Rows:
    """Return query, id, nDCG@10, the rank of the first relevant document or None, and the first
    result, of the queries with the lowest nDCG@10."""
    relevant: dict[str, set[str]] = {}
    for qrel in measured.queries.qrels:
        if qrel.relevance > 0:
            relevant.setdefault(qrel.query_id, set()).add(qrel.document_id)
    failures: Rows = []
    for query, hits in zip(measured.queries.queries, measured.hits(None), strict=True):
        if query.id in relevant and ndcg[query.id] < 1:
            ranks = (hit.rank for hit in hits if hit.id in relevant[query.id])
            best = f"{hits[0].id}: {_title(measured, hits[0].id)}" if hits else "nothing"
            cells = [_cut(query.text), query.id, ndcg[query.id], next(ranks, None), best]
            failures.append(cells)
    return sorted(failures, key=lambda cells: (cells[2], -(cells[3] or DEPTH + 1)))[:FAILURES]


def _title(measured: MeasuredIndex, document_id: str) -> str:
    document = measured.index.document(document_id)
    return _cut(document.title or document.text, 90)


def _cut(text: str, limit: int = 110) -> str:
    return shortened(" ".join(text.split()), limit)


def cost(measured: MeasuredIndex) -> dict[str, Any]:
    """Return weighting, lengths, the dimensions that cost most, posting lists and sizes."""
    sizes = _sizes(measured)
    return {
        "postings": measured.index.engine.num_postings,
        "weighting": _weighting(measured),
        "lengths": _lengths(measured),
        "expensive": _expensive(measured) if measured.has_queries else [],
        "lists": _posting_lists(measured),
        "sizes": [[name, size, size / (sizes.total() or 1)] for name, size in sizes.most_common()],
        "size": sizes.total(),
    }


def _weighting(measured: MeasuredIndex) -> Rows:
    lines: Rows = []
    for name, settings in measured.index.settings.items():
        arguments = settings.weighting.settings()
        weighting = arguments.pop("name")
        values = ", ".join(f"{k} {v}" for k, v in arguments.items() if v is not None)
        limits = [
            settings.query_max_active_dims or "all",
            settings.query_max_qd_flops or "any",
            settings.pruning,
            settings.document_max_active_dims or "all",
        ]
        lines.append([name, f"{weighting} ({values})", *map(str, limits)])
    return lines


def _lengths(measured: MeasuredIndex) -> Rows:
    """Return mean and quantiles of documents' lengths; with queries also theirs and QD-FLOPs."""
    lengths = {name: measured.spread(name).lengths for name in measured.vocabularies}
    if len(lengths) > 1:
        lengths["all"] = np.sum(list(lengths.values()), axis=0)
    lines: Rows = []
    for name, of_documents in lengths.items():
        quantiles = np.quantile(of_documents, QUANTILES, method="inverted_cdf").tolist()
        cells = [name, float(of_documents.mean()), *quantiles]
        if measured.has_queries:
            vocabulary = None if name == "all" else name
            queries = measured.query_weights_in(vocabulary)
            cells += [mean_length(queries), measured.qd_flops(vocabulary)]
        lines.append(cells)
    return lines


def _expensive(measured: MeasuredIndex) -> Rows:
    """Return the dimensions with the largest shares of QD-FLOPs: P_q(t) P_d(t)."""
    # A dimension costs a multiplication for each query and each document with the dimension.
    posting_lengths = measured.posting_lengths
    occurrences = np.bincount(measured.query_weights.indices, minlength=posting_lengths.size)
    work = occurrences * posting_lengths
    order = np.argsort(-work, kind="stable")[:EXPENSIVE]
    order, weigher = order[work[order] > 0], measured.index.weigher
    queries = measured.query_weights.shape[0]
    lines: Rows = []
    for dimension, numbered in zip(order.tolist(), weigher.numbered(order), strict=True):
        term, (vocabulary, _) = weigher.term(numbered), numbered
        in_queries = occurrences[dimension] / queries
        in_documents = posting_lengths[dimension] / len(measured)
        lines.append([term, vocabulary, in_queries, in_documents, work[dimension] / work.sum()])
    return lines


def _posting_lists(measured: MeasuredIndex) -> Rows:
    """Return the number of posting lists, shares of empty and short ones, and quantiles."""
    index = measured.index
    shards = shards_of([index.stored_tf(vocabulary) for vocabulary in index.vocabularies])
    statistics = weigher_of(shards, list(index.settings.values())).collection
    lines: Rows = []
    for name, unpruned in zip(measured.vocabularies, statistics, strict=True):
        lengths = measured.posting_lengths[index.span(name)]
        size = max(lengths.size, 1)
        quantiles = [0] * len(QUANTILES)
        if lengths.size:
            quantiles = np.quantile(lengths, QUANTILES, method="inverted_cdf").tolist()
        never, pruned = unpruned.df == 0, (unpruned.df > 0) & (lengths == 0)
        shares = [float(mask.sum() / size) for mask in (never, pruned, lengths == 1)]
        lines.append([name, lengths.size, *shares, lengths.sum() / size, *quantiles])
    return lines


def _sizes(measured: MeasuredIndex) -> Counter[str]:
    """Return the bytes of each component of the index."""
    sizes: Counter[str] = Counter()
    for path, file in measured.index.manifest["files"].items():
        sizes[_component(PurePosixPath(path).parts[1:], measured.vocabularies)] += file["size"]
    return sizes


def _component(path: Sequence[str], vocabularies: Sequence[str]) -> str:
    """Return the name of the component of an index that a file belongs to."""
    if path[0] == "postings":
        return "postings"
    if path[0] not in vocabularies:
        frequencies = [name for name in vocabularies if path[-1].startswith(f"{name}.frequencies")]
        return f"{frequencies[0]}: frequencies" if frequencies else "documents"
    return f"{path[0]}: {path[1] if path[1] in ('model', 'atlas') else 'names'}"
