"""Stored documents, and the results that point to them."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from lexicept.corpora import Document
from lexicept.corpora.passages import from_rows
from lexicept.explanation.explanation import Explanation
from lexicept.fields.columns import Columns
from lexicept.fields.values import Value
from lexicept.index.parts import TEXTS, Parts
from lexicept.index.passages import DocumentIds, Passages


class StoredDocuments:
    """The documents of one generation: rows, each a document or a passage of one."""

    def __init__(self, folder: Path) -> None:
        self.parts = Parts.open(folder)
        self.ids, self.titles, self.texts = map(self.parts.texts, TEXTS)
        self.fields = Columns(folder / "fields", len(self.ids))
        self.passages = Passages(folder, self.ids)
        self.document_ids = DocumentIds(self.passages, len(self.ids))
        """The id of each row's document."""

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The row of each id that a row has."""
        return {name: number for number, name in enumerate(self.ids)}

    def passage_id(self, number: int) -> str | None:
        """Return the id of a row that is a passage; None for one that is a document."""
        own = self.ids[number]
        return None if own == self.document_ids[number] else own

    def document(self, number: int) -> Document:
        """Return a row as a document; the title of a passage follows that of its document."""
        fields = self.fields.of(number)
        return Document(self.ids[number], self.texts[number], self.titles[number], fields)

    def rows(self, document_id: object) -> range | None:
        """Return the rows of a document, or that of a passage; None for an unknown id."""
        if (place := self.passages.numbers.get(document_id)) is not None:  # type: ignore[call-overload]
            return self.passages.span(place)
        row = self.numbers.get(document_id)  # type: ignore[call-overload]
        return None if row is None else range(row, row + 1)

    def whole(self, document_id: str, rows: range) -> Document:
        """Return the whole document, or the passage, of an id and its rows."""
        place = self.passages.numbers.get(document_id)
        stored = [self.document(row) for row in rows]
        if place is None:
            return stored[0]
        return from_rows(document_id, self.passages.titles[place], stored)

    def content(self, document_id: str) -> str | None:
        """Return a row's title and text; None for an unknown id."""
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
    """The row of the document in the index, or that of its best passage."""
    explanation: Explanation | None = field(default=None, repr=False)
    """The decomposition of the score, where the search was asked for it."""

    @property
    def passage(self) -> str | None:
        """The id of the document's best passage; None where the document is indexed whole."""
        return self.stored.passage_id(self.number)

    @property
    def title(self) -> str:
        """The document's title, and after it that of its best passage; may be empty."""
        return self.stored.titles[self.number]

    @property
    def text(self) -> str:
        """The text of the document, or of its best passage."""
        return self.stored.texts[self.number]

    @property
    def fields(self) -> dict[str, Value]:
        """The document's fields by name; dates are texts in ISO 8601."""
        return self.stored.fields.of(self.number)

    @property
    def document(self) -> Document:
        """The document with the title and the text above; ``Index.document`` returns all of it."""
        return Document(self.id, self.text, self.title, self.fields)

    def __repr__(self) -> str:
        shown = textwrap.shorten(self.document.content, 60, placeholder="…")
        return f"Hit(rank={self.rank}, score={self.score:.4f}, id={self.id!r}, {shown!r})"
