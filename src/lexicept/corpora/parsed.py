"""A file as its parser has read it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from lexicept.corpora.passages import Section
from lexicept.fields.values import NOTHING


class NothingToRead(Exception):  # noqa: N818
    """Raised for a file that no document can be made of; its text is the reason."""


class Parsed(NamedTuple):
    """The document that a file holds."""

    text: str
    title: str
    sections: tuple[Section, ...]
    """Parts of the text, under its headings or on its pages."""
    fields: Mapping[str, Any] = NOTHING
