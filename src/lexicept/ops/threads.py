"""Threads that kernels share their work by: they run without Python's lock."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from itertools import pairwise
from typing import TypeVar

Result = TypeVar("Result")


def together(calls: Sequence[Callable[[], Result]]) -> list[Result]:
    """Return the results of calls that run at the same time, the first one in this thread."""
    others = [_pool(len(calls) - 1).submit(call) for call in calls[1:]]
    return [calls[0](), *(other.result() for other in others)]


def over_rows(kernel: Callable[..., None], rows: int, threads: int, *arguments: object) -> None:
    """Call ``kernel(*arguments, first, last)`` on one part of the rows per thread."""
    if threads < 2 or rows < 2 * threads:
        kernel(*arguments, 0, rows)
        return
    ends = [rows * part // threads for part in range(threads + 1)]
    together([partial(kernel, *arguments, *part) for part in pairwise(ends)])


@cache
def processors() -> int:
    """Return the number of processors; asking the system takes as long as a small search."""
    return os.cpu_count() or 1


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads)


# Threads do not come along into a forked process.
os.register_at_fork(after_in_child=_pool.cache_clear)
