"""Progress reports of long work, and a line in a terminal that shows them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import monotonic
from typing import Any, Protocol, runtime_checkable

from lexicept.checks import check
from lexicept.sanitize import safe


@runtime_checkable
class Progress(Protocol):
    """Called again and again while a stage runs."""

    def __call__(self, stage: str, done: int, total: int, detail: str = "") -> None:
        """``done`` of ``total`` units of the stage are done; ``detail`` is for people. A total of 0
        is news, told by ``detail``."""


def silent(stage: str, done: int, total: int, detail: str = "") -> None:
    """Does nothing."""


Shares = Callable[[Mapping[str, float]], Mapping[str, float]]
"""Returns the relative times of all stages, in order, for the units of the stages so far."""

STAGES = {
    "files": "looking for changed files",
    "words": "counting words",
    "model": "loading the model",
    "states": "reading a sample of the documents",
    "training": "learning",
    "concepts": "finding concepts in the documents",
    "naming": "naming concepts",
    "examples": "looking for examples of concepts",
    "neighbours": "comparing concepts",
    "checksums": "comparing checksums",
}
"""Stages in words that users know; other stages are shown by their names."""

EARLY = 0.1
"""Share of the work before which its rate says nothing about the time left."""


class ProgressLine:
    """One line on standard error: the stage, the share done and the time left; a ``Progress``.
    Where standard error is no terminal, each stage is a line.

    Args:
        shares: the relative times of all stages, whose share and time are shown then; by default
            those of the present stage.
    """

    def __init__(self, shares: Shares | None = None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, SpinnerColumn, TextColumn
        from rich.progress import Progress as Line

        self._console = Console(stderr=True)
        self._live = self._console.is_terminal and not self._console.is_dumb_terminal
        fields = ("description", "fields[facts]", "fields[detail]")
        title, facts, detail = (TextColumn(f"{{task.{name}}}", markup=False) for name in fields)
        columns = (SpinnerColumn(), BarColumn(20), title, facts, detail)
        self._line = Line(*columns, console=self._console, transient=True, disable=not self._live)
        self._task = self._line.add_task("starting", total=None, facts="", detail="")
        self._shares = shares
        self._begun: dict[str, float] = {}
        self._totals: dict[str, float] = {}
        self._start = self._last = monotonic()

    def __enter__(self) -> ProgressLine:
        self._line.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._line.stop()

    def __call__(self, stage: str, done: int, total: int, detail: str = "") -> None:
        name = safe(STAGES.get(stage, stage))
        if not total:  # news, not work
            self._print(f"{name}: {safe(detail)}")
            return
        is_new = stage not in self._begun
        self._begun.setdefault(stage, self._last)
        self._totals[stage], self._last = total, monotonic()
        share, left = self._estimate(stage, done / total)
        facts = f"{share:.0%}" if left is None else f"{share:.0%}, {_duration(left)} left"
        if self._shares is not None:
            detail = ""
        fields: dict[str, Any] = {"facts": facts, "detail": safe(detail)}
        self._line.update(self._task, completed=share, total=1, description=name, **fields)
        if is_new and not self._live:
            self._print(f"{name} ({facts})")

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _estimate(self, stage: str, done: float) -> tuple[float, float | None]:
        """Return the share done and the seconds left: of the stage at the stage's own rate, of
        later stages at the rate of all work so far."""
        shares = {stage: 1.0} if self._shares is None else self._shares(self._totals)
        names = [*shares]
        if stage not in names:  # an extra stage, of no known length
            return min(self._line.tasks[0].completed, 1.0), None
        index = names.index(stage)
        before, after = (
            sum(shares[name] for name in stages) for stages in (names[:index], names[index + 1 :])
        )
        work = before + shares[stage] * done
        share = work / (before + shares[stage] + after)
        if not done or share < EARLY:
            return share, None
        left = (self._last - self._begun[stage]) * (1 - done) / done
        return share, left + after * (self._last - self._start) / work


def _duration(seconds: float) -> str:
    """Return a time in whole minutes, or in seconds below two minutes."""
    return f"{seconds:.0f} s" if seconds < 119.5 else f"{seconds / 60:.0f} min"


@contextmanager
def reporting(progress: bool | Progress, shares: Shares | None = None) -> Iterator[Progress]:
    """Yield a report of long work: a line on standard error for True, nothing for False. Raises
    InputError for anything else.

    Args:
        progress: True, False, or a ``Progress`` of the caller's own.
        shares: see ``ProgressLine``.
    """
    check("progress", progress, bool | Progress)
    if progress is True:
        with ProgressLine(shares) as line:
            yield line
    else:
        yield silent if progress is False else progress
