"""Writing columns: documents come in order, and the last may change a field's type."""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np

from lexicept.errors import InputError
from lexicept.fields.columns import LISTING, MISSING
from lexicept.fields.values import NOTHING, FieldKind, Fields, Value, family, parse_date
from lexicept.storage.arrays import ArrayWriter
from lexicept.storage.files import disk_errors, write_json
from lexicept.storage.texts import MANY, TextStore

MOST_FIELDS = 1_000
"""Most fields of a collection: each takes a few open files during writing."""

DAY = 86_400_000_000
"""Microseconds of a day."""

EXACT = 2**53
"""Whole numbers of at most this size are exact in a column that also has fractions."""


def too_many_digits(document_id: str, name: str, number: int) -> InputError:
    """Return the error for a whole number that is not exact beside fractions."""
    problem = "has too many digits beside numbers with fractions; as texts they would be kept"
    return InputError(f"document {document_id!r}: the field {name!r} is {number}, which {problem}")


@dataclass
class _FieldState:
    """State of a field while its values are read."""

    indexed: FieldKind | None
    """The type in the index that is changed."""
    family: str = "text"
    many: bool = False
    codes: dict[str, int] = field(default_factory=dict)
    """Texts, numbered by first appearance."""
    dates: bool = True
    """True if all texts are dates."""
    fractions: bool = False
    large: tuple[str, int] | None = None
    """A document with a whole number that is not exact beside fractions, and the number."""

    @property
    def kind(self) -> FieldKind:
        many = self.many or (self.indexed is not None and self.indexed.many)
        if self.indexed is not None:
            return self.indexed._replace(many=many)
        texts = "date" if self.dates and self.codes else "keyword"
        return FieldKind("number" if self.family == "number" else texts, many)

    def add(self, document_id: str, value: Value) -> Any:
        """Note a value; return numbers in place of texts."""
        if isinstance(value, list):
            self.many = True
            return [self.add(document_id, member) for member in value]
        self.family = family(value)
        if isinstance(value, str):
            code = self.codes.get(value)
            if code is None:
                code = self.codes[value] = len(self.codes)
                self.dates = self.dates and parse_date(value) is not None
            return code
        if isinstance(value, float):
            self.fractions = True
        elif abs(value) > EXACT:
            self.large = document_id, value
        return value


class FieldWriter:
    """Writes the fields of documents, checked by ``FieldChecker``, into a folder.

    Fields wait in a file beside the folder until the last document has decided the types. Distinct
    texts stay in memory, as ids do.

    Args:
        folder: of the columns; made at the end, if there are any.
        kinds: the types of the fields of an index that is changed, which do not change.

    Raises:
        InputError: at the end of the block, for a whole number that is not exact beside fractions.
    """

    def __init__(self, folder: Path, kinds: Mapping[str, FieldKind] = NOTHING) -> None:
        self._folder = folder
        self._states = {name: _FieldState(kind) for name, kind in kinds.items()}
        self._count = 0
        self._spool = folder.with_name(f"{folder.name}.spool")
        self._file: BinaryIO | None = None

    def append(self, document_id: str, fields: Fields) -> None:
        """Add the fields of the next document.

        Raises:
            InputError: more than ``MOST_FIELDS`` fields.
        """
        if new := [name for name in fields if name not in self._states]:
            if len(self._states) + len(new) > MOST_FIELDS:
                problem = f"more than {MOST_FIELDS:,} fields, with {new[-1]!r:.80}"
                raise InputError(f"document {document_id!r}: {problem}")
            self._states |= {name: _FieldState(None) for name in new}
        codes = {name: self._states[name].add(document_id, value) for name, value in fields.items()}
        with disk_errors(self._spool):
            if self._file is None and codes:
                self._file = self._spool.open("w+b")
                self._file.write(b"\n" * self._count)
            if self._file is not None:
                self._file.write(json.dumps(codes).encode() + b"\n" if codes else b"\n")
        self._count += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        if self._file is None:
            return
        with disk_errors(self._spool):
            try:
                if kind is None:
                    self._finish(self._file)
            finally:
                self._file.close()
                self._spool.unlink(missing_ok=True)

    def _finish(self, spool: BinaryIO) -> None:
        self._folder.mkdir()
        with ExitStack() as files:
            columns = {
                name: files.enter_context(_ColumnWriter(self._folder / str(number), name, state))
                for number, (name, state) in enumerate(self._states.items())
            }
            spool.seek(0)
            for line in spool:
                codes = json.loads(line) if len(line) > 1 else {}
                for name, column in columns.items():
                    column.append(codes.get(name))
        listing = {name: column.entry() for name, column in columns.items()}
        write_json(self._folder / LISTING, listing)


class _ColumnWriter:
    """Writes the files of one column (see ``lexicept.fields.columns``)."""

    def __init__(self, prefix: Path, name: str, state: _FieldState) -> None:
        self._kind = kind = state.kind
        self._codes: Any = None
        """The stored number of each text, in the order in which they came."""
        self._days = False
        self._missing: float = MISSING
        dtype: type = np.int64
        if kind.kind == "keyword":
            order = sorted(state.codes)
            self._codes = np.empty(len(order), np.int64)
            self._codes[[state.codes[text] for text in order]] = np.arange(len(order))
            TextStore.write(prefix.with_name(f"{prefix.name}.terms"), order)
            self._missing, dtype = -1, np.int32
        elif kind.kind == "date":
            self._codes = np.array([parse_date(text) for text in state.codes], np.int64)
            self._days = not (self._codes % DAY).any()
        elif state.fractions:
            self._missing, dtype = np.nan, np.float64
            if state.large is not None:
                document_id, number = state.large
                raise too_many_digits(document_id, name, number)
        self._values = array("d" if dtype is np.float64 else "q")
        self._offsets = array("q", [0])
        self._total = 0
        with ExitStack() as files:
            path = prefix.with_name(f"{prefix.name}.values.npy")
            self._to_values = files.enter_context(ArrayWriter(path, dtype))
            self._to_offsets = None
            if kind.many:
                path = prefix.with_name(f"{prefix.name}.offsets.npy")
                self._to_offsets = files.enter_context(ArrayWriter(path, np.int64))
            self._open = files.pop_all()

    def append(self, value: Any) -> None:
        """Add the next document's value, None for a missing value."""
        if self._to_offsets is None:
            self._values.append(self._stored(value))
        elif value is not None:
            several = value if isinstance(value, list) else [value]
            self._values.extend(map(self._stored, several))
            self._total += len(several)
        if self._to_offsets is not None:
            self._offsets.append(self._total)
        if max(len(self._values), len(self._offsets)) >= MANY:
            self._flush()

    def _stored(self, value: Any) -> Any:
        if value is None:
            return self._missing
        return value if self._codes is None else int(self._codes[value])

    def _flush(self) -> None:
        self._to_values.append(self._values)
        del self._values[:]
        if self._to_offsets is not None:
            self._to_offsets.append(self._offsets)
            del self._offsets[:]

    def entry(self) -> dict[str, Any]:
        """Return the column's entry in the listing."""
        return {"kind": self._kind.kind, "many": self._kind.many, "days": self._days}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: Any) -> None:
        with self._open:
            if kind is None:
                self._flush()
