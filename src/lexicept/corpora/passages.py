"""Passages: long documents cut at their headings, pages and paragraphs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from lexicept.corpora.records import Document, Passage
from lexicept.fields.values import NOTHING

MOST_WORDS = 200
"""Most words of a passage that is cut from a longer text: about as many as one window of
lexicept-mini's backbone holds. A document of no more words is indexed whole."""

TITLES = " › "
"""Stands between the title of a document and that of a passage, where a passage is shown."""

_PARAGRAPHS = re.compile(r"\n[ \t]*\n")
_SENTENCES = re.compile(r"(?<=[.!?。！？])\s+|\n")


class Section(NamedTuple):
    """A part of a document under a heading, or on a page."""

    text: str
    title: str = ""
    anchor: str = ""


class NothingToRead(Exception):  # noqa: N818
    """Raised for a file that no document can be made of; its text is the reason."""


class Parsed(NamedTuple):
    """The document that a file holds."""

    text: str
    title: str
    sections: tuple[Section, ...]
    """Parts of the text, under its headings or on its pages."""
    fields: Mapping[str, Any] = NOTHING


def with_passages(document: Document, sections: Iterable[Section]) -> Document:
    """Return a document with its passages; one of at most ``MOST_WORDS`` stays whole.

    Args:
        document: with its whole text.
        sections: the parts of the text; longer ones than ``MOST_WORDS`` are cut further, at
            paragraphs, else sentences, else words.
    """
    if num_words(document.text) <= MOST_WORDS:
        return document
    passages: list[Passage] = []
    taken: set[str] = set()
    for section in sections:
        for number, text in enumerate(pieces(section.text), 1):
            wanted = section.anchor or str(len(passages) + 1)
            passages.append(Passage(text, section.title, _free(wanted, number, taken)))
    if len(passages) < 2:
        return document
    return document._replace(text=joined(passages), passages=tuple(passages))


def _free(anchor: str, number: int, taken: set[str]) -> str:
    """Return the anchor of a section's piece, with the first number that makes it unique."""
    free = anchor if number == 1 else f"{anchor}.{number}"
    count = 1
    while free in taken:
        count += 1
        free = f"{anchor}-{count}" if number == 1 else f"{anchor}-{count}.{number}"
    taken.add(free)
    return free


def rows(document: Document) -> Iterator[Document]:
    """Yield what an index stores of a document: itself, or a document for each passage.

    The title of a passage follows that of its document.
    """
    if not document.passages:
        yield document
        return
    for number, passage in enumerate(document.passages, 1):
        title = TITLES.join(filter(None, (document.title, passage.title)))
        name = f"{document.id}#{passage.anchor or number}"
        yield Document(name, passage.text, title, document.fields)


def from_rows(document_id: str, title: str, stored: Sequence[Document]) -> Document:
    """Return the document that ``rows`` made these rows of."""
    passages = []
    for row in stored:
        heading = row.title[len(title) :].removeprefix(TITLES) if title else row.title
        passages.append(Passage(row.text, heading, row.id[len(document_id) + 1 :]))
    return Document(document_id, joined(passages), title, stored[0].fields, tuple(passages))


def joined(passages: Iterable[Passage]) -> str:
    """Return the text of a document: its passages, each title before the first that has it."""
    parts, last = [], ""
    for passage in passages:
        if passage.title and passage.title != last:
            parts.append(passage.title)
        last = passage.title
        parts.append(passage.text)
    return "\n\n".join(parts)


def num_words(text: str) -> int:
    """Return the number of words of a text; one per twelve characters where words are long or not
    separated by spaces."""
    return max(len(text.split()), len(text) // 12)


def pieces(text: str, most: int = MOST_WORDS) -> Iterator[str]:
    """Yield a text in pieces of at most ``most`` words (see ``num_words``), cut at paragraphs, else
    at sentences, else at words."""
    text = text.strip()
    if num_words(text) <= most:
        if text:
            yield text
        return
    for separator in (_PARAGRAPHS, _SENTENCES):
        parts = [part for part in separator.split(text) if part.strip()]
        if len(parts) > 1:
            break
    else:
        parts = _runs(text, most)
    yield from _packed(parts, most, "\n\n" if separator is _PARAGRAPHS else " ")


def _packed(parts: Iterable[str], most: int, glue: str) -> Iterator[str]:
    """Yield neighbouring parts together, as many as ``most`` words take."""
    waiting = ""
    for part in parts:
        longer = f"{waiting}{glue}{part.strip()}" if waiting else part.strip()
        if num_words(longer) <= most:
            waiting = longer
            continue
        if waiting:
            yield waiting
        waiting = ""
        if num_words(part) <= most:
            waiting = part.strip()
        else:
            yield from pieces(part, most)
    if waiting:
        yield waiting


def _runs(text: str, most: int) -> list[str]:
    """Cut a text without sentences after ``most`` words, and very long words at the same size."""
    words = [
        word[i : i + 12 * most] for word in text.split() for i in range(0, len(word), 12 * most)
    ]
    cut: list[str] = []
    waiting: list[str] = []
    size = 0
    for word in words:
        if waiting and (len(waiting) == most or size + len(word) + 1 > 12 * most):
            cut.append(" ".join(waiting))
            waiting, size = [], 0
        waiting.append(word)
        size += len(word) + 1
    return [*cut, " ".join(waiting)]
