"""The sections about the collection: a summary, its topics, and how its index is made."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from lexicept.evaluation.comparison import intervals
from lexicept.reports.discrimination import variance_shares
from lexicept.reports.material import Subject
from lexicept.reports.page import (
    Block,
    Card,
    Cards,
    Column,
    Group,
    Link,
    Note,
    Number,
    Numbers,
    Paragraph,
    Passage,
    Section,
    Table,
    text_column,
)
from lexicept.reports.wording import count, megabytes, metered, passage, percent
from lexicept.sanitize import one_line
from lexicept.vectors import Integers

if TYPE_CHECKING:
    from lexicept.index.atlas import Atlas

CARDS = 12
EXAMPLES = 3
FREQUENT = 150
"""Rows of the table of the most frequent concepts."""

NAMES = 60
"""Rows of the table of the most telling dimensions."""


def summary(subject: Subject, atlas: Atlas | None) -> Section:
    """Write the first section: what the collection is about, and what was found."""
    lengths = np.sum([subject.lengths(name) for name in subject.names], axis=0)
    empty = int((lengths == 0).sum())
    items = [
        Number("Documents", count(subject.index.num_documents), "searched by every query"),
        *(
            Number(v.name.capitalize(), count(v.size), "dimensions of this vocabulary")
            for v in subject.vocabularies
        ),
    ]
    if empty:
        meaning = "without any dimension: no query finds them"
        items.append(Number("Empty documents", count(empty), meaning))
    if subject.questions is not None:
        items += _found(subject)
    blocks: list[Block] = []
    for name in reversed(subject.names):
        if named := _telling_names(subject, name, atlas):
            blocks.append(Paragraph(f"The {name} that tell documents apart: {', '.join(named)}."))
    blocks.append(Numbers(items))
    return Section(
        "summary",
        "Summary",
        "What the documents are about, and how well queries find them. The words and concepts of "
        "texts are the dimensions of the index. A concept is a latent of a sparse autoencoder "
        "(SAE): a learned feature that is active on tokens with a common meaning.",
        blocks,
    )


def _found(subject: Subject) -> list[Number]:
    """Return what the queries found, with all vocabularies."""
    questions = subject.questions
    assert questions is not None
    values = subject.measured()["nDCG@10"]
    mean, nothing = np.mean(list(values.values())), np.mean([v == 0 for v in values.values()])
    low, high = intervals({"nDCG@10": values})["nDCG@10"]
    half = "" if np.isnan(low) else f" ± {(high - low) / 2:.3f}"
    kind = "judged queries" if questions.judged else "pseudo-queries"
    meaning = f"quality of the first ten results of {count(len(values))} {kind}, at most 1"
    if half:
        meaning += "; ±: 95 % interval of the mean"
    return [
        Number("nDCG@10", f"{mean:.3f}{half}", meaning),
        Number("Nothing found", percent(float(nothing)), "queries with no relevant document there"),
    ]


def _telling_names(subject: Subject, name: str, atlas: Atlas | None) -> list[str]:
    """Return the most telling dimensions of a vocabulary that have a name."""
    terms = subject.terms(name) if name != "concepts" or atlas is None else atlas.labels
    shares = variance_shares(subject.spread(name))
    order = np.argsort(-shares, kind="stable")[:CARDS]
    # A number tells two concepts of one name apart; here the name alone is enough.
    named = [re.sub(r" ?#\d+$", "", one_line(terms[n])) for n in order[shares[order] > 0].tolist()]
    return [name for name in dict.fromkeys(named) if name]


def construction(subject: Subject) -> Section:
    """Write the section with the index's size, weighting and pruning."""
    index = subject.index
    sizes = sum(entry["size"] for entry in index.manifest["files"].values())
    items = [
        Number(
            "Postings",
            count(index.engine.num_postings),
            "document–dimension pairs with a weight",
        ),
        Number("Size on disk", megabytes(sizes), "texts, postings and models together"),
    ]
    rows = []
    for name, setting in index.settings.items():
        arguments = setting.weighting.settings()
        shown = ", ".join(f"{k} {v}" for k, v in arguments.items() if k != "name" and v is not None)
        limits = (
            setting.query_max_active_dims or "all",
            setting.query_max_qd_flops or "any",
            setting.pruning,
            setting.document_max_active_dims or "all",
        )
        rows.append((name, f"{arguments['name']} ({shown})", *map(str, limits)))
    columns = (
        *("Vocabulary", "Weighting", "Most dimensions of a query", "Most QD-FLOPs of a query"),
        *("Queries are pruned by", "Most dimensions of a document"),
    )
    rra = "no"
    if index.rra is not None:
        rra = f"α {index.rra.alpha:g}, {index.rra.iterations} iterations, f {index.rra.transform}"
    note = f"Re-weighted by Rational Retrieval Acts (RRA): {rra}."
    return Section(
        "construction",
        "How the index is made",
        "An inverted index stores, for every dimension, the list of the documents that have it. A "
        "document's score is the sum, over the dimensions it shares with the query, of the query's "
        "weight times the document's weight. A weighting turns how often a dimension "
        "occurs into its weight. Pruning keeps the largest weights of a text, so that searches "
        "cost less.",
        [
            Numbers(items),
            Table("Weighting and pruning", [*map(text_column, columns)], rows, note),
        ],
    )


def topics(subject: Subject, atlas: Atlas | None) -> Section:
    """Write the section with the most telling and the most frequent dimensions."""
    blocks: list[Block] = []
    for name in reversed(subject.names):  # concepts first: they describe topics better than words
        inner: list[Block] = []
        shares = variance_shares(subject.spread(name))
        telling = np.argsort(-shares, kind="stable")[:CARDS]
        telling = telling[shares[telling] > 0]
        if name == "concepts" and atlas is not None:
            inner.append(Cards([_card(subject, atlas, int(n), telling) for n in telling]))
            inner.append(_frequent_concepts(subject, atlas))
        else:
            if name == "concepts":
                inner.append(Note("This index has no atlas: concepts are shown by name only."))
            inner.append(_telling_terms(subject, name))
        blocks.append(Group(name.capitalize(), inner))
    return Section(
        "topics",
        "Topics of the collection",
        "The most telling dimensions are those whose weight varies most from document to document "
        "(see “Discriminative dimensions”). The most frequent dimensions are what the documents "
        "have in common. The words of a concept are those on which it is active more often than "
        "by chance; an example marks where in a document its activation is largest.",
        blocks,
    )


def _card(subject: Subject, atlas: Atlas, number: int, shown: Integers) -> Card:
    concept = atlas[number]
    passages = []
    for example in concept.examples[:EXAMPLES]:
        content = subject.index.document(example.document_id).content
        html = passage(content, example.start, example.end)
        passages.append(Passage(html, example.document_id))
    there = set(shown.tolist())
    nearest = [
        Link(atlas.labels[other], f"concept-{other}" if other in there else None)
        for other, _ in concept.nearest[:4]
    ]
    facts = (
        f"No. {number}, in {count(concept.documents)} documents "
        f"({percent(concept.documents / len(subject))})"
    )
    words = [word for word, _ in concept.words[:8]]
    return Card(f"concept-{number}", concept.label, facts, words, passages, nearest)


def _frequent_concepts(subject: Subject, atlas: Atlas) -> Table:
    rows = []
    for number in atlas.most_frequent()[:FREQUENT]:
        concept = atlas[number]
        share = concept.documents / len(subject)
        words = ", ".join(word for word, _ in concept.words[:6])
        rows.append((concept.label, words, concept.documents, share, concept.firing_frequency))
    return Table(
        f"The {len(rows)} most frequent concepts",
        [
            text_column("Concept"),
            text_column("Words"),
            Column("Documents", count),
            Column("Share of documents", lambda share: metered(share, 1)),
            Column("Share of tokens", percent),
        ],
        rows,
        "Share of tokens: share of the tokens of a sample of documents on which it is active.",
    )


def _telling_terms(subject: Subject, name: str) -> Table:
    """Return the table of the dimensions with the largest shares of the variance."""
    spread = subject.spread(name)
    shares = variance_shares(spread)
    terms = subject.terms(name)
    telling = np.argsort(-shares, kind="stable")[:NAMES]
    rows = [
        (terms[n], int(spread.documents[n]), spread.documents[n] / len(subject), float(shares[n]))
        for n in telling.tolist()
        if spread.documents[n]
    ]
    most = max((row[3] for row in rows), default=1.0)
    return Table(
        f"The {len(rows)} most telling {name}",
        [
            text_column(name.capitalize()),
            Column("Documents", count),
            Column("Share of documents", percent),
            Column("Share of the variance", lambda share: metered(share, most)),
        ],
        rows,
        "Share of the variance: the variance of its weight over the documents, divided by the sum "
        f"of the variances of all {name}.",
    )
