"""Arrays and sparse matrices on disk, memory-mapped or written piece by piece."""

from __future__ import annotations

import ctypes
import mmap
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from lexicept.errors import IndexFormatError
from lexicept.storage.files import beside, disk_errors
from lexicept.vectors import Integers, indptr_of


def save_array(path: Path, array: Any) -> None:
    """Write a .npy file. Raises OSError, which names the file, on failure."""
    values = np.ascontiguousarray(array)
    with disk_errors(path, values.nbytes), path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(values))
        file.write(values.data.cast("B") if values.size else b"")


_HEADERS = threading.Lock()
"""NumPy reads headers with Python's parser, which fails now and then in threads (CPython 3.11)."""


def load_array(path: Path, dtype: Any, ndim: int = 1) -> Any:
    """Memory-map a .npy file of a type or of one of several types. Raises IndexFormatError for
    other files, and for truncated files."""
    try:
        with _HEADERS:
            array = np.lib.format.open_memmap(path, mode="r")
    except Exception as error:  # NumPy parses headers as Python: damage raises SyntaxError and more
        raise IndexFormatError(f"{path}: {error}") from None
    allowed = [np.dtype(t) for t in (dtype if isinstance(dtype, Sequence) else [dtype])]
    if array.dtype not in allowed or array.ndim != ndim:
        names = " or ".join(map(str, allowed))
        raise IndexFormatError(
            f"{path}: {array.dtype} [{array.ndim}-d], expected {names} [{ndim}-d]"
        )
    # A plain view: the memmap class would slow down every slice and scalar.
    return np.asarray(array)


def return_memory() -> None:
    """Return freed memory to the system, which glibc keeps in pieces between other memory."""
    if sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)):
        trim(0)


def let_go(array: Any) -> None:
    """Release the memory of a memory-mapped array or file, to be read again when needed; do nothing
    for arrays in memory."""
    while isinstance(array, np.ndarray):
        array = array.base
    if isinstance(array, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        array.madvise(mmap.MADV_DONTNEED)


def save_csr(prefix: Path, matrix: sp.csr_array) -> None:
    """Write a CSR matrix as three arrays ``<prefix>.{indptr,indices,data}.npy``."""
    save_array(_file(prefix, "indptr"), matrix.indptr.astype(np.int64))
    save_array(_file(prefix, "indices"), matrix.indices.astype(np.int32))
    save_array(_file(prefix, "data"), matrix.data.astype(np.float32))


def load_csr(prefix: Path, columns: int, rows: slice = slice(None)) -> sp.csr_array:
    """Memory-map a CSR matrix of ``save_csr`` or ``CSRWriter``, or neighbouring rows. Raises
    IndexFormatError if the files of these rows are damaged."""
    indptr = load_array(_file(prefix, "indptr"), np.int64)
    indices = load_array(_file(prefix, "indices"), np.int32)
    data = load_array(_file(prefix, "data"), np.float32)
    sound = indptr.size > 0 and indptr[0] == 0 and indptr[-1] == indices.size == data.size
    if sound:
        start, stop, _ = rows.indices(indptr.size - 1)
        indptr = indptr[start : stop + 1]
        begin, end = int(indptr[0]), int(indptr[-1])
        sound = 0 <= begin <= end <= data.size and bool((np.diff(indptr) >= 0).all())
    if sound:
        indices, data, indptr = indices[begin:end], data[begin:end], indptr - begin
        sound = not indices.size or (indices.min() >= 0 and indices.max() < columns)
    if not sound:
        raise _misfit(prefix)
    return sp.csr_array((data, indices, indptr), shape=(indptr.size - 1, columns))


@dataclass(frozen=True)
class StoredRows:
    """Rows of a CSR matrix on disk, or of several, opened by ``load``."""

    prefixes: Path | tuple[Path, ...]
    columns: int
    order: Integers | None = None
    """Numbers of the rows, counted through the matrices one after another [n]; None for all."""

    @property
    def indptr(self) -> Integers:
        """The start of each row, and the end of the last [n + 1]."""
        lengths = np.concatenate([np.diff(starts) for starts in self._starts().values()])
        selected = lengths if self.order is None else lengths[self.order]
        return indptr_of(selected)

    def __getitem__(self, rows: slice) -> StoredRows:
        order = self._all_rows() if self.order is None else self.order
        return replace(self, order=order[rows])

    def load(self) -> sp.csr_array:
        """Return the rows; memory-map neighbours in one matrix. Raises as ``load_csr`` does."""
        # Rows of each matrix together, as few reads as possible; the order comes last.
        order = self._all_rows() if self.order is None else self.order
        blocks, positions, start = [], [], 0
        for prefix, starts in self._starts().items():
            stop = start + starts.size - 1
            in_matrix = np.flatnonzero((order >= start) & (order < stop))
            if in_matrix.size:
                blocks.append(_rows(prefix, self.columns, order[in_matrix] - start))
                positions.append(in_matrix)
            start = stop
        if not blocks:
            return sp.csr_array((0, self.columns), dtype=np.float32)
        if len(blocks) == 1:
            return blocks[0]
        joined = sp.csr_array(sp.vstack(blocks, format="csr"))
        position = np.concatenate(positions)
        return joined if bool((np.diff(position) == 1).all()) else joined[np.argsort(position)]

    def _starts(self) -> dict[Path, Integers]:
        """Return the ``indptr`` of each matrix."""
        prefixes = (self.prefixes,) if isinstance(self.prefixes, Path) else self.prefixes
        return {prefix: load_array(_file(prefix, "indptr"), np.int64) for prefix in prefixes}

    def _all_rows(self) -> Integers:
        return np.arange(sum(starts.size - 1 for starts in self._starts().values()))


def _rows(prefix: Path, columns: int, row_indices: Integers) -> sp.csr_array:
    """Return at least one row of a CSR matrix on disk; memory-map neighbours in order, and read
    scattered rows alone."""
    lowest, highest = int(row_indices.min()), int(row_indices.max())
    if row_indices.size == highest - lowest + 1 and bool((np.diff(row_indices) == 1).all()):
        return load_csr(prefix, columns, slice(lowest, highest + 1))
    starts = load_array(_file(prefix, "indptr"), np.int64)
    begins, lengths = starts[row_indices], starts[row_indices + 1] - starts[row_indices]
    stored = load_array(_file(prefix, "indices"), np.int32)
    data = load_array(_file(prefix, "data"), np.float32)
    sound = (lengths >= 0).all() and begins.min() >= 0 and data.size == stored.size
    if not (sound and (begins + lengths).max() <= stored.size):
        raise _misfit(prefix)
    # The position of each entry in the files: the start of its row, and its index within the row.
    indptr = indptr_of(lengths)
    positions = np.repeat(begins - indptr[:-1], lengths) + np.arange(indptr[-1])
    indices, values = stored[positions], data[positions]
    for mapped in (stored, data):
        let_go(mapped)  # the system maps more around a row than is read
    if indices.size and not (indices.min() >= 0 and indices.max() < columns):
        raise _misfit(prefix)
    return sp.csr_array((values, indices, indptr), shape=(row_indices.size, columns))


def are_offsets(offsets: Integers, size: int) -> bool:
    """Return True for the bounds of n runs of ``size`` items in all [n + 1]."""
    ends = offsets.size > 0 and offsets[0] == 0 and offsets[-1] == size
    return bool(ends and (np.diff(offsets) >= 0).all())


def _misfit(prefix: Path) -> IndexFormatError:
    return IndexFormatError(f"{prefix}: the files of this matrix do not fit together")


class BlockWriter:
    """Writes files in a ``with`` block; an error leaves partial files."""

    _open: ExitStack

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self._open.__exit__(*error)


class ArrayWriter:
    """Writes a .npy file of unknown length, piece by piece, in a ``with`` block."""

    def __init__(self, path: Path, dtype: npt.DTypeLike) -> None:
        self._path = path
        self._dtype = np.dtype(dtype)
        self._file = path.open("wb")
        self._size = 0
        self._write_header()

    def _write_header(self) -> None:
        descr = np.lib.format.dtype_to_descr(self._dtype)
        header = {"descr": descr, "fortran_order": False, "shape": (self._size,)}
        np.lib.format.write_array_header_1_0(self._file, header)  # leaves room for any length

    def append(self, values: Any) -> None:
        array = np.ascontiguousarray(values, self._dtype)
        with disk_errors(self._path, array.nbytes):
            self._file.write(array.data)
        self._size += array.size

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: Any) -> None:
        with disk_errors(self._path), self._file:
            if error_type is None:
                self._file.seek(0)
                self._write_header()


class CSRWriter(BlockWriter):
    """Writes a CSR matrix as ``save_csr`` does, block after block of rows."""

    def __init__(self, prefix: Path) -> None:
        with ExitStack() as files:
            dtypes = {"indptr": np.int64, "indices": np.int32, "data": np.float32}
            self._indptr, self._indices, self._data = (
                files.enter_context(ArrayWriter(_file(prefix, name), dtype))
                for name, dtype in dtypes.items()
            )
            self._indptr.append([0])
            self._open = files.pop_all()
        self._nonzeros = 0

    def append(self, block: sp.csr_array) -> None:
        """Add rows."""
        self._indptr.append(block.indptr[1:].astype(np.int64) + self._nonzeros)
        self._indices.append(block.indices)
        self._data.append(block.data)
        self._nonzeros += block.nnz


def _file(prefix: Path, name: str) -> Path:
    return beside(prefix, f".{name}.npy")
