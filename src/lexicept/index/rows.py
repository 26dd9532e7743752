"""The documents of an opened index, whole and by the rows that are searched."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import scipy.sparse as sp

from lexicept.corpora import Document
from lexicept.errors import InputError
from lexicept.index.parts import Parts
from lexicept.index.passages import Passages
from lexicept.index.stored import StoredDocuments
from lexicept.storage.arrays import JoinedRows, StoredRows
from lexicept.vectors import Vocabulary


class RowReader:
    """Documents, each of one row or of one for each of its passages."""

    path: Path
    passages: Passages
    vocabularies: tuple[Vocabulary, ...]
    _stored: StoredDocuments

    @property
    def num_documents(self) -> int:
        return self.passages.num_documents

    def __contains__(self, document_id: object) -> bool:
        return self._stored.rows(document_id) is not None

    def document_rows(self, document_id: str) -> range:
        """Return the rows of a document, or of a passage. Raises InputError for an unknown id."""
        rows = self._stored.rows(document_id) if isinstance(document_id, str) else None
        if rows is None:
            raise InputError(f"no document {document_id!r} in {self.path}")
        return rows

    def document_number(self, document_id: str) -> int:
        """Return the first row of a document. Raises InputError for an unknown id."""
        return self.document_rows(document_id)[0]

    def document(self, document_id: str) -> Document:
        """Return a whole document, or a passage by its id. Raises InputError for an unknown id."""
        return self._stored.whole(document_id, self.document_rows(document_id))

    def stored(self, number: int) -> Document:
        """Return a row: a document, or a passage with its own id."""
        return self._stored.document(number)

    @property
    def parts(self) -> Parts:
        """The stored parts that hold the rows."""
        return self._stored.parts

    def stored_tf(self, vocabulary: Vocabulary) -> StoredRows | JoinedRows:
        """Return the rows' tf in one vocabulary [N, V_i], opened where they are needed."""
        return self.parts.tf(vocabulary.name, vocabulary.size)

    def tf(self) -> list[sp.csr_array]:
        """Return the rows' tf [N, V_i], one matrix per vocabulary: memory-mapped, or copied where
        changes left more parts than one."""
        return [self.stored_tf(vocabulary).load() for vocabulary in self.vocabularies]

    def documents(self) -> Iterator[Document]:
        """Return all whole documents, in order."""
        return (self.document(name) for name, _ in self.passages.spans())
