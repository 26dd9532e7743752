"""Summaries of documents for lists."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from lexicept.corpora.passages import TITLES
from lexicept.errors import IndexFormatError
from lexicept.index.hits import Hit
from lexicept.index.matches import matches_of
from lexicept.index.reader import IndexReader
from lexicept.queries.syntax import ParsedQuery

EXCERPT = 240
"""Most characters of a summary's text."""

MATCH = ("vocabulary", "dimension", "term", "idea", "score")
"""What a result tells of a contribution."""

NOT_FINITE = "its weights give scores that are not finite"
"""JSON has no infinity."""


def summary(index: IndexReader, number: int) -> dict[str, Any]:
    """Return id, title, fields and an excerpt of a document, or of a passage."""
    document, document_id = index.stored(number), index.document_ids[number]
    # Four times as much leaves enough where the text is indented and has empty lines.
    beginning = " ".join(document.text[: 4 * EXCERPT].split())
    cut = len(beginning) > EXCERPT or len(document.text) > 4 * EXCERPT
    excerpt = beginning[:EXCERPT] + ("…" if cut else "")
    fields = {"id": document_id, "title": document.title, "fields": document.fields}
    passage = None if document.id == document_id else document.id
    return {**fields, "passage": passage, "excerpt": excerpt}


def card(index: IndexReader, number: int) -> str:
    """Return the members of a document's JSON object in results, without the braces."""
    return to_json(summary(index, number))[1:-1]


def cards_with_matches(
    index: IndexReader,
    query: ParsedQuery,
    hits: Sequence[Hit],
    vocabulary: str | None,
    rescore: bool,
) -> list[str]:
    """Return members of results' JSON objects: what each shares with the query, and an excerpt."""
    weighted = index.weigh([query], vocabulary, rescore=rescore)
    cards = []
    for hit, (matches, excerpt) in zip(hits, matches_of(index, weighted, hits), strict=True):
        listed = [
            {name: getattr(match.contribution, name) for name in MATCH} | {"word": match.word}
            for match in matches
        ]
        more = {"excerpt": excerpt, "matches": listed}
        cards.append(to_json(summary(index, hit.number) | more)[1:-1])
    return cards


def title_queries(index: IndexReader, most: int = 3) -> list[str]:
    """Return titles of documents to search for: words, the longest of a sample."""
    documents = index.passages.firsts
    sample = documents[:: max(1, documents.size // 100)].tolist()
    titles = {index.stored(number).title.split(TITLES)[0]: None for number in sample}
    return [t for t in titles if re.fullmatch(r"[^\W_]+( [^\W_]+){1,6}", t)][-most:]


def to_json(content: Any) -> str:
    """Return compact JSON. Raises IndexFormatError for infinity and NaN."""
    try:
        return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError:
        raise IndexFormatError(NOT_FINITE) from None
