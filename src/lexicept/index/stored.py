"""The stored documents of a generation."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from lexicept.corpora import Document
from lexicept.corpora.passages import from_rows
from lexicept.fields.columns import FieldColumns
from lexicept.index.parts import TEXTS, Parts
from lexicept.index.passages import DocumentIds, Passages


class StoredDocuments:
    """The texts, ids and fields of documents or, for documents in passages, of each passage."""

    def __init__(self, folder: Path) -> None:
        self.parts = Parts.open(folder)
        self.ids, self.titles, self.texts = map(self.parts.texts, TEXTS)
        self.fields = FieldColumns(folder / "fields", len(self.ids))
        self.passages = Passages(folder, self.ids)
        self.in_passages = len(self.passages) > 0
        """True if at least one document is stored in passages."""
        self.document_ids = DocumentIds(self.passages, len(self.ids))
        """The id of the document of each number."""

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The number of each stored id."""
        return {name: index for index, name in enumerate(self.ids)}

    def ids_of_documents(self, numbers: Sequence[int]) -> Sequence[str]:
        if not self.in_passages:
            return self.ids.select(numbers)
        return [self.passages.document_id(index) for index in numbers]

    def passage_id(self, number: int) -> str | None:
        """Return the id of a passage; None for a whole document."""
        stored_id = self.ids[number]
        return None if stored_id == self.document_ids[number] else stored_id

    def document(self, number: int) -> Document:
        """Return a document, or a passage under the titles of document and passage."""
        fields = self.fields.of(number)
        return Document(self.ids[number], self.texts[number], self.titles[number], fields)

    def entries_of(self, document_id: object) -> range | None:
        """Return the numbers of a document's passages, or of a passage; None for an unknown id."""
        if (document := self.passages.numbers.get(document_id)) is not None:  # type: ignore[call-overload]
            return self.passages.span(document)
        index = self.numbers.get(document_id)  # type: ignore[call-overload]
        return None if index is None else range(index, index + 1)

    def whole(self, document_id: str, numbers: range) -> Document:
        """Return the whole document, or the passage, of an id and numbers."""
        document = self.passages.numbers.get(document_id)
        stored = [self.document(index) for index in numbers]
        if document is None:
            return stored[0]
        return from_rows(document_id, self.passages.titles[document], stored)

    def content(self, document_id: str) -> str | None:
        """Return the title and text of a stored id; None for an unknown id."""
        index = self.numbers.get(document_id)
        return None if index is None else self.document(index).content
