"""The manifest of an index: the contents, and the generation of readers."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lexicept.checks import Whole, settings
from lexicept.encoding.vectorizer import KINDS
from lexicept.errors import IndexFormatError
from lexicept.index.impacts import RRASettings, VocabularySettings
from lexicept.index.parts import PARTS
from lexicept.index.text_vectors import VectorSettings
from lexicept.storage.files import read_json, write_json
from lexicept.storage.manifest import generation_number, generations, load_manifest

FORMAT = "lexicept index"
VERSION = 12
MANIFEST = "manifest.json"
MISSING = "missing"
"""Key of the vocabularies that an index lacks until its build ends."""


@settings
class _Manifest:
    """The members of a manifest. Raises KeyError, TypeError or ValueError for any others."""

    format: str
    version: int
    lexicept: str
    generation: str
    files: dict[str, Any]
    documents: Whole
    vocabularies: Sequence[dict[str, Any]]
    rra: dict[str, Any] | None
    vectors: dict[str, Any] | None = None
    missing: Sequence[str] = ()

    def __post_init__(self) -> None:
        names = {entry["name"]: VocabularySettings.from_json(entry) for entry in self.vocabularies}
        sizes = [entry["size"] for entry in self.vocabularies]
        sound = {*names, *self.missing} <= KINDS.keys() and len(names) == len(sizes)
        if not sound or any(type(size) is not int or size < 0 for size in sizes):
            raise ValueError("vocabularies that no index has")
        if generation_number(self.generation) is None:
            raise ValueError(f"no generation {self.generation!r:.80}")
        if self.vectors is not None:
            VectorSettings(**self.vectors)
            if "concepts" not in names:
                raise ValueError("vectors without the concepts of their model")
        RRASettings(**self.rra or {})


def resolved(path: str | os.PathLike[str]) -> Path:
    """Return the absolute path of an index without links, so that neither a link that is switched
    later nor another working folder leads elsewhere."""
    folder = Path(path)
    return Path(os.path.realpath(folder)) if folder.is_dir() else folder


def read_manifest(path: Path) -> dict[str, Any]:
    """Return the manifest of an index. Raises IndexFormatError for no index, an unfinished one,
    or a manifest that is damaged or of another version."""
    if not path.is_dir():
        raise IndexFormatError(f"{path}: there is no index here")
    if not (path / MANIFEST).exists():
        raise IndexFormatError(f"{path}: no index, or one that was never finished (no manifest)")
    manifest = load_manifest(path / MANIFEST, FORMAT, VERSION, "build it again with --overwrite")
    try:
        _Manifest(**manifest)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise IndexFormatError(f"{path / MANIFEST} is damaged: {error}") from None
    return manifest


def is_index(path: Path) -> bool:
    """Return True for an index, of another version or damaged too."""
    holds_parts = path.is_dir() and any((g / PARTS).is_dir() for g in generations(path))
    return holds_parts or bool(stated_manifest(path))


def stated_manifest(path: Path) -> dict[str, Any]:
    """Return the manifest of an index of any version, which may be damaged; empty without one."""
    try:
        content = read_json(path / MANIFEST)
    except IndexFormatError:
        return {}
    return content if content.get("format") == FORMAT else {}


def older_version(path: Path) -> int | None:
    """Return the version of an index that an older lexicept built; None for other paths."""
    version = stated_manifest(path).get("version")
    return version if type(version) is int and version < VERSION else None


def missing_from(path: Path) -> list[str]:
    """Return the vocabularies that the index at a path lacks until its build ends: none without an
    index, or for a complete index."""
    try:
        return list(read_manifest(path).get(MISSING, []))
    except IndexFormatError:
        return []


def manifest_identity(path: Path) -> tuple[int, int] | None:
    """Return the inode and time of an index's manifest; None without a manifest."""
    try:
        status = os.stat(path / MANIFEST)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


class CurrentManifest:
    """The manifest of an index as it was read, which may be replaced later. Raises
    IndexFormatError, see ``read_manifest``."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = manifest_identity(path)  # first: a change during the reading makes it stale
        self.content = read_manifest(path)

    def stale(self) -> bool:
        """Return True if the index has changed, is damaged or is gone since then."""
        identity = manifest_identity(self._path)
        if identity == self._seen:
            return False
        try:
            stale = read_manifest(self._path) != self.content
        except IndexFormatError:
            return True
        if not stale:  # copied or touched
            self._seen = identity
        return stale


def unknown_entries(path: Path) -> list[str]:
    """Return the names of files and folders in an index's folder that do not belong to the index,
    except hidden ones."""
    return sorted(
        entry.name
        for entry in path.iterdir()
        if entry.name != MANIFEST
        and generation_number(entry.name) is None
        and not entry.name.startswith(".")
    )


FILES = "files.json"
"""Name of the list, in a generation, of the files that the documents were read from."""


def write_files(generation: Path, files: Mapping[str, str]) -> None:
    """Write the SHA-256 of files by their paths in the folder that was read."""
    write_json(generation / FILES, dict(files))


def read_files(generation: Path) -> dict[str, str] | None:
    """Read the list that ``write_files`` wrote; None for an index of other documents than a
    folder. Raises IndexFormatError if the list is damaged."""
    if not (generation / FILES).exists():
        return None
    files = read_json(generation / FILES)
    if not all(isinstance(checksum, str) for checksum in files.values()):
        raise IndexFormatError(f"{generation / FILES} is damaged")
    return files
