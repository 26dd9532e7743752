"""Passages: long documents cut at their headings, pages and paragraphs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, count
from typing import Any, NamedTuple, TypeAlias

from lexicept.corpora.budgets import check_time
from lexicept.corpora.records import MOST_CHARACTERS, Document, Passage
from lexicept.fields.values import NOTHING

MOST_WORDS = 200
"""Most words of a passage: about one window of lexicept-mini's backbone. A document of no more
words is indexed whole."""

TITLES = " › "
"""Stands between the titles of a document and a passage."""

LONGEST_ANCHOR = 1_000
"""Most characters of an anchor that come from a heading."""

TOO_LONG = f"longer than {MOST_CHARACTERS:,} characters"
"""Reason to skip a file."""

_AUTOMATIC_TITLES = re.compile(
    r"""\(?(anonymous|untitled|unknown|title|template|document|layout|slide|presentation|print|"""
    r"""powerpoint\ presentation|powerpoint-präsentation|présentation\ powerpoint)"""
    r"""([ -]?(\d+|document))?\)?|microsoft\ \w+\ -\ .*|"""
    r""".*\.(docx?|dotx?|odt|rtf|pdf|tex|dvi|e?ps|indd|qxd|pptx?|odp|xlsx?|ods|html?|pub|wpd)""",
    re.I | re.X,
)

_PARAGRAPHS = re.compile(r"\n[ \t]*\n")
_SENTENCES = re.compile(r"(?<=[.!?。！？])\s+|\n")


class Heading(NamedTuple):
    """A heading of a text; 1 is the highest level."""

    level: int
    text: str
    anchor: str

    @classmethod
    def of(cls, level: int, text: str) -> Heading:
        """Return a heading with GitHub's anchor: the words in lower case, joined by hyphens."""
        anchor = re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")
        return cls(level, text, anchor)


Block: TypeAlias = str | Heading
"""A heading, or the text of a paragraph, a table, or code."""


def spelled(block: Block) -> str:
    """Return the text of a block."""
    return block.text if isinstance(block, Heading) else block


class Section(NamedTuple):
    """A part of a document under a heading, or on a page."""

    text: str
    title: str = ""
    anchor: str = ""

    def below(self, title: str) -> Section:
        """Return the section with a title above its own, unless both are equal."""
        titles = dict.fromkeys(filter(None, (title, self.title)))
        return self._replace(title=TITLES.join(titles))

    def without(self, title: str) -> Section:
        """Return the section without a title that is its own, or stands above it."""
        own = "" if self.title == title else self.title.removeprefix(title + TITLES)
        return self._replace(title=own)


class Parsed(NamedTuple):
    """The document of a parsed file."""

    text: str
    title: str
    sections: tuple[Section, ...]
    """Sections of the text, under headings or on pages."""
    fields: Mapping[str, Any] = NOTHING

    @classmethod
    def of(cls, sections: list[Section], title: str, fields: Mapping[str, Any] = NOTHING) -> Parsed:
        """Return the document whose text is the titles and texts of sections."""
        texts = (text for section in sections for text in (section.title, section.text))
        return cls("\n\n".join(filter(None, texts)), title, tuple(sections), fields)


def parsed_blocks(
    blocks: Sequence[Block], title: str = "", fields: Mapping[str, Any] = NOTHING
) -> Parsed:
    """Return the document of a text's headings and blocks.

    Without a ``title`` it is the first heading of level 1. The text lacks the title's heading.
    """
    blocks = list(blocks)
    headings = (block for block in blocks if isinstance(block, Heading) and block.level == 1)
    heading = next(headings, None)
    if heading is not None and title in ("", heading.text):
        title = heading.text
        blocks.remove(heading)
    text = "\n\n".join(filter(None, map(spelled, blocks)))
    return Parsed(text, title, tuple(sections(blocks)), fields)


def authored(title: str) -> str:
    """Return the title in a file's properties; nothing for a program's, such as a file name."""
    title = " ".join(title.split())
    return "" if _AUTOMATIC_TITLES.fullmatch(title) else title


def sections(blocks: Iterable[Block]) -> Iterator[Section]:
    """Yield the text before the first heading and below each; titles are the headings above."""
    path: list[Heading] = []
    texts: list[str] = []
    for block in chain(blocks, [None]):
        if isinstance(block, str):
            texts.append(block)
            continue
        deeper = block is not None and bool(path) and block.level > path[-1].level
        if path and not texts and not deeper:
            texts.append(path[-1].text)  # a heading without text is not lost
        title = TITLES.join(above.text for above in path if above.text)
        yield Section("\n\n".join(texts), title, path[-1].anchor if path else "")
        if block is not None:
            path, texts = [above for above in path if above.level < block.level] + [block], []


def with_passages(document: Document, sections: Iterable[Section]) -> Document:
    """Return a document with passages, or whole if not longer than ``MOST_WORDS``.

    Longer ``sections`` of the text are cut further, at paragraphs, else sentences, else words.
    """
    if num_words(document.text) <= MOST_WORDS:
        return document
    passages: list[Passage] = []
    repetitions: dict[str, int] = {}
    for section in sections:
        for index, text in enumerate(pieces(section.text), 1):
            check_time()
            anchor = section.anchor[:LONGEST_ANCHOR] or str(len(passages) + 1)
            free = _free(anchor, "" if index == 1 else f".{index}", repetitions)
            passages.append(Passage(text, section.title, free))
    if len(passages) < 2:
        return document
    return document._replace(text=joined(passages), passages=tuple(passages))


def _free(anchor: str, suffix: str, repetitions: dict[str, int]) -> str:
    """Return the anchor of a section's piece, made unique by the first free number."""
    for repetition in count(repetitions.get(anchor + suffix, 1)):
        free = anchor + (f"-{repetition}" if repetition > 1 else "") + suffix
        if free not in repetitions:
            break
    # Later anchors of this name go on from here: many equal headings take no square of time.
    repetitions[anchor + suffix] = repetition + 1
    repetitions.setdefault(free, 1)
    return free


def rows(document: Document) -> Iterator[Document]:
    """Yield the entries of a document in an index: the document, or a document for each passage.

    The title of a passage follows the document's title.
    """
    if not document.passages:
        yield document
        return
    for position, passage in enumerate(document.passages, 1):
        title = TITLES.join(filter(None, (document.title, passage.title)))
        name = f"{document.id}#{passage.anchor or position}"
        yield Document(name, passage.text, title, document.fields)


def from_rows(document_id: str, title: str, stored: Sequence[Document]) -> Document:
    """Return the document of these entries; the reverse of ``rows``."""
    passages = []
    for record in stored:
        heading = record.title[len(title) :].removeprefix(TITLES) if title else record.title
        passages.append(Passage(record.text, heading, record.id[len(document_id) + 1 :]))
    return Document(document_id, joined(passages), title, stored[0].fields, tuple(passages))


def joined(passages: Iterable[Passage]) -> str:
    """Return the text of a document: all passages, each title once."""
    blocks, previous = [], ""
    for passage in passages:
        if passage.title and passage.title != previous:
            blocks.append(passage.title)
        previous = passage.title
        blocks.append(passage.text)
    return "\n\n".join(blocks)


def num_words(text: str) -> int:
    """Return the number of words of a text, at least one per twelve characters because some
    scripts have no spaces."""
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
        fragments = [fragment for fragment in separator.split(text) if fragment.strip()]
        if len(fragments) > 1:
            break
    else:
        fragments = _runs(text, most)
    yield from _packed(fragments, most, "\n\n" if separator is _PARAGRAPHS else " ")


def _packed(fragments: Iterable[str], most: int, glue: str) -> Iterator[str]:
    """Yield neighbouring fragments together, of at most ``most`` words."""
    waiting = ""
    for fragment in fragments:
        longer = f"{waiting}{glue}{fragment.strip()}" if waiting else fragment.strip()
        if num_words(longer) <= most:
            waiting = longer
            continue
        if waiting:
            yield waiting
        waiting = ""
        if num_words(fragment) <= most:
            waiting = fragment.strip()
        else:
            yield from pieces(fragment, most)
    if waiting:
        yield waiting


def _runs(text: str, most: int) -> list[str]:
    """Cut a text without sentences after ``most`` words; cut very long words too."""
    words = [
        word[i : i + 12 * most] for word in text.split() for i in range(0, len(word), 12 * most)
    ]
    runs: list[list[str]] = [[]]
    size = 0
    for word in words:
        if runs[-1] and (len(runs[-1]) == most or size + len(word) + 1 > 12 * most):
            runs.append([])
            size = 0
        runs[-1].append(word)
        size += len(word) + 1
    return [" ".join(run) for run in runs]
