"""Trials: a command is killed or loses its power, or meets an I/O error, and the result is checked.

After each trial the old result or the new one is there, whole; and where it is the old one, the
command, run again, leads to the new one.
"""

import errno
import importlib
import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from lexicept.index.manifest import missing_from

from . import calls, disk
from .calls import Call
from .cases import Case, execute
from .disk import Disk

ERRORS = {
    "EIO": (errno.EIO, ("open", "read", *calls.CHANGES)),
    "ENOSPC": (errno.ENOSPC, calls.NEED_ROOM),
    "ENOMEM": (errno.ENOMEM, ("mmap",)),
}
"""Errors by name, and the calls that fail with each."""


class Whole(NamedTuple):
    """A case, its files before the command, and the result of an undisturbed command."""

    case: Case
    before: Path
    old: str | None
    new: str | None
    files: list[str]
    """Of the folder after the command."""
    calls: list[Call]
    """Those of the command that are about its folder."""


class Tally:
    """Results of trials: how many ended in which way, and failures."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.failures: list[str] = []

    def add(self, where: str, check: Callable[[], str]) -> None:
        """Count the outcome of a check; AssertionError is a failure."""
        try:
            self.counts[check()] += 1
        except Exception as error:  # whatever reading a damaged result raises
            self.counts["failed"] += 1
            self.failures.append(f"{where}: {type(error).__name__}: {error}")

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {name}" for name, count in sorted(self.counts.items()))
        return f"{self.counts.total()} trials: {counts}"


def run_undisturbed(case: Case, folder: Path) -> Whole:
    """Run a case's command in a new folder and note its calls.

    Raises:
        AssertionError: the command fails or changes nothing.
    """
    before, after = folder / "before", folder / "after"
    before.mkdir(parents=True)
    case.prepare(before)
    shutil.copytree(before, after, symlinks=True)
    noted: list[Call] = []
    root = os.path.realpath(after)

    def note(call: Call) -> int | None:
        if is_inside(call, root):
            noted.append(call)
        return flushed(call)

    warm(case, folder)
    outcome = execute(case, after, note)
    assert outcome.code == 0, outcome.output
    old, new = (case.read(each / case.result) for each in (before, after))
    assert old != new
    return Whole(case, before, old, new, names_in(after), noted)


def warm(case: Case, folder: Path) -> None:
    """Import everything the command imports, so that the processes of the trials need not."""
    shutil.copytree(folder / "before", folder / "warm", symlinks=True)
    names = folder / "modules"

    def act() -> None:
        try:
            case.act()
        finally:
            names.write_text("\n".join([*sys.modules]))

    execute(case._replace(act=act), folder / "warm", flushed)
    for name in names.read_text().split("\n"):
        with suppress(Exception):  # some exist under one name only
            importlib.import_module(name)


def is_inside(call: Call, root: str) -> bool:
    return any(f"{path}/".startswith(f"{root}/") for path in call.paths)


def flushed(call: Call) -> int | None:
    """Answer a flush as done: only its time could be seen here."""
    return 0 if call.name == "fsync" else None


def names_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def check(whole: Whole, folder: Path) -> str:
    """Return which result is there, "old", "new", or "early" for an index that can be searched
    before its build has ended; from the old one and an early one another run gets to the new.

    Raises:
        AssertionError: none is there, or another run fails or leads to something else.
    """
    case, result = whole.case, folder / whole.case.result
    state = case.read(result)
    if state == whole.new:
        return "new"
    early = bool(missing_from(result))
    assert early or state == whole.old, "neither the old nor the new result"
    again = execute(case, folder, flushed)
    assert again.code == 0, f"run again: {again.output.strip()[-1000:]}"
    assert case.read(result) == whole.new, "run again: another result"
    different = set(names_in(folder)) ^ set(whole.files)
    assert not different, f"run again: other files: {sorted(different)[:9]}"
    return "early" if early else "old"


def begin(whole: Whole, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(whole.before, folder, symlinks=True)


def cut_power(
    whole: Whole, folder: Path, selection: Callable[[list[int]], Iterable[int]] = iter
) -> Tally:
    """Cut the power before every call that changes anything, and after the end, in all ``WAYS``.

    What is left is checked by ``check``; after the end it has to be the new result. Equal remains
    are checked once.

    Args:
        selection: picks some of the numbers of the calls that change anything.
    """
    work, tally = folder / "work", Tally()
    remains: dict[str, tuple[str, Path]] = {}
    begin(whole, work)
    changes = [call for call in whole.calls if call.name in disk.CHANGES]
    change_indices = set(selection([*range(len(changes))]))
    with Disk(work) as surface:
        number = -1

        def collect(where: str) -> None:
            for way, tree in surface.survivors().items():
                key = disk.digest(tree)
                if key not in remains:
                    path = folder / f"cut{len(remains)}"
                    disk.write(tree, path)
                    remains[key] = f"{where}, {way}", path

        def answer(call: Call) -> int | None:
            nonlocal number
            if not is_inside(call, surface.root):
                return flushed(call)
            if call.name in disk.CHANGES:
                number += 1
                if number in change_indices:
                    collect(f"before {number} ({shown(call, surface.root)})")
            surface.see(call)
            return flushed(call)

        outcome = execute(whole.case, work, answer)
        assert outcome.code == 0, outcome.output
        final = {disk.digest(tree) for tree in surface.survivors().values()}
        collect("after the end")
    for key, (where, change) in remains.items():
        shutil.rmtree(work)
        change.rename(work)

        def look(key: str = key) -> str:
            if key in final:
                assert whole.case.read(work / whole.case.result) == whole.new, "done, and lost"
            return check(whole, work)

        tally.add(where, look)
    return tally


def shown(call: Call, root: str) -> str:
    return " ".join([call.name, *(os.path.relpath(path, root) for path in call.paths)])


def fail_calls(
    whole: Whole, folder: Path, selection: Callable[[list[int]], Iterable[int]] = iter
) -> Tally:
    """Let each call about the folder fail in turn, with each of ``ERRORS`` that it can meet.

    The command has to end with status 0 and the new result, or with status 1 and one line that
    names a file; then nothing but the old result and work to resume is there. See ``check``.
    A full disk stays full; any other error happens once.

    Args:
        selection: picks some of the numbers of calls.
    """
    tally, work = Tally(), folder / "work"
    for name, (code, call_names) in ERRORS.items():
        call_indices = [n for n, call in enumerate(whole.calls) if call.name in call_names]
        for call_index in selection(call_indices):
            where = f"{name} at {call_index} ({shown(whole.calls[call_index], whole_root(whole))})"
            tally.add(where, lambda n=call_index, e=code: fail_one(whole, work, n, e))
    return tally


def whole_root(whole: Whole) -> str:
    return os.path.realpath(whole.before.with_name("after"))


def fail_one(whole: Whole, folder: Path, call_index: int, error: int) -> str:
    """Let one call fail; see ``fail_calls``.

    Returns:
        "went on" where the command succeeded nevertheless, otherwise the result that was there.
    """
    begin(whole, folder)
    root, seen, failed = os.path.realpath(folder), 0, None

    def answer(call: Call) -> int | None:
        nonlocal seen, failed
        if is_inside(call, root):
            seen += 1
            if seen == call_index + 1:
                failed = call
                return error
            if failed is not None and error == errno.ENOSPC and call.name in calls.NEED_ROOM:
                return error
        return flushed(call)

    outcome = execute(whole.case, folder, answer)
    assert failed is not None, "the call was not made"
    if outcome.code == 0:
        assert whole.case.read(folder / whole.case.result) == whole.new, "status 0, no result"
        return "went on"
    assert_one_line(outcome.output, failed, root)
    result = whole.case.read(folder / whole.case.result)
    allowed = {*names_in(whole.before), *(whole.files if result == whole.new else ())}
    stray = [name for name in names_in(folder) if name not in allowed and not kept(whole, name)]
    assert not stray, f"left behind: {stray[:9]} ({outcome.output.strip()})"
    return check(whole, folder)


def kept(whole: Whole, name: str) -> bool:
    """Return whether a file is work to resume, or a lock."""
    first = name.split("/")[0]
    return ".partial" in name or first in whole.case.unfinished or name.endswith("/.lock")


def assert_one_line(output: str, call: Call, root: str) -> None:
    """The last line is the error and names the file, or its folder."""
    assert "Traceback" not in output, output[-2000:]
    lines = output.strip().splitlines()
    errors = [line for line in lines if line.startswith("error: ")]
    assert errors == lines[-1:], f"not one line: {output[-500:]}"
    names = {*call.paths}
    for path in call.paths:
        segments = os.path.relpath(path, root).split("/")
        names |= {"/".join(segments[:n]) for n in range(1, len(segments) + 1)}
    assert any(name in errors[0] for name in names), f"names no file: {errors[0]}"
