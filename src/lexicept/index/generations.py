"""Generations of an index: how it changes on disk, in one step."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from importlib.metadata import version
from pathlib import Path
from typing import Any

from lexicept.errors import InputError, LexiceptError, LexiceptWarning
from lexicept.index.impacts import Derived, RRASettings, VocabularySettings
from lexicept.index.manifest import (
    FORMAT,
    MANIFEST,
    MISSING,
    VERSION,
    read_manifest,
    resolved,
    stated_manifest,
    unknown_entries,
)
from lexicept.index.parts import Parts
from lexicept.index.reader import IndexReader
from lexicept.index.text_vectors import VectorSettings
from lexicept.parallel.shards import Over
from lexicept.storage.files import disk_errors, link, move, remove, sync_folder
from lexicept.storage.locks import lock, remove_unheld
from lexicept.storage.manifest import (
    check_files,
    describe_files,
    generation_name,
    generation_number,
    generations,
    save_manifest,
)


@contextmanager
def changing(path: str | os.PathLike[str], unread: Sequence[str] = ()) -> Iterator[IndexReader]:
    """Yield the newest generation of an index, with no other writer. Readers are not held up.

    The files that a change reads are compared with their checksums: written files get new
    checksums, which would hide damage for ever. Other files are linked and keep their checksums.
    Raises IndexFormatError for no index, or a damaged file, named in the message. Raises InputError
    if another process is writing, or a build has not finished the index.

    Args:
        unread: ``fnmatch`` patterns of files that the change does not read.
    """
    folder = resolved(path)
    read_manifest(folder)  # a lock file must not be left where there is no index
    with disk_errors(folder), _locked(folder):
        manifest = read_manifest(folder)
        refuse_unfinished(folder, manifest.get(MISSING))
        skipped = matching_files(manifest, unread)
        read = {n: entry for n, entry in manifest["files"].items() if n not in skipped}
        check_files(folder, read, checksums=True)
        index = IndexReader.open(folder)
        try:
            yield index
        finally:
            index.release()


def refuse_unfinished(folder: Path, missing: Sequence[str] | None) -> None:
    """Raise InputError if the build of an index has yet to add vocabularies."""
    if missing:
        problem = f"can't be changed before its build has added {' and '.join(missing)}"
        raise InputError(f"{folder}: {problem}; the command that builds it goes on")


def matching_files(manifest: Mapping[str, Any], patterns: Sequence[str]) -> dict[str, Any]:
    """Return the entries of files with a name of one of the ``fnmatch`` patterns."""
    files: dict[str, Any] = manifest["files"]
    return {n: files[n] for n in files if any(fnmatchcase(n, pattern) for pattern in patterns)}


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep other processes from changing an index. Raises InputError if another does so now."""
    descriptor = lock(path)
    try:
        yield
    finally:
        os.close(descriptor)


@contextmanager
def next_generation(index: IndexReader) -> Iterator[Path]:
    """Yield the folder of the next generation, empty, for a block that ends with ``publish``.
    Afterwards, generations that no reader holds are removed. A block that fails, or does not
    publish, leaves no folder behind."""
    with _place_for_next(index.path, index.folder.name) as folder:
        folder.mkdir()
        yield folder
        # Nothing was published.
        if read_manifest(index.path)["generation"] != folder.name:
            remove(folder)
            return
    index.release()
    _clean_up(index.path, folder.name)


def replace_generation(path: Path, generation: Path) -> None:
    """Move a generation on the same file system to an index, as the next generation. The index
    may be damaged, or of another version. At any moment ``path`` is the old index or the new
    index; readers of the old index are not disturbed."""
    content = read_manifest(generation.parent)
    with _locked(path):
        stated = stated_manifest(path).get("generation")
        newest = [path, *generations(path)][-1].name
        # Without a readable manifest the folders tell.
        current = newest if generation_number(stated) is None else str(stated)
        with _place_for_next(path, current) as folder:
            move(generation, folder)
            files = {
                f"{folder.name}/{name.removeprefix(f'{generation.name}/')}": description
                for name, description in content["files"].items()
            }
            save_manifest(path / MANIFEST, {**content, "generation": folder.name, "files": files})
        _clean_up(path, folder.name)


@contextmanager
def _place_for_next(path: Path, current: str) -> Iterator[Path]:
    """Yield the folder of the generation after this one, with nothing there. A block that fails
    before the manifest names the folder leaves none behind."""
    folder = path / generation_name((generation_number(current) or 0) + 1)
    remove(folder)  # left by a killed change
    try:
        yield folder
    except BaseException:
        with suppress(LexiceptError, OSError):
            if read_manifest(path)["generation"] != folder.name:
                remove(folder)
        raise


def _clean_up(path: Path, current: str) -> None:
    """Remove the generations that nobody reads; warn of files that are no part of the index."""
    _remove_others(path, current)
    if unknown := unknown_entries(path):
        message = f"{path}: left as it is, being no part of the index: {', '.join(unknown)}"
        warnings.warn(message, LexiceptWarning, stacklevel=3)


def carry_over(index: IndexReader, folder: Path, without: Sequence[str]) -> dict[str, Any]:
    """Link the files of a generation into the folder of another; return the files' descriptions.

    Args:
        without: beginnings of names of files to leave out.
    """
    linked, prefix = {}, f"{index.folder.name}/"
    for name, description in index.manifest["files"].items():
        inner = name.removeprefix(prefix)
        if inner != name and not inner.startswith(tuple(without)):
            link(index.folder / inner, folder / inner)
            linked[f"{folder.name}/{inner}"] = description
    return linked


def remove_unread(path: Path) -> None:
    """Remove old generations that no reader holds, unless another process changes the index."""
    with suppress(InputError), _locked(path):
        _remove_others(path, read_manifest(path)["generation"])


def _remove_others(path: Path, current: str) -> None:
    """Remove the generations that no reader holds, and temporary files of killed changes."""
    for entry in generations(path):
        if entry.name != current:
            remove_unheld(entry)
    for entry in path.glob(f".{MANIFEST}.*"):
        entry.unlink()


@dataclass(frozen=True)
class IndexLayout:
    """The vocabularies of an index, and the settings from which postings are derived."""

    sizes: Mapping[str, int]
    """Number of dimensions of each vocabulary, in order."""
    settings: Mapping[str, VocabularySettings]
    rra: RRASettings | None = None
    weight_bits: int = 32
    """See ``ExactEngine.build``."""
    vectors: VectorSettings | None = None
    """Of the documents' vectors; None for none."""

    @classmethod
    def of(cls, index: IndexReader, rra: RRASettings | None) -> IndexLayout:
        """Return the layout of an opened index, with these settings of RRA."""
        sizes = {vocabulary.name: vocabulary.size for vocabulary in index.vocabularies}
        vectors = None if index.vectors is None else index.vectors.settings
        return cls(sizes, index.settings, rra, index.engine.weight_bits, vectors)


def commit_generation(
    path: Path,
    generation: Path,
    layout: IndexLayout,
    over: Over | None = None,
    linked: Mapping[str, Any] | None = None,
    write_postings: Callable[[Parts], None] | None = None,
    missing: Sequence[str] = (),
) -> None:
    """Derive the postings, then publish the generation, which holds the documents and their tf.
    Raises InputError for other ``weight_bits``, weights that are not finite, or settings that
    ``rra.reweight`` refuses.

    Args:
        over, linked: see ``Derived.compute`` and ``publish``.
        write_postings: writes added postings instead; see ``index.added_postings``.
        missing: vocabularies that the index lacks until its build ends.
    """
    parts = Parts.open(generation)
    if write_postings is None:
        _derive(parts, generation / "postings", layout, over)
    else:
        write_postings(parts)
    content = {
        "documents": parts.order.size,
        "vocabularies": [
            {"name": name, "size": size, **layout.settings[name].to_json()}
            for name, size in layout.sizes.items()
        ],
        "rra": None if layout.rra is None else asdict(layout.rra),
        "vectors": None if layout.vectors is None else asdict(layout.vectors),
        **({MISSING: [*missing]} if missing else {}),
    }
    publish(path, generation, content, linked)


def _derive(parts: Parts, postings: Path, layout: IndexLayout, over: Over | None) -> None:
    """Derive the postings of all documents; warn of postings that RRA loses."""
    tf = [parts.tf(name, size) for name, size in layout.sizes.items()]
    settings = [layout.settings[name] for name in layout.sizes]
    rra = layout.rra
    derived = Derived.compute(tf, settings, rra, postings, layout.weight_bits, over)
    if rra is not None and derived.lost:
        total = derived.lost + derived.engine.num_postings
        warnings.warn(
            f"RRA with alpha {rra.alpha:g} and {rra.iterations} iterations makes the weights of "
            f"{derived.lost:,} of {total:,} postings too small for single precision: their "
            "documents no longer match; choose a smaller alpha",
            LexiceptWarning,
            stacklevel=4,
        )


def publish(
    path: Path,
    generation: Path,
    content: Mapping[str, Any],
    linked: Mapping[str, Any] | None = None,
) -> None:
    """Make a complete generation the current generation of readers.

    Args:
        content: of its manifest, beside the files.
        linked: descriptions of linked files.
    """
    sync_folder(generation)
    manifest = {
        **content,
        "format": FORMAT,
        "version": VERSION,
        "lexicept": version("lexicept"),
        "generation": generation.name,
        "files": describe_files(generation, path, linked),
    }
    save_manifest(path / MANIFEST, manifest)
