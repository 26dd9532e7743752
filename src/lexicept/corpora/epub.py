"""EPUB: the chapters in reading order."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from urllib.parse import unquote
from xml.etree.ElementTree import Element

from lexicept.corpora.budgets import NothingToRead
from lexicept.corpora.html import parse_html
from lexicept.corpora.passages import Parsed, Section
from lexicept.corpora.text_encoding import BinaryError
from lexicept.corpora.zipped_xml import ENCRYPTED, Archive, described, get

_PAGES = frozenset({"application/xhtml+xml", "text/html", "application/x-dtbook+xml"})


def parse_epub(path: str, raw: bytes) -> Parsed:
    """Parse a book: sections are those of the chapters; title, author and date are the book's.

    Raises NothingToRead for a damaged book, or one whose chapters are encrypted.
    """
    archive = Archive(raw)
    roots = archive.xml("META-INF/container.xml").iter("rootfile")
    package = next((get(root, "full-path") for root in roots), "")
    if package not in archive.names:
        raise NothingToRead("damaged: no package of a book")
    book = archive.xml(package)
    title, fields = described(
        element for metadata in book.findall("metadata") for element in metadata.iter()
    )
    locked = archive.xml("META-INF/encryption.xml").iter("CipherReference")
    encrypted = {unquote(get(reference, "URI")) for reference in locked}
    sections: list[Section] = []
    for name in _chapters(archive, book, posixpath.dirname(package)):
        if name in encrypted:
            raise NothingToRead(ENCRYPTED)
        try:
            chapter = parse_html(f"{path}: {name}", archive.read(name))
        except BinaryError:
            continue
        shown = (section for section in chapter.sections if section.text or section.title)
        sections += (section.below(chapter.title) for section in shown)
    return Parsed.of(sections, title, fields)


def _chapters(archive: Archive, book: Element, folder: str) -> Iterator[str]:
    """Yield the members of the spine that are pages."""
    pages = {
        get(item, "id"): posixpath.normpath(posixpath.join(folder, unquote(get(item, "href"))))
        for item in book.iter("item")
        if get(item, "media-type") in _PAGES
    }
    for reference in book.iter("itemref"):
        name = pages.get(get(reference, "idref"), "")
        if name in archive.names and get(reference, "linear") != "no":
            yield name
