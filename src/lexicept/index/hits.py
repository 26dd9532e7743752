"""Results of a query."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field

from lexicept.corpora import Document
from lexicept.explanation.explanation import Explanation
from lexicept.fields.values import Value
from lexicept.index.stored import StoredDocuments


@dataclass(slots=True)  # freezing would triple the time of a search for 1000 hits
class Hit:
    """A result of a search. Title, text and fields are read from disk at each access."""

    rank: int
    """The position in the list of results, from 1."""
    score: float
    id: str
    """The document's id."""
    stored: StoredDocuments = field(repr=False, compare=False)
    number: int = field(repr=False, compare=False)
    """The number of the document in the index, or of its best passage."""
    similarity: float | None = field(default=None, repr=False, compare=False)
    """Similarity of the text, or of the best passage, in the score; None for a search without."""
    explanation: Explanation | None = field(default=None, repr=False)
    """The decomposition of the score, from a search with ``explain``."""

    @property
    def passage(self) -> str | None:
        """The id of the document's best passage; None for a document without passages."""
        return self.stored.passage_id(self.number)

    @property
    def title(self) -> str:
        """The document's title, followed by the best passage's; may be empty."""
        return self.stored.titles[self.number]

    @property
    def text(self) -> str:
        """The text of the document, or of the best passage."""
        return self.stored.texts[self.number]

    @property
    def fields(self) -> dict[str, Value]:
        """The document's fields by name; dates are texts in ISO 8601."""
        return self.stored.fields.of(self.number)

    @property
    def document(self) -> Document:
        """The document with the title and text above; ``Index.document`` returns all passages."""
        return Document(self.id, self.text, self.title, self.fields)

    def __repr__(self) -> str:
        content = textwrap.shorten(self.document.content, 60, placeholder="…")
        return f"Hit(rank={self.rank}, score={self.score:.4f}, id={self.id!r}, {content!r})"
