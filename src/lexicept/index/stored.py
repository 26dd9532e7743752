"""Stored documents, and the results that point to them."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from lexicept.corpora import Document
from lexicept.explanation.explanation import Explanation
from lexicept.fields.columns import Columns
from lexicept.fields.values import Value
from lexicept.storage.texts import TextStore


class StoredDocuments:
    """The documents of one generation, by number and by id."""

    def __init__(self, folder: Path) -> None:
        self.ids = TextStore(folder / "ids")
        self.titles = TextStore(folder / "titles")
        self.texts = TextStore(folder / "texts")
        self.fields = Columns(folder / "fields", len(self.ids))

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The row of each document, by id."""
        return {name: number for number, name in enumerate(self.ids)}

    def document(self, number: int) -> Document:
        """Return the document of a row."""
        fields = self.fields.of(number)
        return Document(self.ids[number], self.texts[number], self.titles[number], fields)

    def content(self, document_id: str) -> str | None:
        """Return a document's title and text; None for an unknown id."""
        number = self.numbers.get(document_id)
        return None if number is None else self.document(number).content


@dataclass(slots=True)  # freezing would triple the time of a search for 1000 hits
class Hit:
    """One search result. Title, text and fields are read from disk when they are asked for."""

    rank: int
    """The place in the list of results, from 1."""
    score: float
    id: str
    """The document's id."""
    stored: StoredDocuments = field(repr=False, compare=False)
    number: int = field(repr=False, compare=False)
    """The document's row in the index."""
    explanation: Explanation | None = field(default=None, repr=False)
    """The decomposition of the score, where the search was asked for it."""

    @property
    def title(self) -> str:
        """The document's title; may be empty."""
        return self.stored.titles[self.number]

    @property
    def text(self) -> str:
        """The document's text."""
        return self.stored.texts[self.number]

    @property
    def fields(self) -> dict[str, Value]:
        """The document's fields by name; dates are texts in ISO 8601."""
        return self.stored.fields.of(self.number)

    @property
    def document(self) -> Document:
        """The whole document."""
        return Document(self.id, self.text, self.title, self.fields)

    def __repr__(self) -> str:
        shown = textwrap.shorten(self.document.content, 60, placeholder="…")
        return f"Hit(rank={self.rank}, score={self.score:.4f}, id={self.id!r}, {shown!r})"
