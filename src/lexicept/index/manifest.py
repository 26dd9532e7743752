"""The manifest of an index: what it holds, and which generation readers see."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lexicept.errors import IndexFormatError
from lexicept.storage.generations import generation_number
from lexicept.storage.manifest import load_manifest

FORMAT = "lexicept index"
VERSION = 3
MANIFEST = "manifest.json"
ENGINES = "engines"


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of an index.

    Raises:
        IndexFormatError: no index, a half-written one, a damaged manifest, or one of another
            version.
    """
    if not path.is_dir():
        raise IndexFormatError(f"{path}: there is no index here")
    if not (path / MANIFEST).exists():
        raise IndexFormatError(f"{path}: no index, or one that was never finished (no manifest)")
    manifest = load_manifest(path / MANIFEST, FORMAT, VERSION)
    generation, files = manifest.get("generation"), manifest.get("files")
    if generation_number(generation) is None or not isinstance(files, dict):
        raise IndexFormatError(f"{path}: its manifest is damaged")
    return manifest


def unknown_entries(path: Path) -> list[str]:
    """Return the names of what is in the folder of an index and no part of it, but for hidden
    files."""
    return sorted(
        entry.name
        for entry in path.iterdir()
        if entry.name not in (MANIFEST, ENGINES)
        and generation_number(entry.name) is None
        and not entry.name.startswith(".")
    )
