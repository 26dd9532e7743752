"""Fields on disk: a column for each field of a collection, memory-mapped.

``fields.json`` lists the fields. Column n is ``n.values.npy``, with the documents' places in
``n.offsets.npy`` where they have lists, and the distinct texts of keywords, in order, in
``n.terms``. A missing value is -1 for keywords, ``MISSING`` for whole numbers and dates, and NaN
for numbers with fractions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from lexicept.errors import IndexFormatError
from lexicept.fields.values import FieldKind, Scalar, Value, iso
from lexicept.storage.arrays import load_array
from lexicept.storage.files import read_json
from lexicept.storage.texts import TextStore
from lexicept.vectors import Integers

LISTING = "fields.json"

MISSING = int(np.iinfo(np.int64).min)

KINDS = ("keyword", "number", "date")


@dataclass(frozen=True)
class Column:
    """The values of one field in all documents."""

    kind: FieldKind
    days: bool
    """True if all of its dates are whole days."""
    values: Any
    """Numbers of terms (i32), numbers (i64 or f64), or microseconds from 1970 (i64) [values]."""
    offsets: Integers | None
    """The places of each document's values [N + 1]; None where each document has one place."""
    terms: TextStore | None
    """The distinct texts of keywords, in order."""

    @classmethod
    def open(cls, prefix: Path, entry: Any, num_documents: int) -> Column:
        """Memory-map a column.

        Args:
            entry: its entry in ``LISTING``.

        Raises:
            IndexFormatError: its files are damaged, or hold another number of documents.
        """
        kind, many, days = entry["kind"], entry["many"], entry["days"]
        if kind not in KINDS or type(many) is not bool or type(days) is not bool:
            raise IndexFormatError(f"{prefix.parent / LISTING} is damaged: {entry!r:.80}")
        types = {"keyword": [np.int32], "number": [np.int64, np.float64], "date": [np.int64]}
        values = load_array(prefix.with_name(f"{prefix.name}.values.npy"), types[kind])
        offsets, places = None, values.size
        if many:
            offsets = load_array(prefix.with_name(f"{prefix.name}.offsets.npy"), np.int64)
            places = offsets.size - 1
            sound = offsets.size and offsets[0] == 0 and offsets[-1] == values.size
            if not sound or bool((np.diff(offsets) < 0).any()):
                raise IndexFormatError(f"{prefix}: its values do not match its offsets")
        if places != num_documents:
            raise IndexFormatError(f"{prefix}: values of {places} documents, not {num_documents}")
        terms = None
        if kind == "keyword":
            terms = TextStore(prefix.with_name(f"{prefix.name}.terms"))
        return cls(FieldKind(kind, many), days, values, offsets, terms)

    def check(self) -> None:
        """Read all values. Raises IndexFormatError for a damaged one."""
        if self.terms is not None:
            terms = list(self.terms)
            if sorted(set(terms)) != terms:
                raise IndexFormatError(f"damaged field: texts out of order, such as {terms[0]!r}")
        for stored in np.unique(self.values).tolist():
            self.scalar(stored)

    def scalar(self, stored: int | float) -> Scalar | None:
        """Return a value as documents have it; None for a missing one.

        Raises:
            IndexFormatError: the stored number stands for no value.
        """
        if self.terms is not None:
            if not -1 <= stored < len(self.terms):
                raise IndexFormatError(f"damaged field: there is no text {stored}")
            return None if stored == -1 else self.terms[int(stored)]
        if stored == MISSING or stored != stored:
            return None
        if self.kind.kind == "date":
            try:
                return iso(int(stored), days=self.days)
            except OverflowError:
                raise IndexFormatError(f"damaged field: {stored} is no date") from None
        return stored if isinstance(stored, int) or not stored.is_integer() else int(stored)

    def value(self, document: int) -> Value | None:
        """Return a document's value; None where it has none."""
        if self.offsets is None:
            return self.scalar(self.values[document].item())
        stored = self.values[slice(*self.offsets[document : document + 2])].tolist()
        found = [one for one in map(self.scalar, stored) if one is not None]
        return found or None


class Columns:
    """The fields of all documents.

    Args:
        folder: where ``FieldWriter`` put them; without it there are no fields.
        num_documents: how many documents there are.

    Raises:
        IndexFormatError: the files are damaged, or hold another number of documents.
    """

    def __init__(self, folder: Path, num_documents: int) -> None:
        self.num_documents = num_documents
        self._columns: dict[str, Column] = {}
        if not folder.is_dir():
            return
        try:
            listing = read_json(folder / LISTING)
            for number, (name, entry) in enumerate(listing.items()):
                self._columns[name] = Column.open(folder / str(number), entry, num_documents)
        except (KeyError, TypeError) as error:
            raise IndexFormatError(f"{folder / LISTING} is damaged: {error!r:.80}") from None

    @cached_property
    def kinds(self) -> dict[str, FieldKind]:
        """The type of each field, in the order of first appearance."""
        return {name: column.kind for name, column in self._columns.items()}

    def __len__(self) -> int:
        return len(self._columns)

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def __getitem__(self, name: str) -> Column:
        return self._columns[name]

    def get(self, name: str) -> Column | None:
        """Return a column; None where there is none of that name."""
        return self._columns.get(name)

    def of(self, document: int) -> dict[str, Value]:
        """Return the fields that one document has."""
        found = ((name, column.value(document)) for name, column in self._columns.items())
        return {name: value for name, value in found if value is not None}
