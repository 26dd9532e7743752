"""Files on disk: atomic replacement, checksums, arrays and texts that are read without loading."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from lexicept.errors import IndexFormatError, InputError, LexiceptError


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write; it takes the place of ``path`` when the block ends without error.

    Readers and crashes see the old content or the new, never a part.

    Raises:
        InputError: a folder is at ``path``, or no file can be created there.
    """
    if path.is_dir():
        raise InputError(f"{path}: a folder, not a file to write")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except (FileExistsError, NotADirectoryError, PermissionError) as error:
        raise InputError(f"{path} can't be written: {error.strerror}") from error
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


def move(source: Path, target: Path) -> None:
    """Rename a file or folder, for good once this returns."""
    source.rename(target)
    sync(target.parent)


def remove(path: Path) -> None:
    """Remove a file, a link or a folder with its contents, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def remove_temporaries(folder: Path) -> None:
    """Remove the temporary files that ``replacing`` left below a folder when it was interrupted."""
    for path in folder.rglob(".*"):
        if re.fullmatch(r"\..+\.[a-z0-9_]{8}", path.name) and path.is_file():
            path.unlink()


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


def read_json(path: Path, refuse: type[LexiceptError] = IndexFormatError) -> dict[str, Any]:
    """Return the JSON object in a file; raise the error ``refuse`` for anything else."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise refuse(f"{path}: {error}") from None
    return parse_json(raw, path, refuse)


def parse_json(
    raw: bytes, path: Path, refuse: type[LexiceptError] = IndexFormatError
) -> dict[str, Any]:
    """Return the JSON object in what was read of a file; see ``read_json``."""
    try:
        content = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise refuse(f"{path}: {error}") from None
    if not isinstance(content, dict):
        raise refuse(f"{path}: not a JSON object")
    return content


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a JSON object atomically."""
    replace_file(path, (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())


def link(source: Path, target: Path) -> None:
    """Copy a file that never changes, by a link where the file system can.

    Folders that the target needs are created.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


@contextmanager
def replacing_text(path: Path) -> Iterator[TextIO]:
    """``storage.replacing`` for a text in UTF-8."""
    with replacing(path) as raw:
        file = io.TextIOWrapper(raw, encoding="utf-8", newline="")
        yield file
        file.flush()
        file.detach()


def fingerprint(texts: Iterable[str]) -> str:
    """Hexadecimal SHA-256 of a sequence of texts; their borders count too."""
    digest = hashlib.sha256()
    for text in texts:
        content = text.encode()
        digest.update(b"%d:" % len(content))
        digest.update(content)
    return digest.hexdigest()


def fingerprint_json(value: Any) -> str:
    """Return the fingerprint of a JSON value, whatever the order of its keys."""
    return fingerprint([json.dumps(value, sort_keys=True)])
