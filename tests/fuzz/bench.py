"""The files of one target, replaced one at a time by damaged content."""

import gzip
import resource
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lexicept.errors import LexiceptError

from .targets import Target

MEMORY = 2**30
"""Bytes of address space that a reader may take beyond what valid files need."""

HEADER = 1
"""Bytes of an input that say which file it replaces."""


class Bench:
    """Writes a target's valid files once, and restores them after every input.

    An input is one byte that selects a file, followed by the file's new content. A ``.gz`` file can
    be selected in two ways: to replace the file, or the text that it holds compressed.

    Args:
        folder: an empty folder.
    """

    def __init__(self, target: Target, folder: Path) -> None:
        self.target, self.folder = target, folder
        target.write(folder)
        paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        self._files = {path: path.read_bytes() for path in paths if path.name != ".lock"}
        changed = [path for path in sorted(folder.glob(target.changed)) if path in self._files]
        self._places = [(path, False) for path in changed]
        self._places += [(path, True) for path in changed if path.suffix == ".gz"]
        assert 0 < len(self._places) <= 256**HEADER
        target.read(folder)  # valid files are accepted; functions are compiled now
        self._restore()

    def seeds(self) -> list[bytes]:
        """Return the inputs that change no file."""
        return [
            i.to_bytes(HEADER, "little")
            + (gzip.decompress(self._files[path]) if inner else self._files[path])
            for i, (path, inner) in enumerate(self._places)
        ]

    def read(self, data: bytes) -> None:
        """Replace one file and read the folder. Any error but a LexiceptError is raised."""
        file_index, raw = int.from_bytes(data[:HEADER], "little"), data[HEADER:]
        path, inner = self._places[file_index % len(self._places)]
        path.write_bytes(gzip.compress(raw, 1, mtime=0) if inner else raw)
        self.target.settle(self.folder)
        try:
            with suppress(LexiceptError), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.target.read(self.folder)
        finally:
            self._restore()

    def _restore(self) -> None:
        for path in self.folder.rglob("*"):
            if path.is_file() and path not in self._files:
                path.unlink()
        for path, data in self._files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists() or path.read_bytes() != data:
                path.write_bytes(data)


@contextmanager
def limited_memory() -> Iterator[None]:
    """Let this process's address space grow by ``MEMORY`` at most."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    limit = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
