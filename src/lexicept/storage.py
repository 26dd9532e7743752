"""Files on disk: atomic replacement, checksums, arrays and texts that are read without loading."""

from __future__ import annotations

import fcntl
import hashlib
import json
import mmap
import os
import shutil
import stat
import tempfile
import threading
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Self, overload

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from lexicept.errors import IndexFormatError, InputError
from lexicept.progress import Progress, silent
from lexicept.vectors import Integers

MANY = 2**16
"""Small numbers that are written together."""


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write; it takes the place of ``path`` when the block ends without error.

    Readers and crashes see the old content or the new, never a part.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)  # mkstemp's 0600 would hide the file from other readers
        os.replace(temporary, path)
        sync(path.parent)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def replace_file(path: Path, content: bytes) -> None:
    """Write a whole file, as ``replacing`` does."""
    with replacing(path) as file:
        file.write(content)


def lock(folder: Path) -> int:
    """An exclusive lock that ends with the process. Raises InputError where another holds it."""
    taken = InputError(f"{folder}: another process is writing here")
    try:
        descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    except FileNotFoundError:  # the other one has just removed the folder
        raise taken from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_nlink:
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    raise taken


def hold(folder: Path) -> int:
    """Keep a folder from ``remove_unheld`` until the descriptor is closed or the process ends.

    Raises:
        IndexFormatError: there is no such folder, or it is being removed.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise IndexFormatError(f"{folder}: {error.strerror}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise IndexFormatError(f"{folder}: being removed") from None
    return descriptor


def remove_unheld(folder: Path) -> None:
    """Remove a folder and what is in it, unless somebody has a ``hold`` on it."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder)
    except BlockingIOError:
        pass
    finally:
        os.close(descriptor)


def move(source: Path, target: Path) -> None:
    """Rename a file or folder, for good once this returns."""
    source.rename(target)
    sync(target.parent)


def sync(path: Path) -> None:
    """Flush a file, or the names in a folder, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Flush every file below a folder, and the folders, to disk."""
    for path in [*sorted(folder.rglob("*")), folder]:
        sync(path)


def sha256(path: Path) -> str:
    """Hexadecimal SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def describe_files(folder: Path, root: Path) -> dict[str, dict[str, Any]]:
    """Size and checksum of every file below ``folder``, by its path relative to ``root``."""
    return {
        path.relative_to(root).as_posix(): {"size": path.stat().st_size, "sha256": sha256(path)}
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def check_files(root: Path, files: Mapping[str, Any], *, checksums: bool) -> None:
    """Compare files with ``describe_files``' description, by size or by checksum too.

    Raises:
        IndexFormatError: naming the first file that ``damage`` finds.
    """
    for problem in damage(root, files, checksums=checksums):
        raise IndexFormatError(f"{root}: {problem}")


def damage(
    root: Path, files: Mapping[str, Any], *, checksums: bool, progress: Progress = silent
) -> Iterator[str]:
    """What is wrong with files that ``describe_files`` described: a line for each that is missing,
    truncated or altered, or whose description is none."""
    whole = {}
    for name, expected in files.items():
        problem = _size_problem(root, name, expected)
        if problem is None:
            whole[name] = expected
        else:
            yield problem
    if not checksums:
        return
    total, done = sum(entry["size"] for entry in whole.values()), 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # hashing releases the GIL
        found = pool.map(sha256, [root / name for name in whole])
        for (name, expected), digest in zip(whole.items(), found, strict=True):
            if digest != expected["sha256"]:
                yield f"the content of {name} does not match its checksum"
            done += expected["size"]
            progress("checksums", done, total)


def _size_problem(root: Path, name: str, expected: Any) -> str | None:
    inside = not name.startswith("/") and ".." not in PurePosixPath(name).parts
    known = isinstance(expected, dict) and isinstance(expected.get("sha256"), str)
    if not (inside and known and type(expected.get("size")) is int):
        return f"its manifest is damaged: {name!r:.80} is described by {expected!r:.80}"
    try:
        found = (root / name).stat()
    except FileNotFoundError:
        return f"{name} is missing"
    except (OSError, ValueError) as error:  # a name that is no file's
        return f"{name!r:.80}: {error!s:.80}"
    if not stat.S_ISREG(found.st_mode):
        return f"{name} is no file"
    size = found.st_size
    if size != expected["size"]:
        return f"{name} has {size} bytes instead of {expected['size']}"
    return None


def save_array(path: Path, array: Any) -> None:
    """Write a .npy file. Raises OSError, naming it, where that fails."""
    try:
        np.save(path, np.ascontiguousarray(array), allow_pickle=False)
    except OSError as error:
        if error.errno is not None:
            raise
        # NumPy tells of a full disk only how many numbers were written.
        raise OSError(f"{path}: can't be written: {error}") from None


_HEADERS = threading.Lock()
"""NumPy reads headers with Python's parser, which fails now and then in threads (CPython 3.11)."""


def load_array(path: Path, dtype: Any, ndim: int = 1) -> Any:
    """Memory-map a .npy file.

    Args:
        dtype: its type, or several that it may have.

    Raises:
        IndexFormatError: not a .npy file, truncated, or of another type than expected.
    """
    try:
        with _HEADERS:
            array = np.lib.format.open_memmap(path, mode="r")
    except Exception as error:  # NumPy parses headers as Python: damage raises SyntaxError and more
        raise IndexFormatError(f"{path}: {error}") from None
    allowed = [np.dtype(kind) for kind in (dtype if isinstance(dtype, Sequence) else [dtype])]
    if array.dtype not in allowed or array.ndim != ndim:
        names = " or ".join(map(str, allowed))
        raise IndexFormatError(
            f"{path}: {array.dtype} [{array.ndim}-d], expected {names} [{ndim}-d]"
        )
    # A plain view: the memmap class would slow down every slice and scalar.
    return np.asarray(array)


def save_csr(prefix: Path, matrix: sp.csr_array) -> None:
    """Write a CSR matrix as three arrays ``<prefix>.{indptr,indices,data}.npy``."""
    save_array(_part(prefix, "indptr"), matrix.indptr.astype(np.int64))
    save_array(_part(prefix, "indices"), matrix.indices.astype(np.int32))
    save_array(_part(prefix, "data"), matrix.data.astype(np.float32))


def load_csr(prefix: Path, columns: int, rows: slice = slice(None)) -> sp.csr_array:
    """Memory-map what ``save_csr`` or ``CSRWriter`` wrote, or neighbouring rows of it.

    Raises:
        IndexFormatError: the parts disagree, in what belongs to these rows.
    """
    indptr = load_array(_part(prefix, "indptr"), np.int64)
    indices = load_array(_part(prefix, "indices"), np.int32)
    data = load_array(_part(prefix, "data"), np.float32)
    sound = indptr.size > 0 and indptr[0] == 0 and indptr[-1] == indices.size == data.size
    if sound:
        start, stop, _ = rows.indices(indptr.size - 1)
        indptr = indptr[start : stop + 1]
        first, last = int(indptr[0]), int(indptr[-1])
        sound = 0 <= first <= last <= data.size and bool((np.diff(indptr) >= 0).all())
    if sound:
        indices, data, indptr = indices[first:last], data[first:last], indptr - first
        sound = not indices.size or (indices.min() >= 0 and indices.max() < columns)
    if not sound:
        raise IndexFormatError(f"{prefix}: the parts of this matrix do not fit together")
    return sp.csr_array((data, indices, indptr), shape=(indptr.size - 1, columns))


@dataclass(frozen=True)
class StoredRows:
    """Neighbouring rows of a CSR matrix on disk, opened where they are needed."""

    prefix: Path
    columns: int
    start: int = 0
    stop: int | None = None
    """The row after the last; None for the end of the matrix."""

    @property
    def indptr(self) -> Integers:
        """Where each row starts and the last ends [n + 1]."""
        stored = load_array(_part(self.prefix, "indptr"), np.int64)
        found: Integers = stored[self.start : None if self.stop is None else self.stop + 1]
        return found

    def __getitem__(self, rows: slice) -> StoredRows:
        start, stop, _ = rows.indices(self.indptr.size - 1)
        return replace(self, start=self.start + start, stop=self.start + stop)

    def load(self) -> sp.csr_array:
        """Memory-map the rows. Raises IndexFormatError where they are damaged."""
        return load_csr(self.prefix, self.columns, slice(self.start, self.stop))


class _Writer:
    """Writes files in a ``with`` block, whose end completes them; an error closes them as is."""

    _open: ExitStack

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self._open.__exit__(*error)


class ArrayWriter:
    """Writes a .npy file of unknown length, piece by piece, in a ``with`` block; what is written
    can be read."""

    def __init__(self, path: Path, dtype: npt.DTypeLike) -> None:
        self._dtype = np.dtype(dtype)
        self._file = path.open("w+b")
        self._size = 0
        self._write_header()
        self._start = self._file.tell()

    def _write_header(self) -> None:
        header = {"descr": self._dtype.str, "fortran_order": False, "shape": (self._size,)}
        np.lib.format.write_array_header_1_0(self._file, header)  # leaves room for any length

    def append(self, values: Any) -> None:
        array = np.ascontiguousarray(values, self._dtype)
        self._file.write(array.data)
        self._size += array.size

    def read(self, start: int, stop: int) -> Any:
        """Values from ``start`` to ``stop``."""
        self._file.flush()
        width = self._dtype.itemsize
        content = os.pread(self._file.fileno(), (stop - start) * width, self._start + start * width)
        return np.frombuffer(content, self._dtype)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        with self._file:
            if kind is None:
                self._file.seek(0)
                self._write_header()


class CSRWriter(_Writer):
    """Writes a CSR matrix as ``save_csr`` does, block after block of its rows."""

    def __init__(self, prefix: Path) -> None:
        with ExitStack() as files:
            self._indptr, self._indices, self._data = (
                files.enter_context(ArrayWriter(_part(prefix, name), kind))
                for name, kind in (
                    ("indptr", np.int64),
                    ("indices", np.int32),
                    ("data", np.float32),
                )
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

    def rows(self, numbers: Iterable[int], columns: int) -> sp.csr_array:
        """Some of the rows that are written, as [n, columns]."""
        spans = [self._indptr.read(number, number + 2).tolist() for number in numbers]
        indices = [self._indices.read(*span) for span in spans]
        data = [self._data.read(*span) for span in spans]
        indptr = np.cumsum([0, *(stop - start for start, stop in spans)])
        parts = (
            np.concatenate([np.empty(0, np.float32), *data]),
            np.concatenate([np.empty(0, np.int32), *indices]),
            indptr,
        )
        return sp.csr_array(parts, shape=(len(spans), columns))


def _part(prefix: Path, name: str) -> Path:
    return prefix.with_name(f"{prefix.name}.{name}.npy")


class TextStore(Sequence[str]):
    """Texts on disk, ``<prefix>.offsets.npy`` and ``<prefix>.bin``, read one at a time."""

    def __init__(self, prefix: Path) -> None:
        self._offsets = load_array(prefix.with_name(f"{prefix.name}.offsets.npy"), np.int64)
        path = prefix.with_name(f"{prefix.name}.bin")
        if not path.is_file():
            raise IndexFormatError(f"{path}: missing")
        sound = (
            self._offsets.size > 0
            and self._offsets[0] == 0
            and self._offsets[-1] == path.stat().st_size
            and bool((np.diff(self._offsets) >= 0).all())
        )
        if not sound:
            raise IndexFormatError(f"{path}: its size does not match its offsets")
        self._path = path
        self._bytes: bytes | mmap.mmap = b""  # an empty file can't be mapped
        if self._offsets[-1]:
            with path.open("rb") as file:
                self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    @staticmethod
    def write(prefix: Path, texts: Iterable[str]) -> int:
        """Write texts as they come and return their number."""
        with TextWriter(prefix) as writer:
            for text in texts:
                writer.append(text)
        return writer.count

    def __len__(self) -> int:
        return int(self._offsets.size) - 1

    @overload
    def __getitem__(self, position: int) -> str: ...
    @overload
    def __getitem__(self, position: slice) -> list[str]: ...
    def __getitem__(self, position: int | slice) -> str | list[str]:
        if isinstance(position, slice):
            return [self[i] for i in range(*position.indices(len(self)))]
        if position < 0:
            position += len(self)
        if not 0 <= position < len(self):
            raise IndexError(position)
        start, end = self._offsets[position], self._offsets[position + 1]
        try:
            return self._bytes[start:end].decode()
        except UnicodeDecodeError as error:
            raise IndexFormatError(f"{self._path}: text {position}: {error}") from None

    def __iter__(self) -> Iterator[str]:
        return (self[i] for i in range(len(self)))


class TextWriter(_Writer):
    """Writes a ``TextStore``, text by text."""

    def __init__(self, prefix: Path) -> None:
        self.count = 0
        with ExitStack() as files:
            offsets = ArrayWriter(prefix.with_name(f"{prefix.name}.offsets.npy"), np.int64)
            self._offsets = files.enter_context(offsets)
            self._file = files.enter_context(prefix.with_name(f"{prefix.name}.bin").open("wb"))
            self._open = files.pop_all()
        self._end = 0
        self._ends = array("q", [0])

    def append(self, text: str) -> None:
        self._end += self._file.write(text.encode())
        self._ends.append(self._end)
        self.count += 1
        if len(self._ends) == MANY:
            self._flush()

    def _flush(self) -> None:
        self._offsets.append(self._ends)
        self._ends = array("q")

    def __exit__(self, kind: type[BaseException] | None, *error: Any) -> None:
        try:
            if kind is None:
                self._flush()
        finally:
            super().__exit__(kind, *error)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object. Raises IndexFormatError for anything else."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise IndexFormatError(f"{path}: {error}") from None
    if not isinstance(content, dict):
        raise IndexFormatError(f"{path}: not a JSON object")
    return content


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a JSON object atomically."""
    replace_file(path, (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())
