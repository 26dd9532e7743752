"""Summaries of documents for lists."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from lexicept.corpora import Document
from lexicept.index.reader import IndexReader

EXCERPT = 240
"""Most characters of a summary's text."""

CARDS = 16_384
"""Summaries kept in memory: about 10 MB."""


def summary(document: Document) -> dict[str, str]:
    """Return a document's id, title and the beginning of its text."""
    # Four times as much leaves enough where the text is indented and has empty lines.
    beginning = " ".join(document.text[: 4 * EXCERPT].split())
    cut = len(beginning) > EXCERPT or len(document.text) > 4 * EXCERPT
    excerpt = beginning[:EXCERPT] + ("…" if cut else "")
    return {"id": document.id, "title": document.title, "excerpt": excerpt}


def to_json(content: Any) -> str:
    """Return compact JSON."""
    return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


class Cards:
    """A cache of documents' summaries as members of a JSON object."""

    def __init__(self, index: IndexReader) -> None:
        self._index = index
        self.of = lru_cache(CARDS)(self._write)

    def _write(self, document_id: str) -> str:
        return to_json(summary(self._index.document(document_id)))[1:-1]
