"""Files of lines: replaced in one step, or grown by work that goes on after it was killed."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from lexicept.errors import InputError
from lexicept.storage.files import fingerprint, read_json, write_json
from lexicept.storage.locks import lock


class PartFile:
    """A file that grows in the folder ``<path>.partial`` and is moved to ``path`` when it is whole.

    A context manager; ``folder`` may hold other unfinished work and is removed by ``finish``.

    Args:
        path: where the file will be.
        settings: JSON values that its lines depend on; a part made with others is thrown away.

    Raises:
        InputError: something is at ``path`` already, or another process is writing there.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        self.path = path
        self._refuse_existing()
        self.folder = path.with_name(f"{path.name}.partial")
        self.folder.mkdir(parents=True, exist_ok=True)
        self._fingerprint = fingerprint([json.dumps(settings, sort_keys=True)])
        self._state = self.folder / "state.json"
        lines = self.folder / "lines"
        lines.touch()
        self._file = lines.open("r+b")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise InputError(f"{self.folder}: another process is writing here") from None
        size, self.done = self._resume(lines.stat().st_size)
        self._file.truncate(size)
        self._file.seek(size)

    def _resume(self, size: int) -> tuple[int, int]:
        """Bytes to keep and units of work done: what stood there at the last ``append``."""
        if self._state.exists():
            state = read_json(self._state)
            kept, done = state.get("bytes"), state.get("done")
            if isinstance(kept, int) and isinstance(done, int) and 0 <= kept <= size and done >= 0:
                same = state.get("fingerprint") == self._fingerprint
                return (kept, done) if same else (0, 0)
        return 0, 0

    def append(self, lines: Iterable[str], done: int) -> None:
        """Add lines for good; ``done`` units of the work are behind them."""
        self._file.write("".join(f"{line}\n" for line in lines).encode())
        self._file.flush()
        os.fsync(self._file.fileno())
        state = {"fingerprint": self._fingerprint, "bytes": self._file.tell(), "done": done}
        write_json(self._state, state)
        self.done = done

    def finish(self) -> None:
        """Move the file to its place, and remove what else is unfinished.

        Raises:
            InputError: the file has no lines, or something is at ``path`` by now.
        """
        if not self._file.tell():
            raise InputError(f"{self.path}: there is nothing to write")
        self._refuse_existing()
        os.replace(self.folder / "lines", self.path)
        shutil.rmtree(self.folder)

    def __enter__(self) -> PartFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()

    def _refuse_existing(self) -> None:
        if self.path.exists():
            raise InputError(f"{self.path} exists already: name another place or remove it first")


def refuse_existing(path: Path) -> None:
    """Raises InputError where something is at the path of a new index."""
    if path.exists():
        raise InputError(f"{path} exists already: name another place or remove it first")


def claim(path: Path) -> tuple[Path, int]:
    """The folder ``<path>.partial``, where something new is until it is whole, and the lock on it.

    Raises:
        InputError: something is at ``path``, another process is writing there, or the folder is not
            of unfinished work.
    """
    refuse_existing(path)
    work = path.absolute().with_name(f"{path.name}.partial")
    if work.exists() and not (work / ".lock").exists() and any(work.iterdir()):
        raise InputError(f"{work}: not unfinished work of lexicept; move it elsewhere")
    work.mkdir(parents=True, exist_ok=True)
    descriptor = lock(work)
    try:
        refuse_existing(path)  # another process may have finished before the lock was ours
    except InputError:
        shutil.rmtree(work)
        os.close(descriptor)
        raise
    return work, descriptor
