"""The calls by which anything comes to disk or leaves it, counted, and what happens at one."""

from __future__ import annotations

import errno
import io
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

CALLS: list[tuple[Any, str]] = [
    (os, "mkdir"),
    (os, "link"),
    (os, "replace"),
    (os, "rename"),
    (os, "fsync"),
    (os, "unlink"),
    (os, "rmdir"),
    (io, "open"),
]

NEED_ROOM = ("mkdir", "link", "open", "fsync", "replace", "rename")
"""Calls that a full disk may refuse."""


class Counter:
    """Counts write points, and does something before one of them."""

    def __init__(self, at: int | None, act: Callable[[], None], names: tuple[str, ...]) -> None:
        self.names: list[str] = []
        """The points that were met."""
        self._at = at
        self._act = act
        self._counted = names

    def wrap(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:
            mode = str(arguments[1] if len(arguments) > 1 else options.get("mode", "r"))
            writes = name != "open" or not mode.startswith("r") or "+" in mode
            if writes and name in self._counted:
                self.names.append(name)
                if len(self.names) - 1 == self._at:
                    self._act()
            # A kill loses nothing that was written, and flushing takes long.
            return None if name == "fsync" else call(*arguments, **options)

        return counted


@contextmanager
def points(
    at: int | None = None,
    act: Callable[[], None] = lambda: None,
    names: tuple[str, ...] = tuple(name for _, name in CALLS),
) -> Iterator[Counter]:
    """Count write points in this process; before number ``at`` of them, act."""
    counter = Counter(at, act, names)
    patches = [patch.object(owner, n, counter.wrap(n, getattr(owner, n))) for owner, n in CALLS]
    for each in patches:
        each.start()
    try:
        yield counter
    finally:
        for each in patches:
            each.stop()


def die() -> None:
    """As ``kill -9`` does."""
    os.kill(os.getpid(), signal.SIGKILL)


def no_room() -> None:
    """As a full disk does."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
