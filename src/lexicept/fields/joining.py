"""Columns of two collections joined, without reading the documents."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lexicept.fields.columns import LISTING, MISSING, Column, Columns
from lexicept.fields.values import FieldKind
from lexicept.fields.writing import DAY, EXACT, too_many_digits
from lexicept.storage.arrays import save_array
from lexicept.storage.files import write_json
from lexicept.storage.texts import TextStore
from lexicept.vectors import Integers


class _Joined(NamedTuple):
    """A field of documents from two collections."""

    kind: FieldKind
    values: Any
    """As in ``Column``; of keywords, numbers of ``terms``."""
    offsets: Integers
    """The bounds of each document's values [N + 1]."""
    terms: Sequence[str]
    """The keywords of the first collection, then of the second."""

    @property
    def missing(self) -> Any:
        """Flags of missing values."""
        return self.values == -1 if self.kind.kind == "keyword" else _missing(self.values)


def join_columns(
    folder: Path, old: Columns, new: Columns, order: Integers, ids: Sequence[str]
) -> None:
    """Write the fields of documents from two collections; nothing if no document has a field.

    Args:
        folder: of the columns; does not exist yet.
        old: the collection whose fields keep their types.
        order: numbers of the documents, counted through both collections [N].
        ids: of the documents, for errors.

    Raises:
        InputError: a whole number that is not exact beside fractions.
    """
    joined = {name: _joined(old, new, name, order, ids) for name in dict.fromkeys([*old, *new])}
    if all(bool(column.missing.all()) for column in joined.values()):
        return
    folder.mkdir()
    listing = {
        name: _write(folder / str(number), column)
        for number, (name, column) in enumerate(joined.items())
    }
    write_json(folder / LISTING, listing)


def _joined(old: Columns, new: Columns, name: str, order: Integers, ids: Sequence[str]) -> _Joined:
    sides = [columns.get(name) for columns in (old, new)]
    (kind, *_) = (side.kind for side in sides if side is not None)
    many = any(side.kind.many for side in sides if side is not None)
    terms: list[str] = []
    values, lengths = [], []
    for columns, side in zip((old, new), sides, strict=True):
        side_values, count = _side_values(side, columns.num_documents, kind.kind, many)
        if side is not None and side.terms is not None:
            side_values = np.where(side_values < 0, side_values, side_values + len(terms))
            terms.extend(side.terms)
        values.append(side_values)
        lengths.append(count)
    number = np.concatenate(lengths)
    starts = np.cumsum(number) - number
    offsets = np.concatenate([[0], np.cumsum(number[order])])
    places = np.arange(offsets[-1]) + np.repeat(starts[order] - offsets[:-1], number[order])
    gathers, first = [], 0
    for side_values in values:
        from_side = (places >= first) & (places < first + side_values.size)
        gathers.append((from_side, side_values[places[from_side] - first]))
        first += side_values.size
    fractions = any(
        side_values.dtype == np.float64 and side_values.size for _, side_values in gathers
    )
    dtype = np.float64 if fractions else {"keyword": np.int32}.get(kind.kind, np.int64)
    gathered = np.empty(places.size, dtype)
    for from_side, side_values in gathers:
        whole = fractions and side_values.dtype != np.float64
        if whole and (large := (np.abs(side_values) > EXACT) & ~_missing(side_values)).any():
            document = (
                int(np.searchsorted(offsets, np.flatnonzero(from_side)[large][0], "right")) - 1
            )
            raise too_many_digits(ids[document], name, int(side_values[large][0]))
        gathered[from_side] = (
            np.where(_missing(side_values), np.nan, side_values) if whole else side_values
        )
    return _Joined(FieldKind(kind.kind, many), gathered, offsets, terms)


def _side_values(side: Column | None, count: int, kind: str, many: bool) -> tuple[Any, Integers]:
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
    there = values != -1 if kind == "keyword" else ~_missing(values)
    return values[there], there.astype(np.int64)


def _missing(values: Any) -> Any:
    return np.isnan(values) if values.dtype == np.float64 else values == MISSING


def _write(prefix: Path, column: _Joined) -> dict[str, Any]:
    """Write the files of a column; return the column's entry in the listing."""
    values, kind = column.values, column.kind
    if kind.kind == "keyword":
        used = np.unique(values[values >= 0])
        texts = [column.terms[code] for code in used.tolist()]
        order = sorted(set(texts))
        numbers = {text: number for number, text in enumerate(order)}
        codes = np.full(len(column.terms), -1, np.int32)
        codes[used] = [numbers[text] for text in texts]
        values = np.where(values < 0, -1, codes[values]) if codes.size else values
        TextStore.write(prefix.with_name(f"{prefix.name}.terms"), order)
    days = kind.kind == "date" and not (values[~_missing(values)] % DAY).any()
    save_array(prefix.with_name(f"{prefix.name}.values.npy"), values)
    if kind.many:
        save_array(prefix.with_name(f"{prefix.name}.offsets.npy"), column.offsets)
    return {"kind": kind.kind, "many": kind.many, "days": bool(days)}
