"""Results kept on disk that can be made again; damaged results are never used."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from lexicept.errors import IndexFormatError, InputError, LexiceptError, LexiceptWarning
from lexicept.storage.files import beside, read_json, remove, write_json
from lexicept.storage.manifest import check_files, describe_files

T = TypeVar("T")


def cached(path: Path, make: Callable[[], object], read: Callable[[Path], T]) -> T:
    """Read a result from a file or folder; make the result first if absent.

    ``<name>.checksums.json`` keeps checksums. A result that does not match the checksums, or for
    which ``read`` raises a LexiceptError, is made again, with a warning. ``make`` publishes
    ``path``; an InputError is ignored if another process has published.
    """
    record = beside(path, ".checksums.json")
    if path.exists():
        try:
            if record.exists():
                check_recorded(path.parent, record)
            value = read(path)
        except LexiceptError as error:
            warnings.warn(f"{error}: made again", LexiceptWarning, stacklevel=2)
            remove(record)
            remove(path)
        else:
            if not record.exists():
                _describe(path, record)
            return value
    try:
        make()
    except InputError:
        if not path.exists():
            raise
    value = read(path)
    _describe(path, record)
    return value


def check_recorded(root: Path, record: Path) -> None:
    """Compare files below ``root`` with the checksums in a record; see ``check_files``."""
    files = read_json(record).get("files")
    if not isinstance(files, dict):
        raise IndexFormatError(f"{record}: not a record of checksums")
    check_files(root, files, checksums=True)


def _describe(path: Path, record: Path) -> None:
    write_json(record, {"files": describe_files(path, path.parent)})
