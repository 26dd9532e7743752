"""PDF: the text of the pages, each a passage."""

from __future__ import annotations

import io
import json
import logging
from functools import cache
from importlib import import_module, resources
from typing import Any

import regex

from lexicept.corpora.budgets import NothingToRead, check_time
from lexicept.corpora.passages import TOO_LONG, Parsed, Section, authored
from lexicept.corpora.records import MOST_CHARACTERS
from lexicept.corpora.zipped_xml import ENCRYPTED

NO_TEXT = "without text, such as scanned pages"

_DIVISION = regex.compile(r"([-\u2010\xad])[ \t]*(\n|\f)[^\S\f]*(\p{Ll}[\p{L}\p{M}]*)")
"""A hyphen at the end of a line or page, and the rest of the word."""

_BEGINNING = regex.compile(r"[\p{L}\p{M}]*\p{Ll}\p{M}*\Z")

_WORD = regex.compile(r"[\p{L}\p{M}]+")


def parse_pdf(path: str, raw: bytes) -> Parsed:
    """Parse a file, also a file with an empty password. Raises NothingToRead for a file that needs
    a password, takes too long, or whose pages have no text, or too much of it. Broken files end in
    pypdf's errors, of any kind."""
    pypdf: Any = import_module("pypdf")
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # it prints what it repairs
    pages: list[str] = []
    size = 0
    reader = pypdf.PdfReader(io.BytesIO(raw))
    if reader.is_encrypted and not _unlocked(pypdf, reader):
        raise NothingToRead(ENCRYPTED)
    for page in reader.pages:
        check_time()
        # Pages may draw one stream again and again; pypdf limits the size of each.
        pages.append(_clean(page.extract_text(visitor_operand_before=check_time)))
        size += len(pages[-1])
        if size > MOST_CHARACTERS:
            raise NothingToRead(TOO_LONG)
    stated = None if reader.metadata is None else reader.metadata.title
    title = authored(_clean(stated)) if isinstance(stated, str) else ""
    if not any(pages):
        raise NothingToRead(NO_TEXT)
    pages = undivided("\f".join(page.replace("\f", "\n") for page in pages)).split("\f")
    sections = (Section(text, f"page {n}", f"page={n}") for n, text in enumerate(pages, 1))
    return Parsed("\n\n".join(filter(None, pages)), title, tuple(sections))


def undivided(text: str) -> str:
    """Return a text with the words whole that a hyphen divides at the end of a line or page.

    The hyphen stays where only the parts are words of the text, or of lexicept-mini's tokenizer:
    *well-known* is found by its hyphen, *information* without.
    """
    if _DIVISION.search(text) is None:
        return text
    words = set(_WORD.findall(_DIVISION.sub(" ", text).lower())) | _common_words()

    def whole(match: Any) -> str:
        hyphen, end, after = match.groups()
        before = _BEGINNING.search(text[max(0, match.start() - 60) : match.start()])
        if before is None:
            return str(match[0])
        compound = {before[0].lower(), after} <= words and (before[0] + after).lower() not in words
        hyphen = "-" if compound and hyphen != "\xad" else ""
        return f"{hyphen}{after}{end}"

    return str(_DIVISION.sub(whole, text))


@cache
def _common_words() -> frozenset[str]:
    tokenizer = resources.files("lexicept") / "mini" / "tokenizer.json"
    vocabulary = json.loads(tokenizer.read_bytes())["model"]["vocab"]
    return frozenset(word for word in vocabulary if len(word) > 1)


def _unlocked(pypdf: Any, reader: Any) -> bool:
    try:
        return bool(reader.decrypt(""))
    except (pypdf.errors.DependencyError, NotImplementedError):  # AES, without `cryptography`
        return False


def _clean(text: str) -> str:
    """Return a text without lone surrogates and zeros."""
    sound = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return sound.replace("\0", " ").strip()
