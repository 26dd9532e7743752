"""Progress reports of long work, and bars in a terminal that show them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from lexicept.errors import InputError
from lexicept.sanitize import safe

if TYPE_CHECKING:
    from rich.progress import TaskID


class Progress(Protocol):
    """Called again and again while a stage runs."""

    def __call__(self, stage: str, done: int, total: int, detail: str = "") -> None:
        """``done`` of ``total`` units of the stage are done; ``detail`` is for people."""


def silent(stage: str, done: int, total: int, detail: str = "") -> None:
    """Does nothing."""


class ProgressBars:
    """A bar per stage on standard error, and a moving line between stages; a ``Progress``."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bars

        self._bars = Bars(
            SpinnerColumn(finished_text=" "),
            TextColumn("{task.description:<12}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[count]}"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[detail]}", markup=False),
            console=Console(stderr=True),
        )
        self._working = self._bars.add_task("working", total=None, count="", detail="")
        self._stages: dict[str, TaskID] = {}

    def __enter__(self) -> ProgressBars:
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bars.remove_task(self._working)
        self._bars.stop()

    def __call__(self, stage: str, done: int, total: int, detail: str = "") -> None:
        if stage not in self._stages:
            self._stages[stage] = self._bars.add_task(stage, count="", detail="")
        count = f"{done:,.0f}/{total:,.0f}"
        place = self._stages[stage]
        self._bars.update(place, completed=done, total=total, count=count, detail=safe(detail))
        stages = (task for task in self._bars.tasks if task.id != self._working)
        self._bars.update(self._working, visible=all(task.finished for task in stages))


@contextmanager
def reporting(progress: bool | Progress) -> Iterator[Progress]:
    """Yield a report of long work: bars on standard error for True, nothing for False. Raises
    InputError for anything else.

    Args:
        progress: True, False, or a ``Progress`` of the caller's own.
    """
    if not isinstance(progress, bool) and not callable(progress):
        raise InputError(f"progress is True, False or a function, not {progress!r:.80}")
    if progress is True:
        with ProgressBars() as bars:
            yield bars
    else:
        yield silent if progress is False else progress
