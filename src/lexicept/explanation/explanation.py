"""Explanations: the exact decomposition of a score, as a table of text or HTML."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lexicept.corpora import Document
from lexicept.explanation.contributions import (
    PRIOR,
    SIMILARITY,
    Contribution,
    Idea,
    WholePart,
    ideas_of,
    largest_first,
    spelled,
)
from lexicept.explanation.similarity import WordPair, described
from lexicept.sanitize import safe

SHOWN = 10
"""Contributions in the ``repr`` of an explanation."""

CELL = 60
"""Most characters of a cell in the ``repr``."""


ELSEWHERE = "elsewhere in the document"
"""Place of words that the best passage lacks."""


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
    """20 times the cosine of query and best passage, at least 0, and a fifth of this for
    ``further``; 0 for a search of one vocabulary, and for an index without vectors."""
    further: tuple[str | None, ...] = ()
    """The id of the second best passage, a fifth of whose score counts; empty for none."""
    similar_words: tuple[WordPair, ...] = ()
    """The pairs of words with the largest shares of the cosine of query and passage."""

    @property
    def score(self) -> float:
        """The sum of the contributions, the prior and the similarity. The sum is exact up to double
        precision. A search adds the same n numbers in single precision: both differ by at
        most (n + 1) · 2⁻²⁴ of the score, where no prior is negative."""
        whole = [part.score for part in self.whole_parts]
        return math.fsum([*whole, *(entry.score for entry in self.contributions)])

    @property
    def whole_parts(self) -> tuple[WholePart, ...]:
        """The similarity and the prior, if they are not 0."""
        parts = (
            WholePart(SIMILARITY, "similarity", self.similarity, described(self.similar_words)),
            WholePart(PRIOR, "prior", self.prior),
        )
        return tuple(part for part in parts if part.score)

    @property
    def note(self) -> str:
        """Sentences about ``stop_words`` and ``further``; may be empty."""
        left_out = f"not searched as words: {', '.join(self.stop_words)}" if self.stop_words else ""
        further = ", ".join(filter(None, self.further))
        counted = f"the words of the whole document and a fifth of the score of {further} count too"
        return "; ".join(filter(None, [left_out, further and counted]))

    @property
    def ideas(self) -> list[Idea]:
        """The contributions by idea, the largest first."""
        return ideas_of(self.contributions, self.query, self.content)

    def __repr__(self) -> str:
        """Return an aligned table of the largest parts."""
        lines = [("score", "share", "term", "", "in the query", "in the document")]
        ideas, total = self.ideas, self.score
        for part in largest_first(ideas[:SHOWN], self.whole_parts):
            share = self._share(part.score)
            if isinstance(part, WholePart):
                lines.append((*share, part.name, "", "", part.words))
                continue
            in_query = spelled(self.query, part.in_query)
            in_document = spelled(self.content, part.in_document)
            if in_query and not in_document and self.passage:
                in_document = ELSEWHERE
            lines.append((*share, part.name, part.composition(total), in_query, in_document))
        remainder = math.fsum(idea.score for idea in ideas[SHOWN:])
        if remainder:
            lines.append((*self._share(remainder), f"{len(ideas) - SHOWN} more", "", "", ""))
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
            "similar_words": [pair._asdict() for pair in self.similar_words],
            "further": self.further,
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
    for position, column in enumerate(zip(*table, strict=True)):
        width, justify = max(map(len, column)), str.rjust if position < 2 else str.ljust
        columns.append([justify(cell, width) for cell in column])
    return ["  ".join(cells).rstrip() for cells in zip(*columns, strict=True)]
