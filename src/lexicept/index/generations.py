"""Generations: how an index changes on disk, in one step."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from lexicept.errors import InputError
from lexicept.index.impacts import Derived, RRASettings, VocabularySettings
from lexicept.index.manifest import FORMAT, VERSION, read_manifest
from lexicept.index.reader import IndexReader
from lexicept.parallel.shards import Over, over
from lexicept.storage.arrays import StoredRows
from lexicept.storage.files import sync_folder, write_json
from lexicept.storage.locks import lock, remove_unheld
from lexicept.storage.manifest import describe_files


def next_generation(index: IndexReader) -> Path:
    """The place of the next generation, with nothing there."""
    folder = index.path / f"{int(index.folder.name) + 1:06d}"
    shutil.rmtree(folder, ignore_errors=True)  # left by an interrupted change
    return folder


def remove_others(index: IndexReader, generation: Path) -> None:
    """Remove what no reader holds: the generation before, and what killed changes left."""
    index.release()
    for entry in index.path.iterdir():
        if entry.name.isdigit() and entry != generation:
            remove_unheld(entry)
        elif entry.name.startswith(".manifest.json."):
            entry.unlink()


def remove_unread(path: Path) -> None:
    """Remove old generations that no reader holds, unless another process changes the index."""
    try:
        descriptor = lock(path)
    except InputError:
        return
    try:
        newest = read_manifest(path)["generation"]
        for entry in path.iterdir():
            if entry.name.isdigit() and entry.name != newest:
                remove_unheld(entry)
    finally:
        os.close(descriptor)


def commit_generation(
    path: Path,
    generation: Path,
    sizes: Mapping[str, int],
    settings: Mapping[str, VocabularySettings],
    rra: RRASettings | None,
    weight_bits: int,
    over: Over = over,
) -> None:
    """Derive the postings, then publish the generation.

    Args:
        sizes: dimensions of every vocabulary, whose tf the generation holds.
        over: see ``Derived.compute``.
    """
    tf = [StoredRows(generation / name / "frequencies", n) for name, n in sizes.items()]
    ordered = [settings[name] for name in sizes]
    postings = generation / "postings"
    derived = Derived.compute(tf, ordered, rra, postings, weight_bits, over)
    content = {
        "documents": derived.engine.num_documents,
        "vocabularies": [
            {"name": name, "size": size, **settings[name].to_json()} for name, size in sizes.items()
        ],
        "rra": None if rra is None else asdict(rra),
    }
    publish(path, generation, content)


def publish(path: Path, generation: Path, content: Mapping[str, Any]) -> None:
    """Make a whole generation the one that readers see; ``content`` is what its manifest says of
    it beside the files."""
    sync_folder(generation)
    manifest = {
        **content,
        "format": FORMAT,
        "version": VERSION,
        "lexicept": version("lexicept"),
        "generation": generation.name,
        "files": describe_files(generation, path),
    }
    write_json(path / "manifest.json", manifest)


@contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[IndexReader]:
    """The newest generation of an index, with no other writer. Readers are not held up."""
    read_manifest(Path(path))  # a lock file must not be left where there is no index
    descriptor = lock(Path(path))
    try:
        index = IndexReader.open(path)
        try:
            yield index
        finally:
            index.release()
    finally:
        os.close(descriptor)
