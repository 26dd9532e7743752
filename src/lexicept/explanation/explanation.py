"""Explanations: the exact decomposition of a score, as a table of text or HTML."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lexicept.corpora import Document
from lexicept.explanation.contributions import Contribution, shown_term, spelled
from lexicept.sanitize import safe

SHOWN = 10
"""Contributions that an explanation's ``repr`` shows."""

CELL = 40
"""Characters that a cell of its table has at most."""


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
    """RRA's offset of the document times the query's factor on it; 0 without RRA."""
    passage: str | None = None
    """The id of the document's passage that was scored; None for a document indexed whole."""

    @property
    def score(self) -> float:
        """The sum of the contributions and the prior.

        It is exact up to double precision. A search adds the same n numbers, none of them negative,
        in single precision: the two differ by at most (n + 1) · 2⁻²⁴ of the score.
        """
        return math.fsum([self.prior, *(part.score for part in self.contributions)])

    def __repr__(self) -> str:
        """Return an aligned table of the largest contributions."""
        shown = self.contributions[:SHOWN]
        rows = [("score", "share", "", "term", "in the query", "in the document")]
        for part in shown:
            own = (
                part.vocabulary.removesuffix("s"),
                shown_term(part, self.query, self.content),
                spelled(self.query, part.in_query),
                spelled(self.content, part.in_document),
            )
            rows.append((*self._share(part.score), *own))
        rest = math.fsum(part.score for part in self.contributions[SHOWN:])
        if rest:
            rows.append((*self._share(rest), "", f"{len(self.contributions) - SHOWN} more", "", ""))
        if self.prior:
            rows.append((*self._share(self.prior), "", "document prior", "", ""))
        title = f"Explanation of {self.document_id!r} for {self.query!r}: {self.score:.4f}"
        return "\n".join([safe(title), *_aligned(rows)])

    def _repr_html_(self) -> str:
        """Return a coloured table, which a notebook shows."""
        from lexicept.explanation.html import explanation_fragment

        return explanation_fragment(self, Document(self.document_id, self.content))

    def _share(self, score: float) -> tuple[str, str]:
        return f"{score:.4f}", f"{score / self.score:.1%}"

    def to_json(self) -> dict[str, Any]:
        """Return dictionaries, lists, texts and numbers, with shares of the score added."""
        score = self.score
        return {
            "query": self.query,
            "document_id": self.document_id,
            "content": self.content,
            "score": score,
            "prior": self.prior,
            "contributions": [
                {**part._asdict(), "share": part.score / score} for part in self.contributions
            ],
        }


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows of cells as lines of equal columns, the first two columns to the right."""
    cells = [[textwrap.shorten(safe(cell), CELL, placeholder="…") for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if place < 2 else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]
