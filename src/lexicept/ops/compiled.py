"""Kernels: functions that numba compiles. It is imported when one is first called."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import update_wrapper
from threading import RLock
from types import FunctionType
from typing import Any, TypeVar

LOADING = 0.4
"""Seconds that importing numba and loading a search's kernels take, about."""

LOOPED = 1e-6
"""Seconds that a step of a loop in Python takes, about."""

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Kernel]:
    """Compile a function when it is first called; it runs without Python's lock.

    Args:
        options: numba's, such as ``inline`` and ``fastmath``.
    """
    return lambda function: Kernel(function, options)


def by_work(seconds: float, kernel: Function, reference: Function) -> Function:
    """Return the reference for the first work of a process, and the kernel from then on.

    A process that answers one query loads no numba. References are called until they would take
    ``LOADING`` together, or a kernel was called; so that no process takes much longer than it would
    with the better of the two.

    Args:
        seconds: what ``reference`` takes, about.
    """
    _References.seconds += seconds
    return kernel if calls_kernels() else reference


def call_kernels() -> None:
    """Call no reference any more: for a process that answers many queries and has the time to load
    numba before the first."""
    _References.seconds = math.inf


def calls_kernels() -> bool:
    """Return whether references are called no more."""
    return _References.seconds >= LOADING


class _References:
    """The work that references have done in this process."""

    seconds = 0.0
    """Infinite from the first kernel on."""


class Kernel:
    """A function that numba compiles when it is first called."""

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
        with Kernel._lock:
            if self._dispatcher is None:
                self._dispatcher = self._made()
            return self._dispatcher

    def _made(self) -> Any:
        import numba

        from lexicept.ops.machine_code import Cache

        call_kernels()
        # numba knows its own functions alone, so that they stand for the kernels that it calls.
        code, known = self.py_func.__code__, self.py_func.__globals__
        own = {name: kernel.dispatcher for name, kernel in self._called().items()}
        function = FunctionType(code, known | own, code.co_name)
        dispatcher = numba.njit(nogil=True, **self._options)(function)
        if not numba.config.DISABLE_JIT:
            dispatcher._cache = Cache(self.py_func, self._files())  # as numba's cache=True does
        return dispatcher

    def _called(self) -> dict[str, Kernel]:
        """Return the kernels that the function calls, by their names in it."""
        code, known = self.py_func.__code__, self.py_func.__globals__
        called = {name: known.get(name) for name in code.co_names}
        return {name: kernel for name, kernel in called.items() if isinstance(kernel, Kernel)}

    def _files(self) -> set[str]:
        """Return the source files of the function and of all that it calls."""
        own = {self.py_func.__code__.co_filename}
        return own.union(*(kernel._files() for kernel in self._called().values()))
