"""What a person sees in a terminal: progress, results and explanations."""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from lexicept.corpora import Document
from lexicept.index import Contribution, Hit

SNIPPET = 240
"""Characters of a document shown under a result."""

# C0 and C1 would let a document send commands to the terminal, bidi marks reorder other text.
_CONTROLS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

_COLOURS = {"words": "cyan", "concepts": "magenta"}


class ProgressBars:
    """A bar per stage on standard error; a ``lexicept.progress.Progress``."""

    def __init__(self) -> None:
        self._bars = Progress(
            TextColumn("{task.description:<12}"),
            BarColumn(),
            TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[detail]}"),
            console=Console(stderr=True),
        )
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> ProgressBars:
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bars.stop()

    def __call__(self, stage: str, done: int, total: int, detail: str = "") -> None:
        if stage not in self._tasks:
            self._tasks[stage] = self._bars.add_task(stage, total=total, detail=detail)
        self._bars.update(self._tasks[stage], completed=done, total=total, detail=detail)


def safe(text: str) -> str:
    """A document's text without what a terminal would obey instead of show."""
    return _CONTROLS.sub("\ufffd", text)


def snippet(text: str, query: str) -> str:
    """The part of a text around the first word of the query that it holds, or its beginning."""
    flat = " ".join(text.split())
    words = sorted(set(re.findall(r"\w{3,}", query.lower())), key=len, reverse=True)
    found = [flat.lower().find(word) for word in words]
    first = next((place for place in found if place >= 0), 0)
    start = max(0, min(first - SNIPPET // 4, len(flat) - SNIPPET))
    part = flat[start : start + SNIPPET]
    return ("…" if start else "") + part + ("…" if start + SNIPPET < len(flat) else "")


def results_table(
    query: str,
    results: Sequence[tuple[Hit, Document, Sequence[Contribution]]],
) -> Table:
    """Results, best first, each with its contributions where there are any."""
    table = Table(
        title=Text(safe(query)), title_justify="left", show_header=False, box=None, padding=(0, 1)
    )
    table.add_column(justify="right", style="bold")
    table.add_column(justify="right", style="green")
    table.add_column(overflow="fold")
    for rank, (hit, document, contributions) in enumerate(results, 1):
        body = Text(safe(document.title or document.id), style="bold")
        if document.title and document.title != document.id:
            body.append(f"  {safe(document.id)}", style="dim")
        body.append(f"\n{safe(snippet(document.text, query))}", style="not bold")
        if contributions:
            body.append("\n")
            body.append(explanation(contributions, hit.score))
        table.add_row(str(rank), f"{hit.score:.3f}", body)
    return table


def explanation(contributions: Sequence[Contribution], score: float, most: int = 6) -> Text:
    """The largest contributions with their shares of the score, and what the rest adds."""
    text = Text()
    for vocabulary, term, part in contributions[:most]:
        text.append(f"{part / score:>5.0%} ", style="green")
        text.append(f"{vocabulary.removesuffix('s')} ", style="dim")
        text.append(f"{safe(term)}\n", style=_COLOURS.get(vocabulary, ""))
    rest = sum(part for _, _, part in contributions[most:])
    if rest > 0:
        text.append(f"{rest / score:>5.0%} ", style="green")
        text.append(f"{len(contributions) - most} more\n", style="dim")
    text.right_crop(1)
    return text


def key_values(title: str, rows: Sequence[tuple[str, str]]) -> Table:
    """Names and values side by side."""
    table = Table(title=Text(safe(title)), title_justify="left", show_header=False, box=None)
    for name, value in rows:
        table.add_row(Text(safe(name)), Text(safe(value)))
    return table
