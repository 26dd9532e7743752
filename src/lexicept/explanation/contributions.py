"""Contributions of dimensions to a score, and the activating text."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self

from lexicept.corpora import Document
from lexicept.fields.normal_forms import caseless

SPELLED = 5
"""Strings that ``spelled`` shows with their shares."""


SIMILARITY, PRIOR = "similar as a whole", "document prior"
"""Names of the parts of a score without dimension, for people."""


class Span(NamedTuple):
    """Characters of a text, counted as Python does: in Unicode code points."""

    start: int
    end: int


class Sources(NamedTuple):
    """Spans of a text that activate a dimension, the largest share first."""

    spans: tuple[Span, ...] = ()
    shares: tuple[float, ...] = ()
    """The share of each span in the activation. The sum is 1 less the shares of a prompt before the
    text and of counted special tokens, which have no characters."""

    @classmethod
    def of(cls, spans: Iterable[tuple[Span, float]]) -> Self:
        """Order spans by share; the shares of equal spans are added."""
        shares: dict[Span, float] = {}
        for span, share in spans:
            shares[span] = shares.get(span, 0.0) + share
        ordered = sorted(shares.items(), key=lambda item: (-item[1], item[0]))
        return cls(tuple(span for span, _ in ordered), tuple(share for _, share in ordered))

    @classmethod
    def alike(cls, spans: Sequence[Span]) -> Self:
        """Give all spans the same share."""
        return cls.of((span, 1 / len(spans)) for span in spans)


class QueryTerm(NamedTuple):
    """A dimension of a query and the weight."""

    vocabulary: str
    dimension: int
    """The number within the vocabulary: for concepts the latent's."""
    term: str
    """A stem or a concept's label; for a concept without a name the number, as in "#12"."""
    weight: float
    spans: tuple[Span, ...]
    """Characters of the query, as in ``Contribution``."""
    shares: tuple[float, ...]
    """The share of each, as in ``Contribution``."""
    idea: str = ""
    """As in ``Contribution``."""

    @property
    def in_query(self) -> Sources:
        """``spans`` with shares."""
        return Sources(self.spans, self.shares)


class Contribution(NamedTuple):
    """The part of a score that one dimension adds."""

    vocabulary: str
    dimension: int
    """The number within the vocabulary: for concepts the latent's."""
    term: str
    """A stem or a concept's label; for a concept without a name the number, as in "#12"."""
    score: float
    """``query_weight * document_weight``."""
    query_weight: float
    document_weight: float
    query_spans: tuple[Span, ...]
    """Characters of the query that activate the dimension; empty without ``spans``. All occurrences
    of a word. For a concept, the word with the largest activation (max pooling) or all words with
    an activation (other poolings)."""
    query_shares: tuple[float, ...]
    """The share of each span in the query's activation, the largest first; see ``Sources``."""
    document_spans: tuple[Span, ...]
    """Characters of the document's content (title and text) that activate the dimension."""
    document_shares: tuple[float, ...]
    """The share of each span in the document's activation."""
    idea: str = ""
    """The same for a query's word and the concepts that it names or fires, and for concepts of one
    name."""

    @property
    def in_query(self) -> Sources:
        """``query_spans`` with shares."""
        return Sources(self.query_spans, self.query_shares)

    @property
    def in_document(self) -> Sources:
        """``document_spans`` with shares."""
        return Sources(self.document_spans, self.document_shares)


class WholePart(NamedTuple):
    """The part of a score that no dimension adds."""

    name: str
    """``SIMILARITY`` or ``PRIOR``."""
    key: str
    """Attribute of an ``Explanation``: "similarity" or "prior"."""
    score: float
    words: str = ""
    """The words behind the similarity; see ``similarity.described``."""


def whole(text: str, start: int, end: int) -> Span:
    """Return a span without outer spaces, and with the combining marks of the last letter."""
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    while start < end < len(text) and unicodedata.category(text[end])[0] == "M":
        end += 1
    return Span(start, end)


def strong_and_weak(sources: Sources) -> tuple[list[Span], list[Span]]:
    """Return the spans with at least half of the largest share, and the weaker spans."""
    half = max(sources.shares, default=0.0) / 2
    pairs = list(zip(sources.spans, sources.shares, strict=True))
    strong = [span for span, share in pairs if share >= half]
    return strong, [span for span, share in pairs if share < half]


def spellings(text: str, sources: Sources) -> dict[str, float]:
    """Return the shares of distinct strings under spans of a text, ignoring case, largest first."""
    strings: dict[str, str] = {}
    shares: dict[str, float] = {}
    for (start, end), share in zip(sources.spans, sources.shares, strict=True):
        spelling = strings.setdefault(caseless(text[start:end]), text[start:end])
        shares[spelling] = shares.get(spelling, 0.0) + share
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


def spelled(text: str, sources: Sources, most: int = SPELLED) -> str:
    """Return the strings under spans of a text in one line, several with shares: "heart 60%,
    cardiac 25%, 3 more 15%"."""
    strings = spellings(text, sources)
    if len(strings) < 2:
        return "".join(strings)
    entries = [f"{spelling} {share:.0%}" for spelling, share in [*strings.items()][:most]]
    if len(strings) > most:
        remainder = math.fsum([*strings.values()][most:])
        entries.append(f"{len(strings) - most} more {remainder:.0%}")
    return ", ".join(entries)


def unnamed(number: int) -> str:
    """Return the term of a concept without a name."""
    return f"#{number}"


def name_of(label: str, number: int) -> str:
    """Return a concept's label without the number that sets it apart from others of its name."""
    return label.removesuffix(f" {unnamed(number)}")


def several(name: str, count: int) -> str:
    """Return a name with the number of its concepts, if there are several."""
    return name if count == 1 else f"{name} ({count} concepts)"


class Idea(NamedTuple):
    """Contributions of one meaning: a word, the concepts named by it, or concepts of one name."""

    name: str
    """The word as the query spells it, or the name of the concepts."""
    parts: tuple[Contribution, ...]
    """The largest first."""

    @property
    def vocabulary(self) -> str:
        """The vocabulary of the largest part."""
        return self.parts[0].vocabulary

    @property
    def score(self) -> float:
        return math.fsum(part.score for part in self.parts)

    @property
    def in_query(self) -> Sources:
        """The characters of the query, shares weighted by the parts' scores."""
        return _joined([(part.in_query, part.score) for part in self.parts])

    @property
    def in_document(self) -> Sources:
        """The characters of the document, shares weighted by the parts' scores."""
        return _joined([(part.in_document, part.score) for part in self.parts])

    def composition(self, total: float) -> str:
        """Return the parts of a score by vocabulary: "word", "meaning", or for both "word 25 %,
        meaning 10 %"."""
        sums: dict[str, float] = {}
        for contribution in self.parts:
            name = NOUNS.get(contribution.vocabulary, contribution.vocabulary)
            sums[name] = sums.get(name, 0.0) + contribution.score
        large = {name: score for name, score in sums.items() if score >= 0.005 * total}
        if len(large) < 2:
            return "".join([*(large or sums)][:1])
        return ", ".join(f"{name} {score / total:.0%}" for name, score in large.items())


NOUNS = {"words": "word", "concepts": "meaning"}
"""A dimension of each vocabulary, for people."""


def ideas_of(contributions: Sequence[Contribution], query: str, content: str) -> list[Idea]:
    """Return the ideas of contributions to a score, the largest first."""
    groups: dict[str, list[Contribution]] = {}
    for entry in contributions:
        groups.setdefault(entry.idea or f"{entry.vocabulary} {entry.dimension}", []).append(entry)
    ideas = []
    for group in groups.values():
        words = [term for term in group if term.vocabulary == "words"]
        spelled_words = [word for term in words for word in spellings(query, term.in_query)]
        name = name_of(shown_term(group[0], query, content), group[0].dimension)
        ideas.append(Idea(next(iter(spelled_words), name), tuple(group)))
    return sorted(ideas, key=lambda idea: -idea.score)


def _joined(weighted: Sequence[tuple[Sources, float]]) -> Sources:
    """Return sources together, whose shares are weighted."""
    total = math.fsum(weight for _, weight in weighted) or 1.0
    return Sources.of(
        (span, share * weight / total)
        for sources, weight in weighted
        for span, share in zip(sources.spans, sources.shares, strict=True)
    )


def largest_first(
    ideas: Sequence[Idea], whole_parts: Sequence[WholePart]
) -> list[Idea | WholePart]:
    """Return the parts of a score, the largest first."""
    return sorted([*ideas, *whole_parts], key=lambda part: -part.score)


def shown_term(contribution: Contribution, query: str, content: str) -> str:
    """Return the name of a term; for a concept without a name, the strongest words of query and
    document, as in "fracture ↔ fractures"."""
    if contribution.vocabulary == "concepts" and contribution.term == unnamed(
        contribution.dimension
    ):
        query_words = spellings(query, contribution.in_query)
        document_words = spellings(content, contribution.in_document)
        if query_words and document_words:
            return f"{next(iter(query_words))} ↔ {next(iter(document_words))}"
    return contribution.term


def split_spans(
    document: Document, spans: Iterable[Span]
) -> tuple[tuple[Span, ...], tuple[Span, ...]]:
    """Return spans of a document's content as spans of its title and spans of its text."""
    title, text = len(document.title), len(document.text)
    joined = f"{document.title} {document.text}"
    # The content has no spaces at the beginning, unlike the title and text joined here.
    stripped = len(joined) - len(joined.lstrip())
    spans = list(spans)
    return _within(spans, -stripped, title), _within(spans, title + 1 - stripped, text)


def _within(spans: Iterable[Span], start: int, length: int) -> tuple[Span, ...]:
    """Return spans cut to ``length`` characters from ``start``, relative to ``start``."""
    moved = ((max(first - start, 0), min(last - start, length)) for first, last in spans)
    return tuple(Span(first, last) for first, last in moved if first < last)
