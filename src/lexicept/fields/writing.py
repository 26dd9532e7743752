"""Writing columns: of a stream of documents, and of two collections joined."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

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
from lexicept.storage.files import beside, disk_errors, write_json
from lexicept.storage.texts import TextStore
from lexicept.vectors import Integers, indptr_of

EXACT = 2**53
"""Whole numbers of at most this size are exact in a column that also has fractions."""


class _NewColumn(NamedTuple):
    """A column to write."""

    type: FieldType
    values: Any
    """The values of all documents, one after another; of keywords, numbers of ``terms``."""
    counts: Integers
    """The number of values of each document [N]."""
    terms: Sequence[str] = ()
    """Keywords in any order, with repetitions."""

    def write(self, prefix: Path) -> dict[str, Any]:
        """Write the files of the column; return the column's entry in the listing."""
        values, missing = self.values, np.nan if self.values.dtype == np.float64 else MISSING
        if self.type.name == "keyword":
            # Terms without a value go; the others are numbered in order.
            used, codes = np.unique(values, return_inverse=True)
            texts = [self.terms[code] for code in used.tolist()]
            order = sorted(set(texts), key=keyword_order)
            term_codes = {text: code for code, text in enumerate(order)}
            values = np.array([term_codes[text] for text in texts], np.int32)[codes]
            missing = -1
            TextStore.write(beside(prefix, ".terms"), order)
        days = self.type.name == "date" and not (values % DAY).any()
        if self.type.multiple:
            save_array(beside(prefix, ".offsets.npy"), indptr_of(self.counts))
        else:
            present, values = values, np.full(self.counts.size, missing, values.dtype)
            values[self.counts > 0] = present
        save_array(beside(prefix, ".values.npy"), values)
        return {"kind": self.type.name, "many": self.type.multiple, "days": bool(days)}


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
        field_type = field_type._replace(multiple=self.multiple or field_type.multiple)
        values = np.array(self.values)
        if field_type.name == "date":
            values = np.array([parse_date(text) for text in self.codes], np.int64)[values]
        elif field_type.name == "number" and values.dtype == np.float64 and self.large is not None:
            raise _too_many_digits(self.large[0], name, self.large[1])
        counts = np.bincount(self.documents, minlength=num_documents)
        return _NewColumn(field_type, values, counts, [*self.codes])


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
            count, fields = self._num_documents, self._fields.items()
            _write(self._folder, ((name, values.column(name, count)) for name, values in fields))


def _write(folder: Path, columns: Iterable[tuple[str, _NewColumn]]) -> None:
    with disk_errors(folder):
        folder.mkdir()
        numbered = enumerate(columns)
        listing = {name: column.write(folder / str(n)) for n, (name, column) in numbered}
        write_json(folder / LISTING, listing)


def join_columns(
    folder: Path, old: FieldColumns, new: FieldColumns, order: Integers, ids: Sequence[str]
) -> None:
    """Write the fields of documents of two collections, numbered through both in ``order``; nothing
    if no document has a field. ``old`` keeps its types. Raises InputError for a whole number that
    is not exact beside fractions."""
    joined = {name: _joined(old, new, name, order, ids) for name in dict.fromkeys([*old, *new])}
    if used := {name: column for name, column in joined.items() if column.values.size}:
        # Unused fields stay, so that a filter on them goes on working, while there is room.
        _write(folder, (joined if len(joined) <= MOST_FIELDS // 2 else used).items())


def _joined(
    old: FieldColumns, new: FieldColumns, name: str, order: Integers, ids: Sequence[str]
) -> _NewColumn:
    sides = [column for columns in (old, new) if (column := columns.get(name)) is not None]
    field_type = sides[0].type._replace(multiple=any(side.type.multiple for side in sides))
    is_kept = np.zeros(old.num_documents + new.num_documents, bool)
    is_kept[order] = True
    # The second side's texts are numbered after the first side's.
    terms: list[str] = []
    values, counts = [], []
    for columns, kept in zip((old, new), np.split(is_kept, [old.num_documents]), strict=True):
        side_values, side_counts = _kept_values(columns.get(name), kept)
        values.append(side_values + len(terms) if field_type.name == "keyword" else side_values)
        counts.append(side_counts)
        if (side := columns.get(name)) is not None:
            terms.extend(side.terms or ())
    # The position of each value of the new order, counted through the values of both sides.
    lengths = np.concatenate(counts)
    starts, new_lengths = np.cumsum(lengths) - lengths, lengths[order]
    shifts = starts[order] - np.cumsum(new_lengths) + new_lengths
    positions = np.arange(new_lengths.sum()) + np.repeat(shifts, new_lengths)
    values = [side_values for side_values in values if side_values.size] or [np.empty(0, np.int64)]
    joined = np.concatenate(values)[positions]
    if joined.dtype == np.float64:
        whole = [v if v.dtype == np.int64 else np.zeros(v.size, np.int64) for v in values]
        numbers = np.concatenate(whole)[positions]
        if (large := np.abs(numbers) > EXACT).any():
            document = np.repeat(np.arange(order.size), new_lengths)[large][0]
            raise _too_many_digits(ids[document], name, int(numbers[large][0]))
    return _NewColumn(field_type, joined, new_lengths, terms)


def _kept_values(side: FieldColumn | None, kept: npt.NDArray[np.bool_]) -> tuple[Any, Integers]:
    """Return the values of the kept documents of a side [N], and how many each has [N]."""
    if side is None:
        return np.empty(0, np.int64), np.zeros(kept.size, np.int64)
    values = np.asarray(side.values)
    if side.offsets is not None:
        counts = np.diff(side.offsets)
        return values[np.repeat(kept, counts)], counts * kept
    kept = kept & side.present
    return values[kept], kept.astype(np.int64)
