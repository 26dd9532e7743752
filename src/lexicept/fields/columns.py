"""Fields on disk: a column for each field of a collection, memory-mapped.

``fields.json`` lists the fields. Column n is ``n.values.npy``, with the bounds of each document's
values in ``n.offsets.npy`` for lists, and the distinct texts of keywords, ordered by
``keyword_order``, in ``n.terms``. A missing value is -1 for keywords, ``MISSING`` for whole numbers
and dates, and NaN for numbers with fractions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple
from unicodedata import normalize

import numpy as np
import numpy.typing as npt

from lexicept.errors import IndexFormatError
from lexicept.fields.normal_forms import normal
from lexicept.fields.values import FieldType, Scalar, Value, iso, period
from lexicept.kernels.field_values import count_values
from lexicept.storage.arrays import are_offsets, load_array
from lexicept.storage.files import beside, read_json
from lexicept.storage.texts import TextStore
from lexicept.vectors import Integers

LISTING = "fields.json"

MISSING = int(np.iinfo(np.int64).min)

KINDS = ("keyword", "number", "date")


def keyword_order(text: str) -> tuple[str, bool, str]:
    """Return the sorting key of keywords: equivalents side by side, the normal form first."""
    form = normal(text)
    return form, text != form, text


@dataclass(frozen=True)
class FieldColumn:
    """The values of a field in all documents."""

    type: FieldType
    days: bool
    """True if all dates are whole days."""
    values: Any
    """Codes of terms (i32), numbers (i64 or f64), or microseconds from 1970 (i64) [values]."""
    offsets: Integers | None
    """The bounds of each document's values [N + 1]; None for a single value per document."""
    terms: TextStore | None
    """The distinct texts of keywords, by ``keyword_order``."""

    @classmethod
    def open(cls, prefix: Path, description: Any, num_documents: int) -> FieldColumn:
        """Memory-map a column by its description in ``LISTING``. Raises IndexFormatError for
        damaged files and another number of documents."""
        type_name, multiple, days = description["kind"], description["many"], description["days"]
        if type_name not in KINDS or type(multiple) is not bool or type(days) is not bool:
            raise IndexFormatError(f"{prefix.parent / LISTING} is damaged: {description!r:.80}")
        types = {"keyword": [np.int32], "number": [np.int64, np.float64], "date": [np.int64]}
        values = load_array(beside(prefix, ".values.npy"), types[type_name])
        offsets, count = None, values.size
        if multiple:
            offsets = load_array(beside(prefix, ".offsets.npy"), np.int64)
            count = offsets.size - 1
            if not are_offsets(offsets, values.size):
                raise IndexFormatError(f"{prefix}: its values do not match its offsets")
        if count != num_documents:
            raise IndexFormatError(f"{prefix}: values of {count} documents, not {num_documents}")
        terms = TextStore(beside(prefix, ".terms")) if type_name == "keyword" else None
        return cls(FieldType(type_name, multiple), days, values, offsets, terms)

    @property
    def present(self) -> npt.NDArray[np.bool_]:
        """True for values that are not missing [values]."""
        if self.terms is not None:
            return np.asarray(self.values != -1)
        return np.asarray((self.values != MISSING) & (self.values == self.values))  # NaN is missing

    @cached_property
    def term_dates(self) -> Integers | None:
        """The first microsecond of each keyword; None unless all keywords are dates, such as years,
        or days of some documents and months of others."""
        dates = []
        for text in self.terms or ():
            if (bounds := period(text)) is None:
                return None
            dates.append(bounds[0])
        return np.array(dates, np.int64) if dates else None

    def check(self) -> None:
        """Read all values. Raises IndexFormatError for a damaged value."""
        if self.terms is not None:
            terms = list(self.terms)
            if sorted(set(terms), key=keyword_order) != terms:
                raise IndexFormatError(f"damaged field: texts out of order, such as {terms[0]!r}")
        for stored in np.unique(self.values).tolist():
            self.scalar(stored)

    def scalar(self, stored: int | float) -> Scalar | None:
        """Return the value of a stored number; None for a missing value. Raises IndexFormatError
        if the stored number stands for no value."""
        if self.terms is not None:
            if not -1 <= stored < len(self.terms):
                raise IndexFormatError(f"damaged field: there is no text {stored}")
            return None if stored == -1 else self.terms[int(stored)]
        if stored == MISSING or stored != stored:
            return None
        if self.type.name == "date":
            try:
                return iso(int(stored), days=self.days)
            except OverflowError:
                raise IndexFormatError(f"damaged field: {stored} is no date") from None
        return int(stored) if abs(stored) < 2**53 and stored == int(stored) else stored

    @cached_property
    def equivalents(self) -> Integers:
        """The code of the first term that is equivalent to each [V]."""
        assert self.terms is not None
        codes = np.arange(len(self.terms))
        if self.terms.encoded(0, len(self.terms))[0].isascii():
            return codes
        before = None
        for code, text in enumerate(self.terms):
            form = normal(text)
            if form == before:
                codes[code] = codes[code - 1]
            before = form
        return codes

    def most_frequent(self, allowed: npt.NDArray[np.bool_], most: int) -> list[ValueCount]:
        """Return the most frequent values in the allowed documents [N]; equal counts by value."""
        offsets = np.arange(allowed.size + 1) if self.offsets is None else self.offsets
        # Values become codes from 0, so that one kernel counts texts, numbers and dates.
        if self.terms is not None:
            stored, codes = np.arange(len(self.terms)), np.asarray(self.values, np.int64)
            codes = np.append(self.equivalents, -1)[codes]
        else:
            stored, codes = np.unique(self.values, return_inverse=True)
            codes = np.where(self.present, codes, -1)
        counts = count_values(codes, np.asarray(offsets), allowed, stored.size)
        order = np.argsort(-counts, kind="stable")[:most]
        counted = ((self.scalar(stored[code].item()), int(counts[code])) for code in order)
        return [ValueCount(value, count) for value, count in counted if count and value is not None]

    def value(self, document: int) -> Value | None:
        """Return a document's value; None for a missing value."""
        if self.offsets is None:
            return self.scalar(self.values[document].item())
        stored = self.values[slice(*self.offsets[document : document + 2])].tolist()
        values = [value for value in map(self.scalar, stored) if value is not None]
        return values or None


class ValueCount(NamedTuple):
    """A value of a field, and the number of documents with the value."""

    value: Scalar
    documents: int


class FieldColumns(Mapping[str, FieldColumn]):
    """The fields of all documents, as ``FieldWriter`` wrote them; a missing folder has no fields.
    Raises IndexFormatError for damaged files, or another number of documents."""

    def __init__(self, folder: Path, num_documents: int) -> None:
        self.num_documents = num_documents
        self._columns: dict[str, FieldColumn] = {}
        if not folder.is_dir():
            return
        try:
            listing = read_json(folder / LISTING)
            for index, (name, column) in enumerate(listing.items()):
                self._columns[name] = FieldColumn.open(folder / str(index), column, num_documents)
        except (KeyError, TypeError) as error:
            raise IndexFormatError(f"{folder / LISTING} is damaged: {error!r:.80}") from None

    @cached_property
    def types(self) -> dict[str, FieldType]:
        """The type of each field, in the order of first appearance."""
        return {name: column.type for name, column in self._columns.items()}

    def __len__(self) -> int:
        return len(self._columns)

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __getitem__(self, name: str) -> FieldColumn:
        return self._columns[normalize("NFC", name)]

    def of(self, document: int) -> dict[str, Value]:
        """Return the fields of a document."""
        values = ((name, column.value(document)) for name, column in self._columns.items())
        return {name: value for name, value in values if value is not None}
