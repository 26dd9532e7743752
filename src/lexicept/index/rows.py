"""The documents of an opened index, whole and by the rows that are searched."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from lexicept.corpora import Document
from lexicept.errors import InputError
from lexicept.index.passages import Passages
from lexicept.index.stored import StoredDocuments


class StoredRows:
    """Documents, each of one row or of one for each of its passages."""

    path: Path
    passages: Passages
    _stored: StoredDocuments

    @property
    def num_documents(self) -> int:
        return self.passages.num_documents

    def __contains__(self, document_id: object) -> bool:
        return self._stored.rows(document_id) is not None

    def document_rows(self, document_id: str) -> range:
        """The rows of a document, or of a passage. Raises InputError for an unknown id."""
        rows = self._stored.rows(document_id) if isinstance(document_id, str) else None
        if rows is None:
            raise InputError(f"no document {document_id!r} in {self.path}")
        return rows

    def document_number(self, document_id: str) -> int:
        """The first row of a document. Raises InputError for an unknown id."""
        return self.document_rows(document_id)[0]

    def document(self, document_id: str) -> Document:
        """A whole document, or a passage by its id. Raises InputError for an unknown id."""
        return self._stored.whole(document_id, self.document_rows(document_id))

    def stored(self, number: int) -> Document:
        """A row: a document, or a passage with its own id."""
        return self._stored.document(number)

    def documents(self) -> Iterator[Document]:
        """All whole documents, in order."""
        return (self.document(name) for name, _ in self.passages.spans())
