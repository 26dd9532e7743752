"""The facts of a report: topics of the collection, queries with poor results, and costs."""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from collections.abc import Sequence
from itertools import islice
from math import inf, isnan
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from markupsafe import Markup

from lexicept.corpora import Qrel, Query, pseudo_queries
from lexicept.errors import InputError
from lexicept.evaluation.effectiveness import JudgedQueries, SystemResults, evaluate_index
from lexicept.evaluation.significance import intervals
from lexicept.explanation.contributions import Span
from lexicept.explanation.html import environment, highlighted
from lexicept.index.atlas import Concept
from lexicept.index.reader import IndexReader
from lexicept.measures import NDCG, explanations, measure_named
from lexicept.progress import Progress, silent
from lexicept.sanitize import around, one_line, shortened
from lexicept.weighting import usefulness

FOLDER = Path(__file__).parent

TELLING = 12
"""Words and concepts that are shown as the most useful."""

WORST_QUERIES = 12

EXPENSIVE = 15
"""Dimensions that are shown as the most expensive."""

PSEUDO_QUERIES = 300
"""Sentences of documents that search for their documents, where no queries are given."""

CONTEXT = 90
"""Characters before and after the highlighted words of an example."""


def build_report(
    index: IndexReader,
    queries: Sequence[Query] = (),
    qrels: Sequence[Qrel] = (),
    progress: Progress = silent,
) -> str:
    """Return an index's report as an HTML page. Raises InputError for queries without judgements.

    Args:
        queries: judged queries; without any, sentences of the documents search for their documents.
    """
    if queries and not qrels:
        raise InputError("queries without judgements: there is nothing to evaluate")
    judged = JudgedQueries(queries, qrels) if qrels else _pseudo_queries(index)
    progress("report", 0, 2)
    # Concepts describe topics better than words.
    topics = [_topics(index, vocabulary.name) for vocabulary in reversed(index.vocabularies)]
    progress("report", 1, 2)
    searched = _searched(index, judged) if judged.qrels else None
    progress("report", 2, 2)
    style = (FOLDER / "page.css").read_text("utf-8")
    digest = b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return (
        environment(FOLDER)
        .get_template("report.html")
        .render(
            index=index,
            topics=topics,
            searched=searched,
            has_judgements=bool(qrels),
            num_queries=len({qrel.query_id for qrel in judged.qrels}),
            megabytes=sum(file["size"] for file in index.manifest["files"].values()) / 1e6,
            # Nothing but the style may be loaded, whatever a document's text holds.
            policy=f"default-src 'none'; style-src 'sha256-{digest}'",
            style=Markup(style),
        )
    )


def _pseudo_queries(index: IndexReader) -> JudgedQueries:
    """Return one sentence each of ``PSEUDO_QUERIES`` random documents with sentences."""
    entries = map(index.stored, np.random.default_rng(0).permutation(len(index)).tolist())
    drawn = dict(islice(pseudo_queries.generate(entries, "sentence"), PSEUDO_QUERIES))
    documents = [index.document_ids[index.document_number(name)] for name in drawn]
    qrels = [Qrel(name, document, 1) for name, document in zip(drawn, documents, strict=True)]
    return JudgedQueries([Query(name, text) for name, text in drawn.items()], qrels)


def _topics(index: IndexReader, vocabulary: str) -> dict[str, Any]:
    """Return the most useful dimensions of a vocabulary, as the atlas describes them if there is
    one; see ``Atlas.useful``."""
    cards: list[dict[str, Any]] = []
    if vocabulary == "concepts" and index.atlas is not None:
        atlas = index.atlas
        telling = atlas.search("")[:TELLING]
        names = [atlas.labels[number] for number in telling]
        cards = [_card(index, atlas[number]) for number in telling]
    else:
        df = index.engine.df[index.span(vocabulary)]
        order = np.argsort(-usefulness(len(index), df), kind="stable")[:TELLING]
        names = [index.weigher.term((vocabulary, int(n))) for n in order if df[n]]
    # A number tells two concepts of one name apart; here the name alone is enough.
    names = [re.sub(r" ?#\d+$", "", one_line(name)) for name in names]
    return {"name": vocabulary, "telling": [*filter(None, dict.fromkeys(names))], "cards": cards}


def _card(index: IndexReader, concept: Concept) -> dict[str, Any]:
    examples = [
        (passage(index.document(e.document_id).content, e.start, e.end), e.document_id)
        for e in concept.examples[:3]
    ]
    return {
        "number": concept.number,
        "label": concept.label,
        "share": f"{concept.documents:,} {index.unit} ({concept.documents / len(index):.1%})",
        "words": [word for word, _ in concept.words[:8]],
        "examples": examples,
    }


def passage(text: str, start: int, end: int) -> Markup:
    """Return a highlighted span of a document, with whole words around the span."""
    begin, stop = around(text, start, end, CONTEXT)
    marked = highlighted(re.sub(r"\s", " ", text[begin:stop]), [Span(start - begin, end - begin)])
    return ("… " if begin else "") + marked + (" …" if stop < len(text) else "")


def _searched(index: IndexReader, judged: JudgedQueries) -> dict[str, Any]:
    """Return the measures of searches, the worst queries and the most expensive dimensions."""
    weighted = index.weigh(judged.parsed(index))
    results = evaluate_index(index, judged, weighted=weighted)
    low, high = intervals(results.per_query)[NDCG.name]
    half = "" if isnan(low) else f" ± {(high - low) / 2:.3f}"
    named = [(measure_named(name), value) for name, value in results.values.items()]
    return {
        "ndcg": f"{results.values[NDCG.name]:.3f}{half}",
        "measures": [(measure.title, measure.format(value)) for measure, value in named],
        "explanations": explanations(results.values),
        "worst": _worst_queries(index, judged, results),
        "expensive": _expensive(index, weighted.weights),
    }


def _worst_queries(
    index: IndexReader, judged: JudgedQueries, results: SystemResults
) -> list[tuple[str, str, str, str]]:
    """Return text, nDCG@10, the rank of the first relevant document, and the first result."""
    relevant: dict[str, set[str]] = {}
    for qrel in judged.qrels:
        if qrel.relevance > 0:
            relevant.setdefault(qrel.query_id, set()).add(qrel.document_id)
    queries = []
    for query in judged.queries:
        ndcg = results.per_query[NDCG.name].get(query.id, 1.0)
        if ndcg < 1 and query.id in relevant:
            hits = list(results.run[query.id])
            ranks = (n for n, hit in enumerate(hits, 1) if hit in relevant[query.id])
            queries.append((ndcg, -next(ranks, inf), query.text, hits[:1]))
    return [
        (_cut(text), f"{ndcg:.4f}", "none" if rank == -inf else f"{-rank}", _title(index, hits))
        for ndcg, rank, text, hits in sorted(queries)[:WORST_QUERIES]
    ]


def _title(index: IndexReader, document_ids: Sequence[str]) -> str:
    """Return the id and the title of the first of some documents."""
    if not document_ids:
        return "nothing"
    document = index.document(document_ids[0])
    return f"{document.id}: {_cut(document.title or document.text)}"


def _cut(text: str) -> str:
    return shortened(" ".join(text.split()), 100)


def _expensive(index: IndexReader, queries: sp.csr_array) -> list[tuple[str, ...]]:
    """Return the dimensions with the largest shares of QD-FLOPs: P_q(t) P_d(t)."""
    # A dimension costs a multiplication for each query and each document with the dimension.
    posting_lengths = index.engine.df
    occurrences = np.bincount(queries.indices, minlength=posting_lengths.size)
    work = occurrences * posting_lengths
    order = np.argsort(-work, kind="stable")[:EXPENSIVE]
    order = order[work[order] > 0]
    return [
        (
            index.weigher.term(dimension),
            dimension[0],
            f"{occurrences[n] / queries.shape[0]:.1%}",
            f"{posting_lengths[n] / len(index):.1%}",
            f"{work[n] / work.sum():.1%}",
        )
        for n, dimension in zip(order, index.weigher.numbered(order), strict=True)
    ]
