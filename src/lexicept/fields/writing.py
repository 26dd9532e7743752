"""Writing columns: of documents that come one by one, and of two collections joined."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from lexicept.errors import InputError
from lexicept.fields.columns import LISTING, MISSING, FieldColumn, FieldColumns, keyword_order
from lexicept.fields.values import (
    DAY,
    MOST_FIELDS,
    NOTHING,
    FieldKind,
    Fields,
    Value,
    family,
    parse_date,
)
from lexicept.storage.arrays import save_array
from lexicept.storage.files import disk_errors, write_json
from lexicept.storage.texts import TextStore
from lexicept.vectors import Integers

EXACT = 2**53
"""Whole numbers of at most this size are exact in a column that also has fractions."""


class _NewColumn(NamedTuple):
    """A column to write."""

    kind: FieldKind
    values: Any
    """As in ``FieldColumn``; of keywords, numbers of ``terms``."""
    offsets: Integers
    """The bounds of each document's values [N + 1]; read for lists only."""
    terms: Sequence[str] = ()
    """Keywords in any order, with repetitions."""

    @property
    def missing(self) -> Any:
        """Flags of missing values."""
        return self.values == -1 if self.kind.kind == "keyword" else _missing(self.values)

    def write(self, prefix: Path) -> dict[str, Any]:
        """Write the files of the column; return the column's entry in the listing."""
        values = self.values
        if self.kind.kind == "keyword":
            # Terms without a value go; the others are numbered in order.
            used = np.unique(values[values >= 0])
            texts = [self.terms[code] for code in used.tolist()]
            order = sorted(set(texts), key=keyword_order)
            numbers = {text: number for number, text in enumerate(order)}
            codes = np.full(len(self.terms), -1, np.int32)
            codes[used] = [numbers[text] for text in texts]
            values = np.where(values < 0, -1, codes[values]) if codes.size else values
            TextStore.write(prefix.with_name(f"{prefix.name}.terms"), order)
        days = self.kind.kind == "date" and not (values[~_missing(values)] % DAY).any()
        save_array(prefix.with_name(f"{prefix.name}.values.npy"), values)
        if self.kind.many:
            save_array(prefix.with_name(f"{prefix.name}.offsets.npy"), self.offsets)
        return {"kind": self.kind.kind, "many": self.kind.many, "days": bool(days)}


def _missing(values: Any) -> Any:
    return np.isnan(values) if values.dtype == np.float64 else values == MISSING


def _too_many_digits(document_id: str, name: str, number: int) -> InputError:
    """Return the error for a whole number that is not exact beside fractions."""
    problem = "has too many digits beside numbers with fractions; as texts they would be kept"
    return InputError(f"document {document_id!r}: the field {name!r} is {number}, which {problem}")


@dataclass
class _FieldValues:
    """The values of a field while documents come."""

    indexed: FieldKind | None
    """The type in the index that is changed."""
    documents: array[int] = field(default_factory=lambda: array("i"))
    """The document of each value."""
    values: array[Any] = field(default_factory=lambda: array("q"))
    """Numbers, or codes of texts; in double precision from the first fraction on."""
    codes: dict[str, int] = field(default_factory=dict)
    """Texts, numbered by first appearance."""
    many: bool = False
    dates: bool = True
    """True if all texts are dates."""
    family: str = "text"
    large: tuple[str, int] | None = None
    """A document with a whole number that is not exact beside fractions, and the number."""

    def add(self, document: int, document_id: str, value: Value) -> None:
        """Take a document's value."""
        if isinstance(value, list):
            self.many = True
            for member in value:
                self.add(document, document_id, member)
            return
        self.family = family(value)
        if isinstance(value, str):
            if value not in self.codes:
                self.codes[value] = len(self.codes)
                self.dates = self.dates and parse_date(value) is not None
            value = self.codes[value]
        elif isinstance(value, float) and self.values.typecode == "q":
            self.values = array("d", self.values)
        elif isinstance(value, int) and abs(value) > EXACT:
            self.large = document_id, value
        self.documents.append(document)
        self.values.append(value)

    def column(self, name: str, num_documents: int) -> _NewColumn:
        """Return the column of all documents. Raises InputError for a whole number that is not
        exact beside fractions."""
        texts = "date" if self.dates and self.codes else "keyword"
        kind = self.indexed or FieldKind("number" if self.family == "number" else texts)
        many, documents, values = self.many or kind.many, self.documents, np.array(self.values)
        missing: float = MISSING
        if kind.kind == "keyword":
            values, missing = values.astype(np.int32), -1
        elif kind.kind == "date":
            values = np.array([parse_date(text) for text in self.codes], np.int64)[values]
        elif values.dtype == np.float64:
            missing = np.nan
            if self.large is not None:
                document_id, number = self.large
                raise _too_many_digits(document_id, name, number)
        # A list's offsets count values per document; single values have a place for each document.
        offsets = np.zeros(num_documents + 1, np.int64)
        if many:
            np.cumsum(np.bincount(documents, minlength=num_documents), out=offsets[1:])
        else:
            places, present = np.array(documents, np.int64), values
            values = np.full(num_documents, missing, present.dtype)
            values[places] = present
        return _NewColumn(kind._replace(many=many), values, offsets, [*self.codes])


class FieldWriter:
    """Writes the fields of documents, checked by ``FieldChecker``, into a folder, made at the end
    if there are any; ``kinds`` are those of an index that is changed.

    The last document may change a field's type. Until then the values stay in memory, with 12 bytes
    each, and the distinct texts. Raises InputError at the end of the block for a whole number that
    is not exact beside fractions."""

    def __init__(self, folder: Path, kinds: Mapping[str, FieldKind] = NOTHING) -> None:
        self._folder = folder
        self._fields = {name: _FieldValues(kind) for name, kind in kinds.items()}
        self._num_documents = 0

    def append(self, document_id: str, fields: Fields) -> None:
        """Add the fields of the next document. Raises InputError for more than ``MOST_FIELDS``
        fields."""
        if new := [name for name in fields if name not in self._fields]:
            if len(self._fields) + len(new) > MOST_FIELDS:
                problem = f"more than {MOST_FIELDS:,} fields, with {new[-1]!r:.80}"
                raise InputError(f"document {document_id!r}: {problem}")
            self._fields |= {name: _FieldValues(None) for name in new}
        for name, value in fields.items():
            self._fields[name].add(self._num_documents, document_id, value)
        self._num_documents += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        if kind is None and any(values.documents for values in self._fields.values()):
            with disk_errors(self._folder):
                self._folder.mkdir()
                listing = {}
                for number, (name, values) in enumerate(self._fields.items()):
                    column = values.column(name, self._num_documents)
                    listing[name] = column.write(self._folder / str(number))
                write_json(self._folder / LISTING, listing)


def join_columns(
    folder: Path, old: FieldColumns, new: FieldColumns, order: Integers, ids: Sequence[str]
) -> None:
    """Write the fields of documents of two collections, numbered through both in ``order``; nothing
    if no document has a field. ``old`` keeps its types. Raises InputError for a whole number that
    is not exact beside fractions."""
    joined = {name: _joined(old, new, name, order, ids) for name in dict.fromkeys([*old, *new])}
    if all(bool(column.missing.all()) for column in joined.values()):
        return
    folder.mkdir()
    listing = {
        name: column.write(folder / str(number))
        for number, (name, column) in enumerate(joined.items())
    }
    write_json(folder / LISTING, listing)


def _joined(
    old: FieldColumns, new: FieldColumns, name: str, order: Integers, ids: Sequence[str]
) -> _NewColumn:
    sides = [columns.get(name) for columns in (old, new)]
    (kind, *_) = (side.kind for side in sides if side is not None)
    many = any(side.kind.many for side in sides if side is not None)
    # The second side's texts are numbered after the first side's.
    terms: list[str] = []
    values, lengths = [], []
    for columns, side in zip((old, new), sides, strict=True):
        side_values, count = _side_values(side, columns.num_documents, kind.kind, many)
        if side is not None and side.terms is not None:
            side_values = np.where(side_values < 0, side_values, side_values + len(terms))
            terms.extend(side.terms)
        values.append(side_values)
        lengths.append(count)
    # The place of each value of the new order, counted through the values of both sides.
    number = np.concatenate(lengths)
    starts = np.cumsum(number) - number
    offsets = np.concatenate([[0], np.cumsum(number[order])])
    places = np.arange(offsets[-1]) + np.repeat(starts[order] - offsets[:-1], number[order])
    gathers, first = [], 0
    for side_values in values:
        from_side = (places >= first) & (places < first + side_values.size)
        gathers.append((from_side, side_values[places[from_side] - first]))
        first += side_values.size
    fractions = any(gather.dtype == np.float64 and gather.size for _, gather in gathers)
    dtype = np.float64 if fractions else {"keyword": np.int32}.get(kind.kind, np.int64)
    gathered = np.empty(places.size, dtype)
    for from_side, gather in gathers:
        if fractions and gather.dtype != np.float64:
            missing = _missing(gather)
            if (large := (np.abs(gather) > EXACT) & ~missing).any():
                place = np.flatnonzero(from_side)[large][0]
                document = int(np.searchsorted(offsets, place, "right")) - 1
                raise _too_many_digits(ids[document], name, int(gather[large][0]))
            gather = np.where(missing, np.nan, gather)
        gathered[from_side] = gather
    return _NewColumn(FieldKind(kind.kind, many), gathered, offsets, terms)


def _side_values(
    side: FieldColumn | None, count: int, kind: str, many: bool
) -> tuple[Any, Integers]:
    """Return the values of a side's documents, and the number of values of each [count]."""
    if side is None:
        if many:
            return np.empty(0, np.int64), np.zeros(count, np.int64)
        return np.full(count, -1 if kind == "keyword" else MISSING), np.ones(count, np.int64)
    values = np.asarray(side.values)
    if side.offsets is not None:
        return values, np.diff(side.offsets)
    if not many:
        return values, np.ones(count, np.int64)
    present = values != -1 if kind == "keyword" else ~_missing(values)
    return values[present], present.astype(np.int64)
