"""Files that are a zip archive of XML, such as office documents and EPUB."""

from __future__ import annotations

import io
import posixpath
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any
from xml.etree.ElementTree import Element

from lexicept.corpora.budgets import LARGEST, NothingToRead, check_bytes, check_time
from lexicept.corpora.passages import authored

ENCRYPTED = "encrypted"

MOST_MEMBERS = 10_000
"""Most files of an archive."""

DEEPEST = 500
"""Most elements inside one another."""

_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"


class Archive:
    """An archive in memory. Nothing is written to disk, and no reference is followed.

    Raises NothingToRead for an encrypted file, too many members, or no zip archive.
    """

    def __init__(self, raw: bytes) -> None:
        self._parse: Any = import_module("defusedxml.ElementTree").iterparse
        if raw.startswith(_OLE):  # an encrypted document, or one of Office 97
            raise NothingToRead("encrypted, or of an old format: save it anew")
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(raw))
        except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
            raise NothingToRead(f"damaged: {error}") from None
        self.names = set(self._zip.namelist())
        if len(self._zip.infolist()) > MOST_MEMBERS:
            raise NothingToRead(f"more than {MOST_MEMBERS:,} files in an archive")
        self._size = 0

    def read(self, name: str) -> bytes:
        """Return the bytes of a member; none if absent. Raises NothingToRead for an encrypted or
        damaged member, or for more bytes than the budget allows."""
        if name not in self.names:
            return b""
        if self._zip.getinfo(name).flag_bits & 1:
            raise NothingToRead(ENCRYPTED)
        chunks = []
        try:
            with self._zip.open(name) as member:
                while chunk := member.read(2**16):  # the size in the archive may be a lie
                    self._size += len(chunk)
                    check_bytes(self._size)
                    if self._size > LARGEST:
                        raise NothingToRead(f"larger than {LARGEST / 2**20:.0f} MiB inside")
                    check_time()
                    chunks.append(chunk)
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, OSError) as error:
            raise NothingToRead(f"damaged: {name}: {error}") from None
        return b"".join(chunks)

    def xml(self, name: str) -> Element:
        """Return the root of a member, without namespaces in names; an empty element if absent.
        Raises NothingToRead for damaged XML, or XML with a document type."""
        raw = self.read(name)
        if not raw.strip():
            return Element("absent")
        depth, root = 0, Element("absent")
        try:
            events = self._parse(io.BytesIO(raw), ("start", "end"), forbid_dtd=True)
            for event, element in events:
                if event == "start":
                    depth += 1
                    root = element if depth == 1 else root
                    element.tag = _local(element.tag)
                    if depth > DEEPEST:
                        raise ValueError(f"more than {DEEPEST} elements inside one another")
                else:
                    depth -= 1
                check_time()
        except (SyntaxError, ValueError, LookupError) as error:  # such as defusedxml's
            raise NothingToRead(f"damaged: {name}: {error or type(error).__name__}") from None
        return root

    def related(self, name: str) -> dict[str, str]:
        """Return the members that a member of Open XML refers to, by the reference's id."""
        folder, file = posixpath.split(name)
        relations = self.xml(f"{folder}/_rels/{file}.rels")
        return {
            get(relation, "Id"): posixpath.normpath(
                posixpath.join("/", folder, get(relation, "Target"))
            ).lstrip("/")
            for relation in relations
            if get(relation, "TargetMode") != "External"
        }


def _local(name: str) -> str:
    return name.rpartition("}")[2]


def get(element: Element | None, name: str) -> str:
    """Return an attribute by its name without a namespace; an empty text if absent."""
    attributes = () if element is None else element.items()
    return next((value for key, value in attributes if _local(key) == name), "")


def text_of(element: Element | None) -> str:
    """Return the text of an element and of all elements in it, with single blanks."""
    return "" if element is None else " ".join("".join(element.itertext()).split())


def described(properties: Iterator[Element]) -> tuple[str, Mapping[str, str]]:
    """Return the title that an author gave, and the fields author, created and modified."""
    names = {"creator": "author", "initial-creator": "author", "creation-date": "created"}
    names |= {"date": "modified"}
    title = ""
    fields: dict[str, str] = {}
    for element in properties:
        value, name = text_of(element), names.get(element.tag, element.tag)
        if name == "title":
            title = title or value
        elif name in ("author", "created", "modified") and value:
            fields.setdefault(name, value)
    return authored(title), fields
