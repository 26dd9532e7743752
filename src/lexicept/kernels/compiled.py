"""Kernels, compiled by numba on the first call, and threads for kernels."""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache, update_wrapper
from threading import RLock
from types import FunctionType
from typing import Any, TypeVar

LOADING = 0.4
"""Approximate seconds of importing numba and loading a search's kernels."""

LOOPED = 1e-6
"""Approximate seconds of a step of a loop in Python."""

Function = TypeVar("Function", bound=Callable[..., Any])

Result = TypeVar("Result")


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Kernel]:
    """Compile a function on the first call; compiled code runs without Python's lock.

    Args:
        options: numba's, such as ``inline`` and ``fastmath``.
    """
    return lambda function: Kernel(function, options)


def by_work(seconds: float, kernel: Function, reference: Function) -> Function:
    """Return the reference for the first work of a process, and the kernel from then on.

    A process that answers one query loads no numba. References are called until they would take
    ``LOADING`` together, or a kernel was called: no process takes much longer than with the faster
    choice.

    Args:
        seconds: approximate time of ``reference``.
    """
    _References.seconds += seconds
    return kernel if _References.seconds >= LOADING else reference


def call_kernels() -> None:
    """Call kernels only: for a process with time to load numba before the first query."""
    _References.seconds = math.inf


class _References:
    seconds = 0.0
    """Work of references in this process; infinite from the first kernel on."""


class Kernel:
    """A function, compiled by numba on the first call."""

    _lock = RLock()

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        update_wrapper(self, function)
        self.py_func = function
        self._options = options
        self._dispatcher: Any = None

    def __call__(self, *arguments: Any) -> Any:
        return (self._dispatcher or self.dispatcher)(*arguments)

    @property
    def dispatcher(self) -> Any:
        """Numba's function."""
        with self._lock:
            if self._dispatcher is None:
                self._dispatcher = self._compile()
            return self._dispatcher

    def _compile(self) -> Any:
        from lexicept.kernels.machine_code import keep, numba

        call_kernels()
        # Numba compiles calls of its own functions only: dispatchers replace the called kernels.
        code, names = self.py_func.__code__, self.py_func.__globals__
        dispatchers = {name: kernel.dispatcher for name, kernel in self._called().items()}
        function = FunctionType(code, names | dispatchers, code.co_name)
        dispatcher = numba.njit(nogil=True, **self._options)(function)
        if not numba.config.DISABLE_JIT:
            keep(dispatcher, self.py_func, self.files())
        return dispatcher

    def _called(self) -> dict[str, Kernel]:
        """Return the kernels that the function calls, by name."""
        # Kernels are called by names of their module.
        names = {
            name: self.py_func.__globals__.get(name) for name in self.py_func.__code__.co_names
        }
        return {name: kernel for name, kernel in names.items() if isinstance(kernel, Kernel)}

    def files(self) -> set[str]:
        """Return the source files of the function and of all called kernels."""
        files = {self.py_func.__code__.co_filename}
        return files.union(*(kernel.files() for kernel in self._called().values()))


def run_in_threads(calls: Sequence[Callable[[], Result]]) -> list[Result]:
    """Return the results of calls that run at the same time, the first in this thread.

    Kernels run without Python's lock.
    """
    futures = [_pool(len(calls) - 1).submit(call) for call in calls[1:]]
    return [calls[0](), *(future.result() for future in futures)]


def in_order(
    function: Callable[[Any], Result], items: Iterable[Any], threads: int
) -> Iterator[Result]:
    """Yield ``function(item)`` for every item, in order, computed in threads. Only a few
    results are in memory at a time."""
    waiting: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > threads:
                yield waiting.popleft().result()
        yield from (future.result() for future in waiting)


@cache
def num_processors() -> int:
    """Return the number of processors of this process; asking takes as long as a small search."""
    allowed = getattr(os, "sched_getaffinity", None)  # not on macOS
    return len(allowed(0)) if allowed is not None else os.cpu_count() or 1


def num_threads() -> int:
    """Return OMP_NUM_THREADS, by default the number of processors."""
    stated = os.environ.get("OMP_NUM_THREADS", "")
    return max(1, int(stated)) if stated.isdecimal() else num_processors()


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads)


# A forked process has none of the threads.
os.register_at_fork(after_in_child=_pool.cache_clear)
