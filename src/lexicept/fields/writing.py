"""Writing columns: of a stream of documents, and of two collections joined."""

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
    Fields,
    FieldType,
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

    type: FieldType
    values: Any
    """As in ``FieldColumn``; of keywords, numbers of ``terms``."""
    offsets: Integers
    """The bounds of each document's values [N + 1]; read for lists only."""
    terms: Sequence[str] = ()
    """Keywords in any order, with repetitions."""

    @property
    def missing(self) -> Any:
        """Flags of missing values."""
        return self.values == -1 if self.type.name == "keyword" else _missing(self.values)

    def write(self, prefix: Path) -> dict[str, Any]:
        """Write the files of the column; return the column's entry in the listing."""
        values = self.values
        if self.type.name == "keyword":
            # Terms without a value go; the others are numbered in order.
            used = np.unique(values[values >= 0])
            texts = [self.terms[code] for code in used.tolist()]
            order = sorted(set(texts), key=keyword_order)
            term_codes = {text: code for code, text in enumerate(order)}
            codes = np.full(len(self.terms), -1, np.int32)
            codes[used] = [term_codes[text] for text in texts]
            values = np.where(values < 0, -1, codes[values]) if codes.size else values
            TextStore.write(prefix.with_name(f"{prefix.name}.terms"), order)
        days = self.type.name == "date" and not (values[~_missing(values)] % DAY).any()
        save_array(prefix.with_name(f"{prefix.name}.values.npy"), values)
        if self.type.multiple:
            save_array(prefix.with_name(f"{prefix.name}.offsets.npy"), self.offsets)
        return {"kind": self.type.name, "many": self.type.multiple, "days": bool(days)}


def _missing(values: Any) -> Any:
    return np.isnan(values) if values.dtype == np.float64 else values == MISSING


def _too_many_digits(document_id: str, name: str, value: int) -> InputError:
    """Return the error for a whole number that is not exact beside fractions."""
    reason = "has too many digits beside numbers with fractions; as texts they would be kept"
    return InputError(f"document {document_id!r}: the field {name!r} is {value}, which {reason}")


@dataclass
class _FieldValues:
    """The values of a field while documents come."""

    indexed: FieldType | None
    """The type in the index that is changed."""
    documents: array[int] = field(default_factory=lambda: array("i"))
    """The document of each value."""
    values: array[Any] = field(default_factory=lambda: array("q"))
    """Numbers, or codes of texts; in double precision from the first fraction on."""
    codes: dict[str, int] = field(default_factory=dict)
    """Texts, numbered by first appearance."""
    multiple: bool = False
    dates: bool = True
    """True if all texts are dates."""
    family: str = "text"
    large: tuple[str, int] | None = None
    """A document with a whole number that is not exact beside fractions, and the number."""

    def add(self, document: int, document_id: str, value: Value) -> None:
        """Take a document's value."""
        if isinstance(value, list):
            self.multiple = True
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
        field_type = self.indexed or FieldType("number" if self.family == "number" else texts)
        multiple, values = self.multiple or field_type.multiple, np.array(self.values)
        missing: float = MISSING
        if field_type.name == "keyword":
            values, missing = values.astype(np.int32), -1
        elif field_type.name == "date":
            values = np.array([parse_date(text) for text in self.codes], np.int64)[values]
        elif values.dtype == np.float64:
            missing = np.nan
            if self.large is not None:
                document_id, value = self.large
                raise _too_many_digits(document_id, name, value)
        # A list's offsets count values per document; single values have a place for each document.
        offsets = np.zeros(num_documents + 1, np.int64)
        if multiple:
            np.cumsum(np.bincount(self.documents, minlength=num_documents), out=offsets[1:])
        else:
            indices, present = np.array(self.documents, np.int64), values
            values = np.full(num_documents, missing, present.dtype)
            values[indices] = present
        return _NewColumn(field_type._replace(multiple=multiple), values, offsets, [*self.codes])


class FieldWriter:
    """Writes the fields of documents, checked by ``FieldChecker``, into a folder, made at the end
    if there are any; ``types`` are those of an index that is changed.

    The last document may change a field's type. Until then the values stay in memory, with 12 bytes
    each, and the distinct texts. Raises InputError at the end of the block for a whole number that
    is not exact beside fractions."""

    def __init__(self, folder: Path, types: Mapping[str, FieldType] = NOTHING) -> None:
        self._folder = folder
        self._fields = {name: _FieldValues(field_type) for name, field_type in types.items()}
        self._num_documents = 0

    def append(self, document_id: str, fields: Fields) -> None:
        """Add the next document's fields. Raises InputError for more than ``MOST_FIELDS``."""
        if new := [name for name in fields if name not in self._fields]:
            if len(self._fields) + len(new) > MOST_FIELDS:
                reason = f"more than {MOST_FIELDS:,} fields, with {new[-1]!r:.80}"
                raise InputError(f"document {document_id!r}: {reason}")
            self._fields |= {name: _FieldValues(None) for name in new}
        for name, value in fields.items():
            self._fields[name].add(self._num_documents, document_id, value)
        self._num_documents += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: Any) -> None:
        if error_type is None and any(values.documents for values in self._fields.values()):
            with disk_errors(self._folder):
                self._folder.mkdir()
                listing = {}
                for index, (name, values) in enumerate(self._fields.items()):
                    column = values.column(name, self._num_documents)
                    listing[name] = column.write(self._folder / str(index))
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
        name: column.write(folder / str(index))
        for index, (name, column) in enumerate(joined.items())
    }
    write_json(folder / LISTING, listing)


def _joined(
    old: FieldColumns, new: FieldColumns, name: str, order: Integers, ids: Sequence[str]
) -> _NewColumn:
    sides = [columns.get(name) for columns in (old, new)]
    (field_type, *_) = (side.type for side in sides if side is not None)
    multiple = any(side.type.multiple for side in sides if side is not None)
    # The second side's texts are numbered after the first side's.
    terms: list[str] = []
    values, lengths = [], []
    for columns, side in zip((old, new), sides, strict=True):
        side_values, count = _side_values(side, columns.num_documents, field_type.name, multiple)
        if side is not None and side.terms is not None:
            side_values = np.where(side_values < 0, side_values, side_values + len(terms))
            terms.extend(side.terms)
        values.append(side_values)
        lengths.append(count)
    # The place of each value of the new order, counted through the values of both sides.
    counts = np.concatenate(lengths)
    starts = np.cumsum(counts) - counts
    offsets = np.concatenate([[0], np.cumsum(counts[order])])
    positions = np.arange(offsets[-1]) + np.repeat(starts[order] - offsets[:-1], counts[order])
    gathers, start = [], 0
    for side_values in values:
        from_side = (positions >= start) & (positions < start + side_values.size)
        gathers.append((from_side, side_values[positions[from_side] - start]))
        start += side_values.size
    fractions = any(gather.dtype == np.float64 and gather.size for _, gather in gathers)
    dtype = np.float64 if fractions else {"keyword": np.int32}.get(field_type.name, np.int64)
    gathered = np.empty(positions.size, dtype)
    for from_side, gather in gathers:
        if fractions and gather.dtype != np.float64:
            missing = _missing(gather)
            if (large := (np.abs(gather) > EXACT) & ~missing).any():
                position = np.flatnonzero(from_side)[large][0]
                document = int(np.searchsorted(offsets, position, "right")) - 1
                raise _too_many_digits(ids[document], name, int(gather[large][0]))
            gather = np.where(missing, np.nan, gather)
        gathered[from_side] = gather
    return _NewColumn(FieldType(field_type.name, multiple), gathered, offsets, terms)


def _side_values(
    side: FieldColumn | None, count: int, type_name: str, multiple: bool
) -> tuple[Any, Integers]:
    """Return the values of a side's documents, and the number of values of each [count]."""
    if side is None:
        if multiple:
            return np.empty(0, np.int64), np.zeros(count, np.int64)
        return np.full(count, -1 if type_name == "keyword" else MISSING), np.ones(count, np.int64)
    values = np.asarray(side.values)
    if side.offsets is not None:
        return values, np.diff(side.offsets)
    if not multiple:
        return values, np.ones(count, np.int64)
    present = values != -1 if type_name == "keyword" else ~_missing(values)
    return values[present], present.astype(np.int64)
