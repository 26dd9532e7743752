"""The sections about the collection: a summary and the topics."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from lexicept.evaluation.significance import intervals
from lexicept.measures import NDCG
from lexicept.reports import page
from lexicept.reports.measured import MeasuredIndex
from lexicept.sanitize import one_line

if TYPE_CHECKING:
    from lexicept.index.atlas import Atlas

CARDS = 12
EXAMPLES = 3
FREQUENT_CONCEPTS = 150
TELLING_DIMENSIONS = 60


def summary(measured: MeasuredIndex, atlas: Atlas | None) -> page.ReportSection:
    """Write the first section: the subject of the collection, and the results of queries."""
    lengths = np.sum([measured.spread(name).lengths for name in measured.vocabularies], axis=0)
    empty = int((lengths == 0).sum())
    figures = [
        page.Number("Documents", page.count(len(measured)), "searched by every query"),
        *(
            page.Number(v.name.capitalize(), page.count(v.size), "dimensions of this vocabulary")
            for v in measured.index.vocabularies
        ),
    ]
    if empty:
        meaning = "without any dimension: no query finds them"
        figures.append(page.Number("Empty documents", page.count(empty), meaning))
    if measured.has_queries:
        figures += _quality(measured)
    blocks: list[page.Block] = []
    for name in reversed(measured.vocabularies):
        if names := _telling_names(measured, name, atlas):
            blocks.append(
                page.Paragraph(f"The {name} that tell documents apart: {', '.join(names)}.")
            )
    blocks.append(page.Numbers(figures))
    return page.ReportSection(
        "summary",
        "Summary",
        "What the documents are about, and how well queries find them. The words and concepts of "
        "texts are the dimensions of the index. A concept is a latent of a sparse autoencoder "
        "(SAE): a learned feature that is active on tokens with a common meaning.",
        blocks,
    )


def _quality(measured: MeasuredIndex) -> list[page.Number]:
    """Return the quality of the results in all vocabularies."""
    per_query = {NDCG.name: measured.measured()[NDCG.name]}
    values = np.array(list(per_query[NDCG.name].values()))
    low, high = intervals(per_query)[NDCG.name]
    half = "" if np.isnan(low) else f" ± {(high - low) / 2:.3f}"
    description = "judged queries" if measured.queries.judged else "pseudo-queries"
    queries = f"{page.count(len(values))} {description}"
    meaning = f"quality of the first ten results of {queries}, at most 1"
    if half:
        meaning += "; ±: 95 % interval of the mean"
    nothing = page.percent(float((values == 0).mean()))
    return [
        page.Number(NDCG.title, f"{values.mean():.3f}{half}", meaning),
        page.Number("Nothing found", nothing, "queries with no relevant document there"),
    ]


def _telling_names(measured: MeasuredIndex, vocabulary: str, atlas: Atlas | None) -> list[str]:
    """Return the names of the most telling dimensions of a vocabulary."""
    telling = measured.spread(vocabulary).telling(CARDS)
    if vocabulary == "concepts" and atlas is not None:
        terms = [atlas.labels[dimension] for dimension in telling]
    else:
        terms = [measured.index.weigher.term((vocabulary, dimension)) for dimension in telling]
    # A number tells two concepts of one name apart; here the name alone is enough.
    names = [re.sub(r" ?#\d+$", "", one_line(term)) for term in terms]
    return [name for name in dict.fromkeys(names) if name]


def topics(measured: MeasuredIndex, atlas: Atlas | None) -> page.ReportSection:
    """Write the section with the most telling and the most frequent dimensions."""
    blocks: list[page.Block] = []
    for name in reversed(measured.vocabularies):  # concepts describe topics better than words
        if name == "concepts" and atlas is not None:
            telling = measured.spread(name).telling(CARDS)
            cards = page.Cards([_card(measured, atlas, concept, telling) for concept in telling])
            blocks.append(
                page.Group(name.capitalize(), [cards, _frequent_concepts(measured, atlas)])
            )
            continue
        group: list[page.Block] = [_telling_terms(measured, name)]
        if name == "concepts":
            group.insert(0, page.Note("This index has no atlas: concepts are shown by name only."))
        blocks.append(page.Group(name.capitalize(), group))
    return page.ReportSection(
        "topics",
        "Topics of the collection",
        "The most telling dimensions are those whose weight varies most from document to document. "
        "The most frequent dimensions are what the documents have in common. The words of a "
        "concept are those on which it is active more often than by chance; an example marks "
        "where in a document its activation is largest.",
        blocks,
    )


def _card(measured: MeasuredIndex, atlas: Atlas, dimension: int, cards: list[int]) -> page.Card:
    concept = atlas[dimension]
    passages = []
    for example in concept.examples[:EXAMPLES]:
        text = measured.index.document(example.document_id).content
        html = page.passage(text, example.start, example.end)
        passages.append(page.Excerpt(html, example.document_id))
    nearest = [
        page.Link(atlas.labels[near], f"concept-{near}" if near in cards else None)
        for near, _ in concept.nearest[:4]
    ]
    facts = (
        f"No. {dimension}, in {page.count(concept.documents)} {measured.index.unit} "
        f"({page.percent(concept.documents / len(measured))})"
    )
    words = [word for word, _ in concept.words[:8]]
    return page.Card(f"concept-{dimension}", concept.label, facts, words, passages, nearest)


def _frequent_concepts(measured: MeasuredIndex, atlas: Atlas) -> page.Table:
    cells = []
    for dimension in atlas.most_frequent()[:FREQUENT_CONCEPTS]:
        concept = atlas[dimension]
        share = concept.documents / len(measured)
        words = ", ".join(word for word, _ in concept.words[:6])
        cells.append((concept.label, words, concept.documents, share, concept.firing_frequency))
    return page.Table(
        f"The {len(cells)} most frequent concepts",
        [
            page.text_column("Concept"),
            page.text_column("Words"),
            page.Column(measured.index.unit.capitalize(), page.count),
            page.Column(f"Share of {measured.index.unit}", lambda share: page.metered(share, 1)),
            page.Column("Share of tokens", page.percent),
        ],
        cells,
        "Share of tokens: share of the tokens of a sample of documents on which it is active.",
    )


def _telling_terms(measured: MeasuredIndex, vocabulary: str) -> page.Table:
    """Return the table of the dimensions with the largest shares of the variance."""
    spread = measured.spread(vocabulary)
    cells = []
    for dimension in spread.telling(TELLING_DIMENSIONS):
        documents = int(spread.documents[dimension])
        share = float(spread.variance_shares[dimension])
        term = measured.index.weigher.term((vocabulary, dimension))
        cells.append((term, documents, documents / len(measured), share))
    largest = max((share for *_, share in cells), default=1.0)
    return page.Table(
        f"The {len(cells)} most telling {vocabulary}",
        [
            page.text_column(vocabulary.capitalize()),
            page.Column(measured.index.unit.capitalize(), page.count),
            page.Column(f"Share of {measured.index.unit}", page.percent),
            page.Column("Share of the variance", lambda share: page.metered(share, largest)),
        ],
        cells,
        "Share of the variance: the variance of its weight over the documents, divided by the sum "
        f"of the variances of all {vocabulary}.",
    )
