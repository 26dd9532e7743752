"""PDF: the text of the pages, each a passage (extra ``files``)."""

from __future__ import annotations

import io
import logging
from importlib import import_module
from typing import Any

from lexicept.corpora.budgets import NothingToRead, check_time
from lexicept.corpora.passages import TOO_LONG, Parsed, Section
from lexicept.corpora.records import MOST_CHARACTERS
from lexicept.errors import InputError, message_of, require

ENCRYPTED = "encrypted"
NO_TEXT = "without text, such as scanned pages"

NO_TITLES = frozenset({"(anonymous)", "untitled", "untitled document", "unknown"})
"""Placeholder titles that programs write into files without a title, in lower case."""


def parse_pdf(path: str, content: bytes) -> Parsed:
    """Parse a file, also a file with an empty password. Raises NothingToRead for a file that needs
    a password, takes too long, or whose pages have no text, or too much of it. Raises InputError if
    pypdf is missing, or can't read the file."""
    require("files", "pypdf")
    pypdf: Any = import_module("pypdf")
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # it prints what it repairs
    pages: list[str] = []
    size = 0
    try:
        reader = pypdf.PdfReader(io.BytesIO(content))
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
        title = _clean(" ".join(stated.split())) if isinstance(stated, str) else ""
    except NothingToRead:
        raise
    # Broken files end in errors of any kind.
    except Exception as error:
        raise InputError(f"{path}: can't be read as PDF: {message_of(error, 200)}") from error
    if not any(pages):
        raise NothingToRead(NO_TEXT)
    sections = (Section(text, f"page {n}", f"page={n}") for n, text in enumerate(pages, 1))
    title = "" if title.lower() in NO_TITLES else title
    return Parsed("\n\n".join(filter(None, pages)), title, tuple(sections))


def _unlocked(pypdf: Any, reader: Any) -> bool:
    try:
        return bool(reader.decrypt(""))
    except (pypdf.errors.DependencyError, NotImplementedError):  # AES, without `cryptography`
        return False


def _clean(text: str) -> str:
    """Return a text without lone surrogates and zeros."""
    sound = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return sound.replace("\0", " ").strip()
