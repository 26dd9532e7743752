"""The manifest of an index: what it holds, and which generation readers see."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lexicept.errors import IndexFormatError
from lexicept.storage.files import read_json

FORMAT = "lexicept index"
VERSION = 2


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of an index.

    Raises:
        IndexFormatError: no index, a half-written one, or one of a newer version.
    """
    if not path.is_dir():
        raise IndexFormatError(f"{path}: there is no index here")
    if not (path / "manifest.json").exists():
        raise IndexFormatError(f"{path}: no index, or one that was never finished (no manifest)")
    manifest = read_json(path / "manifest.json")
    if manifest.get("format") != FORMAT:
        raise IndexFormatError(f"{path}: not a lexicept index")
    version = manifest.get("version")
    if version != VERSION:
        raise IndexFormatError(
            f"{path}: index version {version}; this lexicept reads version {VERSION}: rebuild it"
        )
    generation, files = manifest.get("generation"), manifest.get("files")
    if not (isinstance(generation, str) and generation.isdigit() and isinstance(files, dict)):
        raise IndexFormatError(f"{path}: its manifest is damaged")
    return manifest
