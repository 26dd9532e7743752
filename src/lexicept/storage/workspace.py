"""Workspaces: folders of unfinished work that the next run of the same call resumes.

A ``Workspace`` on ``out`` is the folder ``<out>.partial``, locked by one process at a time, with
``settings.json`` (the task, the settings of the call and the fingerprints of inputs), the finished
units of work, and ``staged``, which every run makes again::

    with Workspace(out, "mine", {"index": fingerprint, "depth": 100}, restart=restart) as work:
        lines = work.growing("lists.jsonl")
        for start in range(lines.done, len(queries), BATCH):
            lines.append_lines(search(queries[start : start + BATCH]), start + BATCH)
        work.publish(lines.path)

The policy is the same for every task:

- Same settings: the work is resumed. Units that are damaged or were cut off count as absent.
- Different settings: ``InputError`` names the first difference, with the old and the new value.
  ``restart=True`` (``--restart``) discards the unfinished work instead.
- A block that ends before a unit of work was kept leaves nothing behind, neither the folder nor
  created parents. Settings without kept work may be changed.
- ``publish`` flushes the result to disk, renames it to ``out`` and removes the folder.
- A folder of that name with foreign contents is refused and left alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

from lexicept.errors import IndexFormatError, InputError
from lexicept.storage.files import (
    beside,
    disk_errors,
    first_difference,
    json_if_present,
    make_folder,
    move,
    read_json,
    remove,
    remove_temporaries,
    sync,
    sync_folder,
    write_json,
)
from lexicept.storage.locks import lock
from lexicept.storage.manifest import check_files, describe

FORMAT = "lexicept unfinished work"
SETTINGS = "settings.json"
STAGED = "staged"
REPLACED = "replaced"

PIECE = 2**20
"""Bytes read at once."""


class Workspace:
    """A folder of unfinished work on one file or folder; a context manager (see the module). Raises
    InputError if ``out`` exists, another process works there, the unfinished work has different
    settings, or ``<out>.partial`` is a link, another user's or not of lexicept.

    Args:
        out: the file or folder that ``publish`` creates; the work is in ``<out>.partial``.
        task: a name such as ``"build"``; the work of a different task is never resumed.
        settings: JSON values that the result depends on, with fingerprints of inputs; see
            ``check``.
        restart: discard the task's unfinished work instead of resuming it.
        overwrite: replace an existing ``out`` when the result is published.
        in_place: work in ``out`` itself, a growing folder of results that is not published; later
            calls must have equal settings.
    """

    def __init__(
        self,
        out: str | os.PathLike[str],
        task: str,
        settings: Mapping[str, Any] | None = None,
        *,
        restart: bool = False,
        overwrite: bool = False,
        in_place: bool = False,
    ) -> None:
        self.out = self.folder = Path(out).absolute()
        self._shown = Path(out) if in_place else Path(f"{Path(out)}.partial")
        self._errors = disk_errors(self._shown)
        self._task, self._overwrite, self._in_place = task, overwrite, in_place
        if not in_place:
            self._refuse_existing()
            self.folder = beside(self.out, ".partial")
        self._parents = [path for path in self.folder.parents if not path.exists()]
        # An empty ``.partial`` folder is of an interrupted call or a process that has just begun.
        self._was_empty = in_place and self.folder.is_dir() and not any(self.folder.iterdir())
        self._refuse_foreign()
        try:
            make_folder(self.folder)
        except (FileExistsError, NotADirectoryError, PermissionError) as error:
            raise InputError(f"{self._shown} can't be created: {error.strerror}") from error
        self._unlock = weakref.finalize(self, os.close, lock(self.folder))
        try:
            self._enter(restart)
            if settings is not None:
                self.check(settings)
        except BaseException:
            self.close()
            raise

    def _enter(self, restart: bool) -> None:
        """Take over the contents, now that the folder is locked."""
        replaced = self.folder / REPLACED
        if os.path.lexists(replaced) and not os.path.lexists(self.out):
            move(replaced, self.out)  # a killed ``publish`` had not put the new one in its place
        if not self._in_place:
            self._refuse_existing()  # another process may have published before the lock was ours
        self._refuse_foreign()
        remove(replaced)
        task = self._read().get("task")
        if self._keeps() and task != self._task:
            raise InputError(
                f"{self._shown}: unfinished work of another task ({task}, not {self._task}): "
                "finish it, or remove the folder"
            )
        if restart or not self._keeps():
            self._clear()
        remove(self.folder / STAGED)

    def check(self, settings: Mapping[str, Any]) -> None:
        """Compare settings with the unfinished work, and record new settings, also in later calls.

        Only ``staged`` may be used before the first call. Raises InputError, which names a setting,
        if one differs.
        """
        recorded = self._read().get("settings", {})
        now = json.loads(json.dumps({"lexicept": version("lexicept"), **settings}))
        difference = first_difference({name: recorded.get(name, now[name]) for name in now}, now)
        if difference is not None:
            raise InputError(
                f"{self._shown}: made with other settings: {difference}; --restart (restart=True) "
                "discards that work"
            )
        state = {"format": FORMAT, "task": self._task, "settings": {**recorded, **now}}
        write_json(self.folder / SETTINGS, state)

    def kept(self, name: str) -> Path:
        """Return a folder that is kept, for files that are written atomically; temporary files of a
        killed process are removed."""
        folder = self._inside(name)
        make_folder(folder)
        remove_temporaries(folder)
        return folder

    def staged(self) -> Path:
        """Return an empty folder that is not kept: every run makes the contents again."""
        folder = self.folder / STAGED
        remove(folder)
        folder.mkdir()
        return folder

    def growing(self, name: str) -> GrowingFile:
        """Return a file that grows by units of work."""
        return GrowingFile(self._inside(name))

    def units(self, name: str) -> Units:
        """Return a folder of finished units of work."""
        return Units(self.kept(name))

    def publish(self, result: Path) -> None:
        """Move a file or folder of the workspace to ``out``, and remove the workspace.

        Raises InputError for an empty file, or if ``out`` exists by now.
        """
        if not result.exists() or (result.is_file() and not result.stat().st_size):
            self._clear()
            raise InputError(f"{self.out}: there is nothing to write")
        if result.is_dir():
            sync_folder(result)
        else:
            sync(result)
        self._refuse_existing()
        # The old result steps aside until the new result is in place: ``_enter`` undoes a kill.
        replaced, staged = self.folder / REPLACED, self.folder / STAGED
        if old := os.path.lexists(self.out):
            move(self.out, replaced)
        try:
            move(result, self.out)
        except BaseException:
            if old and not os.path.lexists(self.out):
                move(replaced, self.out)
            raise
        if old:
            remove(staged)
            move(replaced, staged)  # a run after a kill must not take half of it for the old result
        self.discard()

    def finish(self) -> None:
        """Turn the folder of an ``in_place`` workspace into a finished result."""
        remove(self.folder / SETTINGS)
        remove(self.folder / ".lock")
        self._unlock()

    def discard(self) -> None:
        """Remove the workspace with all contents, and release the lock."""
        self._clear()
        (self.folder / ".lock").unlink(missing_ok=True)
        with suppress(OSError):  # of another process by now, or with other contents
            if not self._was_empty:
                self.folder.rmdir()
                for parent in self._parents:
                    parent.rmdir()
        self._unlock()

    def close(self) -> None:
        """Release the lock; a workspace without kept work is removed."""
        if not self._unlock.alive:
            return
        if self._keeps():
            remove(self.folder / STAGED)
            self._unlock()
        else:
            self.discard()

    def __enter__(self) -> Self:
        self._errors.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        if isinstance(error[1], KeyboardInterrupt):
            resumed = f" the work kept in {self._shown}" if self._keeps() else ", with nothing kept"
            error[1].__notes__ = [f"the same command resumes{resumed}"]  # the outermost tells
        self.close()
        self._errors.__exit__(*error)

    def _inside(self, name: str) -> Path:
        assert (self.folder / SETTINGS).exists(), "nothing is kept before its settings are checked"
        return self.folder / name

    def _read(self) -> dict[str, Any]:
        return json_if_present(self.folder / SETTINGS)

    def _kept_paths(self) -> list[Path]:
        """Return the files and folders that are neither bookkeeping nor staged."""
        bookkeeping, temporary = (".lock", SETTINGS, STAGED), f".{SETTINGS}."
        return [
            path
            for path in self.folder.iterdir()
            if path.name not in bookkeeping and not path.name.startswith(temporary)
        ]

    def _keeps(self) -> bool:
        """Return True if a file is kept."""
        paths = (path for root in self._kept_paths() for path in (root, *root.rglob("*")))
        return any(path.is_symlink() or path.is_file() for path in paths)

    def _clear(self) -> None:
        """Remove everything but the lock; the settings last, to explain an interrupted removal."""
        settings, lock_file = self.folder / SETTINGS, self.folder / ".lock"
        for path in self.folder.iterdir():
            if path not in (settings, lock_file):
                remove(path)
        remove(settings)

    def _refuse_existing(self) -> None:
        if not self._overwrite:
            refuse_existing(self.out)

    def _refuse_foreign(self) -> None:
        """Raise InputError for a folder with foreign contents."""
        if not os.path.lexists(self.folder):
            return
        if not self._in_place:
            self._refuse_owner()
        sound = self.folder.is_dir()
        if sound and (self.folder / SETTINGS).exists():
            sound = False
            with suppress(IndexFormatError):
                recorded = self._read()
                has_settings = isinstance(recorded.get("settings"), dict)
                sound = has_settings and recorded.get("format") == FORMAT
        elif sound:
            with suppress(FileNotFoundError):  # another process has just removed it
                sound = not self._kept_paths()
        if not sound and os.path.lexists(self.folder):
            hint = "name another folder" if self._in_place else "move it elsewhere"
            raise InputError(f"{self._shown}: not unfinished work of lexicept; {hint}")

    def _refuse_owner(self) -> None:
        """Raise InputError for a link or another user's folder, which may change later."""
        with suppress(FileNotFoundError):  # another process has just removed it
            status = self.folder.lstat()
            if stat.S_ISLNK(status.st_mode):
                raise InputError(f"{self._shown}: a link, not a folder of unfinished work")
            if status.st_uid != os.geteuid():
                raise InputError(f"{self._shown}: another user's (number {status.st_uid})")


class GrowingFile:
    """A file that grows by whole units of work.

    ``<name>.state.json`` has the numbers of kept bytes (``size``) and units (``done``), and a
    checksum. Later bytes are removed; a file that does not match the checksum starts again. The
    file exists from the first unit on.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = self.done = 0
        self._state = beside(path, ".state.json")
        self._digest = hashlib.sha256()
        with suppress(IndexFormatError, OSError):
            self._resume()
        if self.path.exists():
            os.truncate(self.path, self.size)

    def _resume(self) -> None:
        state = read_json(self._state)
        size, done = state.get("bytes"), state.get("done")
        if not (isinstance(size, int) and isinstance(done, int) and min(size, done) >= 0):
            return
        digest = hashlib.sha256()
        with self.path.open("rb") as file:
            for start in range(0, min(size, self.path.stat().st_size), PIECE):
                digest.update(file.read(min(PIECE, size - start)))
        if digest.hexdigest() == state.get("sha256"):
            self.size, self.done, self._digest = size, done, digest

    def append(self, encoded: bytes, done: int) -> None:
        """Add bytes and flush the file; ``done`` units of work are in the file then."""
        # The content is on disk before the state, which a kill in between leaves at the last unit.
        with disk_errors(self.path, len(encoded)), self.path.open("ab") as file:
            file.write(encoded)
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
        self._digest.update(encoded)
        write_json(self._state, {"bytes": size, "done": done, "sha256": self._digest.hexdigest()})
        self.size, self.done = size, done

    def append_lines(self, lines: Iterable[str], done: int) -> None:
        """Add lines in UTF-8; see ``append``."""
        self.append("".join(f"{line}\n" for line in lines).encode(), done)

    def lines(self) -> list[str]:
        """Return the lines so far."""
        return self.path.read_bytes().decode().split("\n")[:-1] if self.path.exists() else []


class Units:
    """Finished units of work: some files each, in one folder.

    ``<folder>.jsonl`` has a line for each complete unit, with the checksums of the files.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lines = GrowingFile(beside(folder, ".jsonl"))
        self._finished = {unit["unit"]: unit for unit in map(json.loads, self._lines.lines())}

    def facts(self, unit: str) -> dict[str, Any] | None:
        """Return the facts about a finished unit; None for an unfinished or damaged unit."""
        try:
            check_files(self.folder, self._finished[unit]["files"], checksums=True)
        except (KeyError, IndexFormatError):
            return None
        facts: dict[str, Any] = self._finished[unit]["facts"]
        return facts

    def finish(self, unit: str, files: Iterable[Path], **facts: Any) -> None:
        """Keep the written files of a unit, with JSON values as facts."""
        paths = list(files)
        for path in [*paths, self.folder]:
            sync(path)
        record = {"unit": unit, "files": describe(paths, self.folder), "facts": facts}
        self._finished[unit] = record
        self._lines.append_lines([json.dumps(record)], self._lines.done + 1)


@contextmanager
def new_folder(out: str | os.PathLike[str], task: str) -> Iterator[Path]:
    """Yield an empty folder that ``Workspace.publish`` moves to ``out`` after the block."""
    with Workspace(out, task) as work:
        staged = work.staged()
        yield staged
        work.publish(staged)


def refuse_existing(path: Path) -> None:
    """Raise InputError if the path of a new file or folder exists."""
    if os.path.lexists(path):
        raise InputError(f"{path} exists already: name another path or remove it first")
