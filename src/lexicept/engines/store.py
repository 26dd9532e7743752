"""Engines on disk, beside an index.

``<index>/engines/<name>`` is a ``manifest.json`` and one folder, a *generation*, like an index:
readers and crashes see the old engine or the new engine. A manifest has a fingerprint of the
index's postings; an engine of other postings is refused.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lexicept.engines.interface import Engine
from lexicept.errors import IndexFormatError, InputError
from lexicept.progress import Progress, silent
from lexicept.storage.files import remove, sync_folder
from lexicept.storage.locks import lock
from lexicept.storage.manifest import (
    check_files,
    damage,
    describe,
    generation_name,
    generation_number,
    generations,
    load_manifest,
    save_manifest,
)
from lexicept.storage.workspace import Workspace

FORMAT = "lexicept engine"
VERSION = 2

ENGINES = {"seismic": ("lexicept.engines.seismic", "SeismicEngine")}
"""Module and class of each engine. Engines are not imported here: they need packages that not every
installation has."""


def engine_class(name: str) -> Any:
    """Return the class of an engine. Raises InputError for an unknown engine, or a package that is
    not installed."""
    if name not in ENGINES:
        raise InputError(f"no engine {name!r}, only: exact, {', '.join(ENGINES)}")
    module, kind = ENGINES[name]
    try:
        return getattr(importlib.import_module(module), kind)
    except ModuleNotFoundError as error:
        missing = f"{error.name} missing: pip install 'lexicept[{name}]'"
        raise InputError(f"the engine {name}: {missing}") from None


def build(folder: Path, name: str, postings: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Build an engine into ``folder``, in place of an older engine, and return the manifest;
    ``postings`` is the fingerprint of the index's postings. Raises InputError for an unknown
    engine, a missing package or bad arguments of the engine's ``build``, or if another process is
    building here."""
    kind = engine_class(name)
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = lock(folder)
    try:
        newest = [folder, *generations(folder)][-1].name  # the manifest may be of another version
        generation = folder / generation_name((generation_number(newest) or 0) + 1)
        settings = {"engine": name, "postings": postings}
        # An interrupted build starts over.
        with Workspace(generation, "engine", settings, restart=True, in_place=True) as work:
            facts = kind.build(generation, **arguments)
            sync_folder(generation)
            manifest = {
                "format": FORMAT,
                "version": VERSION,
                "engine": name,
                "postings": postings,
                "generation": generation.name,
                "facts": facts,
                "files": describe([generation / file for file in kind.files], folder),
            }
            save_manifest(folder / "manifest.json", manifest)
            work.finish()
        # The manifest names the new generation: no reader needs older ones.
        for entry in generations(folder):
            if entry != generation:
                remove(entry)
    finally:
        os.close(descriptor)
    return manifest


def open_engine(folder: Path, name: str, postings: str) -> Engine:
    """Open the engine in ``folder``. Raises InputError for an unknown engine, a missing package, no
    engine in ``folder``, or an engine of other postings. Raises IndexFormatError for a damaged
    engine."""
    kind = engine_class(name)
    hint = f"build it with: lexicept index engine {folder.parents[1]} {name}"
    if not _has_manifest(folder):
        raise InputError(f"{folder.parents[1]} has no engine {name}; {hint}")
    while True:
        manifest = _manifest(folder)
        if manifest["postings"] != postings:
            raise InputError(f"{folder}: the index has changed since this engine was built; {hint}")
        try:
            check_files(folder, manifest["files"], checksums=True)
            engine: Engine = kind.open(folder / manifest["generation"], manifest["facts"])
            return engine
        except (IndexFormatError, OSError):
            # Another build may have removed this generation since the manifest was read.
            if _manifest(folder)["generation"] == manifest["generation"]:
                raise


def problems(folder: Path, progress: Progress = silent) -> list[str]:
    """Return the problems with the files of the engine in ``folder``, a line each."""
    try:
        manifest = _manifest(folder)
    except IndexFormatError as error:
        return [str(error)]
    damaged = damage(folder, manifest["files"], checksums=True, progress=progress)
    return [f"engine {folder.name}: {problem}" for problem in damaged]


def _has_manifest(folder: Path) -> bool:
    return (folder / "manifest.json").exists()


def _manifest(folder: Path) -> dict[str, Any]:
    manifest = load_manifest(folder / "manifest.json", FORMAT, VERSION, "build it again")
    sound = (
        generation_number(manifest.get("generation")) is not None
        and isinstance(manifest.get("files"), dict)
        and isinstance(manifest.get("facts"), dict)
        and isinstance(manifest.get("postings"), str)
    )
    if not sound:
        raise IndexFormatError(f"{folder}: its manifest is damaged")
    return manifest
