"""Explanations: the exact decomposition of a score, as a table of text or HTML."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lexicept.corpora import Document
from lexicept.explanation.contributions import Contribution, by_name, shown_term, spelled
from lexicept.sanitize import safe

SHOWN = 10
"""Contributions in the ``repr`` of an explanation."""

SIMILARITY = "similar as a whole"
"""Name of the similarity of whole texts in tables."""

CELL = 40
"""Most characters of a cell in the ``repr``."""


@dataclass(frozen=True)
class Explanation:
    """The exact decomposition of one score."""

    query: str
    document_id: str
    content: str
    """The document's title and text."""
    contributions: tuple[Contribution, ...]
    """The contributions above 0, largest first."""
    prior: float
    """RRA's offset of the document times the query's factor; 0 without RRA."""
    passage: str | None = None
    """The id of the scored passage; None for a document indexed whole."""
    stop_words: tuple[str, ...] = ()
    """The query's words that are not searched: function words and single letters."""
    similarity: float = 0.0
    """20 times the cosine of the texts' vectors, at least 0; 0 for a search of one vocabulary, and
    for an index without vectors."""

    @property
    def score(self) -> float:
        """The sum of the contributions, the prior and the similarity. The sum is exact up to double
        precision. A search adds the same n numbers in single precision: both differ by at
        most (n + 1) · 2⁻²⁴ of the score, where no prior is negative."""
        added = (self.prior, self.similarity)
        return math.fsum([*added, *(entry.score for entry in self.contributions)])

    @property
    def note(self) -> str:
        """A sentence about ``stop_words``; may be empty."""
        return f"not searched as words: {', '.join(self.stop_words)}" if self.stop_words else ""

    def __repr__(self) -> str:
        """Return an aligned table of the largest contributions."""
        lines = [("score", "share", "", "term", "in the query", "in the document")]
        contributions = by_name(self.contributions)
        for entry in contributions[:SHOWN]:
            term = shown_term(entry, self.query, self.content)
            in_query = spelled(self.query, entry.in_query)
            in_document = spelled(self.content, entry.in_document)
            vocabulary = entry.vocabulary.removesuffix("s")
            lines.append((*self._share(entry.score), vocabulary, term, in_query, in_document))
        remainder = math.fsum(entry.score for entry in contributions[SHOWN:])
        if remainder:
            more = f"{len(contributions) - SHOWN} more"
            lines.append((*self._share(remainder), "", more, "", ""))
        if self.similarity:
            lines.append((*self._share(self.similarity), "", SIMILARITY, "", ""))
        if self.prior:
            lines.append((*self._share(self.prior), "", "document prior", "", ""))
        title = f"Explanation of {self.document_id!r} for {self.query!r}: {self.score:.4f}"
        return "\n".join([safe(title), *_aligned(lines), safe(self.note)]).rstrip()

    def _repr_html_(self) -> str:
        """Return a coloured table, which a notebook shows."""
        from lexicept.explanation.html import explanation_fragment

        return explanation_fragment(self, Document(self.document_id, self.content))

    def _share(self, score: float) -> tuple[str, str]:
        return f"{score:.4f}", f"{score / self.score:.1%}"

    def to_json(self) -> dict[str, Any]:
        """Return JSON values, with shares of the score added."""
        score = self.score
        return {
            "query": self.query,
            "document_id": self.document_id,
            "content": self.content,
            "score": score,
            "prior": self.prior,
            "similarity": self.similarity,
            "stop_words": self.stop_words,
            "contributions": [
                {**entry._asdict(), "share": entry.score / score} for entry in self.contributions
            ],
        }


def _aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    """Return lines of aligned cells, the first two columns to the right."""
    table = [
        [textwrap.shorten(safe(cell), CELL, placeholder="…") for cell in cells] for cells in lines
    ]
    columns = []
    for place, column in enumerate(zip(*table, strict=True)):
        width = max(map(len, column))
        columns.append([cell.rjust(width) if place < 2 else cell.ljust(width) for cell in column])
    return ["  ".join(cells).rstrip() for cells in zip(*columns, strict=True)]
