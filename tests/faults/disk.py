"""What a power cut leaves of a folder, by what a process has flushed to disk.

The process runs under ``calls.run``, and ``Disk.see`` is told of every call before it happens.

- The content of a file is on disk as it was when the file was last flushed (``fsync``), whatever
  wrote it. A file that was never flushed has no content on disk.
- The names in a folder are on disk as they were when the folder was last flushed. A rename, a new
  file or a removal after that is lost.
- What was there before the process started is on disk.

POSIX promises no more. A real file system often keeps more of it, and not always the same: its
journal may hold a rename while the content of the renamed file was never written. So each power
cut is taken in several ways, ``WAYS``. All start from the same moment, between two calls.

What this does not model: a disk that loses what it confirmed, a sector that is half written within
a flushed file, and names of which some later ones survive and some earlier ones do not (file
systems with a journal keep the order).
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from .calls import Call

WAYS = {
    "flushed": "only flushed names with flushed contents",
    "empty": "all names; files have their flushed content, new ones none",
    "torn": "all names; half of what was written since the flush",
    "zeros": "all names and sizes; zeros in the place of what was not flushed",
    "written": "everything, as after kill -9",
}
"""What may be left, each a legal outcome of the same power cut (the last one of a kill)."""

CHANGES = ("create", "rename", "link", "mkdir", "unlink", "rmdir", "truncate", "fsync")
"""Calls before which the power is cut: at all others nothing on disk has changed."""

Tree = dict[str, "bytes | str | None"]
"""Contents of files by their paths below the folder, targets of links, and None for folders."""


class Disk:
    """A folder that a process works on, and what of it is on disk.

    Files are known by their inodes; each that is on disk is kept open here, so that its number is
    not given to another file.

    Args:
        root: the folder; all of it is on disk now.
    """

    def __init__(self, root: Path) -> None:
        self.root = os.path.realpath(root)
        self._contents: dict[int, bytes | str] = {}
        self._names: dict[int, dict[str, tuple[int, int]]] = {}
        """Names in each flushed folder, with the inode and mode of each."""
        self._held: dict[int, int] = {}
        for folder, _, files in os.walk(self.root):
            self._flush_names(folder)
            for name in files:
                self._flush_content(f"{folder}/{name}")

    def __enter__(self) -> Disk:
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in self._held.values():
            os.close(descriptor)

    def see(self, call: Call) -> None:
        """Take note of a call; only flushes change what is on disk."""
        if call.name == "fsync":
            path = f"/proc/{call.process}/fd/{call.arguments[0]}"
            if os.path.isdir(path):
                self._flush_names(path, follow=True)
            else:
                self._flush_content(path, follow=True)

    def survivors(self) -> dict[str, Tree]:
        """Return the remains of a power cut now, in each of ``WAYS``."""
        now = {way: dict(self._current(way)) for way in WAYS if way != "flushed"}
        return {"flushed": dict(self._flushed(os.stat(self.root).st_ino)), **now}

    def _flush_content(self, path: str, *, follow: bool = False) -> None:
        inode = self._hold(path, follow)
        if os.path.islink(path) and not follow:
            self._contents[inode] = os.readlink(path)
        else:
            self._contents[inode] = Path(path).read_bytes()

    def _flush_names(self, path: str, *, follow: bool = False) -> None:
        names = {}
        for item in os.scandir(path):
            mode = item.stat(follow_symlinks=False).st_mode
            inode = self._hold(item.path)
            names[item.name] = inode, mode
            if stat.S_ISLNK(mode):  # its target is stored with its name
                self._contents[inode] = os.readlink(item.path)
        self._names[self._hold(path, follow)] = names

    def _hold(self, path: str, follow: bool = False) -> int:
        descriptor = os.open(path, os.O_PATH | (0 if follow else os.O_NOFOLLOW))
        inode = os.fstat(descriptor).st_ino
        if inode in self._held:
            os.close(descriptor)
        else:
            self._held[inode] = descriptor
        return inode

    def _flushed(self, folder: int, prefix: str = "") -> Iterator[tuple[str, bytes | str | None]]:
        for name, (inode, mode) in self._names.get(folder, {}).items():
            if stat.S_ISDIR(mode):
                yield f"{prefix}{name}", None
                yield from self._flushed(inode, f"{prefix}{name}/")
            else:
                yield f"{prefix}{name}", self._contents.get(inode, b"")

    def _current(self, way: str) -> Iterator[tuple[str, bytes | str | None]]:
        for folder, folders, files in os.walk(self.root):
            for name in [*folders, *files]:
                path = f"{folder}/{name}"
                with suppress(FileNotFoundError):  # another thread of the process goes on
                    yield os.path.relpath(path, self.root), self._content(path, way)

    def _content(self, path: str, way: str) -> bytes | str | None:
        if os.path.islink(path):
            return os.readlink(path)
        if os.path.isdir(path):
            return None
        flushed = self._contents.get(os.stat(path).st_ino, b"")
        assert isinstance(flushed, bytes)
        if way == "empty":
            return flushed
        written = Path(path).read_bytes()
        if way == "written" or written == flushed:
            return written
        same = len(flushed) if written.startswith(flushed) else 0
        if way == "torn":
            return written[: (same + len(written)) // 2]
        return written[:same] + bytes(len(written) - same)


def write(tree: Tree, folder: Path) -> None:
    """Write the remains into a new folder."""
    folder.mkdir()
    for name, data in tree.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if data is None:
            path.mkdir(exist_ok=True)
        elif isinstance(data, str):
            path.symlink_to(data)
        else:
            path.write_bytes(data)


def digest(tree: Tree) -> str:
    """Return a checksum of the remains: equal remains are tested once."""
    parts = hashlib.sha256()
    for name in sorted(tree):
        data = tree[name]
        type_ = "folder" if data is None else type(data).__name__
        raw = data.encode() if isinstance(data, str) else data or b""
        parts.update(f"{name}\0{type_}\0{len(raw)}\0".encode() + raw)
    return parts.hexdigest()
