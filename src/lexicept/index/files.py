"""The files that the documents of an index were read from, with their checksums."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from lexicept.errors import IndexFormatError
from lexicept.storage.files import read_json, write_json

FILES = "files.json"
"""Name of the list in a generation. Each file has the SHA-256 of its content."""


def write_files(generation: Path, files: Mapping[str, str]) -> None:
    """Write the checksums of files by their paths in the folder."""
    write_json(generation / FILES, dict(files))


def read_files(generation: Path) -> dict[str, str] | None:
    """Return what ``write_files`` wrote; None where the index was not built from a folder.

    Raises:
        IndexFormatError: the list is damaged.
    """
    if not (generation / FILES).exists():
        return None
    files = read_json(generation / FILES)
    if not isinstance(files, dict) or not all(isinstance(one, str) for one in files.values()):
        raise IndexFormatError(f"{generation / FILES} is damaged")
    return files
