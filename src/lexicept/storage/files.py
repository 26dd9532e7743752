"""Files on disk: atomic replacement, flushing, checksums, JSON, and errors of the disk."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from lexicept.errors import IndexFormatError, InputError, LexiceptError

DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.ENOMEM}
"""Numbers of the errors of disks and of failed memory maps."""

TEMPORARY = r"\..+\.[a-z0-9_]{8}"
"""Names of the temporary files of ``replacing``."""


@contextmanager
def disk_errors(path: Path, size: int | None = None) -> Iterator[None]:
    """Raise OSErrors of a full or failing disk with ``path`` as ``filename``.

    The error of a full disk names no file; torch, safetensors and tokenizers do not even raise an
    OSError. ``size`` are the bytes that the block writes, if known.
    """
    try:
        yield
    except Exception as error:
        error_number = None if isinstance(error, LexiceptError) else _disk_errno(error, path)
        if error_number is None:
            raise
        reason = os.strerror(error_number)
        if error_number == errno.ENOSPC:
            needed = "" if size is None else f"{size / 1e6:,.1f} MB to write, "
            reason += f" ({needed}{_free(path) / 1e6:,.1f} MB free)"
        raise OSError(error_number, reason, str(path)) from error


def _disk_errno(error: BaseException, path: Path) -> int | None:
    """Return the number of a nameless disk error, or of a nameless cause; None otherwise."""
    if isinstance(error, OSError) and error.errno in DISK_ERRORS:
        nameless = error.filename is None or re.fullmatch(TEMPORARY, Path(error.filename).name)
        return error.errno if nameless else None
    text = str(error)
    if match := re.search(r"\(os error (\d+)\)", text):  # libraries in Rust
        return int(match[1]) if int(match[1]) in DISK_ERRORS else None
    for error_number in DISK_ERRORS:
        reason = os.strerror(error_number)  # so do torch's reader and safetensors' map of a file
        if f"strerror: {reason}\n" in f"{text}\n" or f"{reason} ({error_number})" in text:
            return error_number
    if "unexpected pos" in text or "iostream error" in text:  # torch's writer drops the number
        return errno.EIO if _free(path) > 2**20 else errno.ENOSPC
    cause = error.__cause__ or error.__context__
    return None if cause is None else _disk_errno(cause, path)


def _free(path: Path) -> int:
    """Return the free bytes on the disk of a file or folder, which may not exist yet."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return shutil.disk_usage(path).free


@contextmanager
def replacing(path: Path, size: int | None = None) -> Iterator[BinaryIO]:
    """Yield a file to write, which replaces ``path`` when the block ends without error.

    Readers and crashes see the old content or the new, never a part. Raises InputError if a folder
    is at ``path`` or no file can be created there, and OSErrors as ``disk_errors`` does.
    """
    if path.is_dir():
        raise InputError(f"{path}: a folder, not a file to write")
    # Write beside the file, flush, rename, flush the folder: a rename is atomic in one folder.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with disk_errors(path, size):
        try:
            make_folder(path.parent)
            file = temporary.open("xb")  # with the permissions that the umask leaves
        except (FileExistsError, NotADirectoryError, PermissionError) as error:
            raise InputError(f"{path} can't be written: {error.strerror}") from error
        try:
            with file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
            sync(path.parent)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def beside(path: Path, ending: str) -> Path:
    """Return the path beside another whose name goes on with ``ending``."""
    return path.with_name(f"{path.name}{ending}")


def make_folder(folder: Path) -> None:
    """Create a folder with missing parents, and flush the names to disk."""
    if not folder.is_dir():
        if not folder.parent.exists():
            make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync(folder.parent)


def replace_file(path: Path, raw: bytes) -> None:
    """Write a whole file, as ``replacing`` does."""
    with replacing(path, len(raw)) as file:
        file.write(raw)


def move(source: Path, target: Path) -> None:
    """Rename a file or folder, and flush the change to disk."""
    source.rename(target)
    sync(target.parent)
    if source.parent != target.parent:
        sync(source.parent)


def remove(path: Path) -> None:
    """Remove a file, a link or a folder with all contents, if it exists."""
    if path.is_dir() and not path.is_symlink():
        try:
            shutil.rmtree(path)
        except OSError as error:
            error.filename = str(path)  # shutil names an entry without its folder
            raise
    else:
        path.unlink(missing_ok=True)


def remove_temporaries(folder: Path) -> None:
    """Remove the temporary files that ``replacing`` left below a folder when it was interrupted."""
    for path in folder.rglob(".*"):
        if re.fullmatch(TEMPORARY, path.name) and path.is_file():
            path.unlink()


def sync(path: Path) -> None:
    """Flush a file, or the names in a folder, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with disk_errors(path):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Flush every file below a folder, and the folders, to disk."""
    for path in [*sorted(folder.rglob("*")), folder]:
        sync(path)


def sha256(path: Path) -> str:
    """Return the hexadecimal SHA-256 of a file."""
    with disk_errors(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_json(path: Path, refuse: type[LexiceptError] = IndexFormatError) -> dict[str, Any]:
    """Return the JSON object in a file; raise ``refuse`` for different contents."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise refuse(f"{path}: {error}") from None
    return parse_json(raw, path, refuse)


def json_if_present(path: Path, refuse: type[LexiceptError] = IndexFormatError) -> dict[str, Any]:
    """Return the JSON object in a file, an empty one without the file; see ``read_json``."""
    return read_json(path, refuse) if path.exists() else {}


def parse_json(
    raw: bytes, path: Path, refuse: type[LexiceptError] = IndexFormatError
) -> dict[str, Any]:
    """Return the JSON object in the contents of a file; see ``read_json``."""
    try:
        parsed = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise refuse(f"{path}: {error}") from None
    if not isinstance(parsed, dict):
        raise refuse(f"{path}: not a JSON object")
    return parsed


def write_json(path: Path, json_object: dict[str, Any]) -> None:
    """Write a JSON object atomically."""
    replace_file(path, (json.dumps(json_object, indent=1, ensure_ascii=False) + "\n").encode())


def link(source: Path, target: Path) -> None:
    """Link a file that never changes, or copy it without links; create the target's parents."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        with disk_errors(target), source.open("rb") as file, target.open("wb") as copy:
            shutil.copyfileobj(file, copy)


@contextmanager
def replacing_text(path: Path) -> Iterator[TextIO]:
    """Yield a text file in UTF-8 that replaces a file, as ``replacing`` does."""
    with replacing(path) as raw:
        file = io.TextIOWrapper(raw, encoding="utf-8", newline="")
        yield file
        file.flush()
        file.detach()


def fingerprint(texts: Iterable[str]) -> str:
    """Return the hexadecimal SHA-256 of a sequence of texts and their lengths."""
    digest = hashlib.sha256()
    for text in texts:
        encoded = text.encode()
        digest.update(b"%d:" % len(encoded))
        digest.update(encoded)
    return digest.hexdigest()


def first_difference(before: Any, now: Any, name: str = "") -> str | None:
    """Describe the first different field of two JSON values; None for equal values."""
    if before == now:
        return None
    if isinstance(before, dict) and isinstance(now, dict):
        for key in {**before, **now}:
            inner = f"{name}.{key}" if name else str(key)
            difference = first_difference(before.get(key, _ABSENT), now.get(key, _ABSENT), inner)
            if difference:
                return difference
    if isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for index, (old, new) in enumerate(zip(before, now, strict=True)):
            if difference := first_difference(old, new, f"{name}[{index}]"):
                return difference
    return f"{name} was {_short(before)} and is now {_short(now)}"


_ABSENT = object()
"""The value of an absent field."""


def _short(value: Any) -> str:
    if value is _ABSENT:
        return "absent"
    if isinstance(value, str) and re.fullmatch(r"[0-9a-f]{64}", value):
        return f"{value[:12]}… (a checksum)"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:79]}…"


def fingerprint_json(value: Any) -> str:
    """Return the fingerprint of a JSON value; the order of keys does not count."""
    return fingerprint([json.dumps(value, sort_keys=True)])
