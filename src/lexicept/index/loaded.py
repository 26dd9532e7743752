"""The vectorizers of one generation, loaded at first use and shared by threads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from threading import RLock
from typing import Any

from lexicept.errors import IndexFormatError
from lexicept.storage.files import disk_errors
from lexicept.vectorizers.interface import Vectorizer, load_vectorizer

_OF_DOCUMENTS = ("frequencies.", "atlas/")
"""Files of a vocabulary that depend on the documents alone."""


class LoadedVectorizers:
    """The vectorizers of a generation, by vocabulary.

    Args:
        folder: the generation.
        sizes: the dimensions of each vocabulary.
        files: the files of the index's manifest.
    """

    def __init__(self, folder: Path, sizes: Mapping[str, int], files: Mapping[str, Any]) -> None:
        self._folder = folder
        self._place = _place(folder)
        self._sizes = sizes
        self._files = files
        self._loaded: dict[str, Vectorizer] = {}
        # A model's matrix products use all processors: two at a time would slow each other down.
        # A search of words must not wait for a model.
        self._locks = {name: RLock() for name in sizes}

    def lock(self, name: str) -> RLock:
        """Return the lock to hold while a vocabulary's vectorizer works."""
        return self._locks[name]

    def get(self, name: str) -> Vectorizer:
        """Return a vocabulary's vectorizer.

        Raises:
            IndexFormatError: it does not fit the index, or another index has replaced this one.
            InputError: a package that it needs is missing.
        """
        with self._locks[name]:
            if name not in self._loaded:
                self._loaded[name] = self._load(name)
            return self._loaded[name]

    def _load(self, name: str) -> Vectorizer:
        path = self._folder.parent
        if _place(self._folder) != self._place:
            raise IndexFormatError(f"{path}: another index has taken its place: open it again")
        with disk_errors(self._folder / name):
            vectorizer = load_vectorizer(name, self._folder / name)
        if vectorizer.size != self._sizes[name]:
            raise IndexFormatError(f"{path}: its {name} and their model differ in size")
        return vectorizer

    def adopt(self, other: LoadedVectorizers) -> None:
        """Take over the vectorizers that another generation has loaded and that are equal here."""
        for name, vectorizer in list(other._loaded.items()):
            if name in self._sizes and self._model(name) == other._model(name):
                self._loaded[name] = vectorizer
                self._locks[name] = other._locks[name]

    def _model(self, name: str) -> dict[str, str]:
        """Return the checksums of a vectorizer's files."""
        prefix = f"{self._folder.name}/{name}/"
        inside = {
            file.removeprefix(prefix): file for file in self._files if file.startswith(prefix)
        }
        return {
            own: self._files[file]["sha256"]
            for own, file in inside.items()
            if not own.startswith(_OF_DOCUMENTS)
        }


def _place(folder: Path) -> tuple[int, int] | None:
    """Return what tells a folder from another one of its name; None where there is none."""
    try:
        status = folder.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
