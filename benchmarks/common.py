"""Shared code of the benchmarks: tables, interleaved timing, and the README that shows them."""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from datetime import date
from importlib.metadata import version
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

README = Path(__file__).with_name("README.md")


class Table(NamedTuple):
    """A table of results; ``name`` is that of its markers in the README."""

    name: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    def markdown(self) -> str:
        """The table as Markdown, with the machine."""
        lines = [self.columns, ["---"] * len(self.columns), *self.rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines) + f"\n\n{machine()}"


Clock = Callable[[], float]
"""Wall time (``time.perf_counter``) or that of a process's processors (``time.process_time``)."""


def seconds(work: Callable[[], object], clock: Clock = time.perf_counter) -> float:
    """Return the time of one call."""
    start = clock()
    work()
    return clock() - start


def interleaved(
    cases: Mapping[str, Callable[[], object]], rounds: int, clock: Clock = time.perf_counter
) -> dict[str, list[float]]:
    """Time every case in every round, A B A B, after a warm-up call each; return the seconds.

    Interleaving spreads the load of other processes evenly over the cases.
    """
    for work in cases.values():
        work()
    times: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, work in cases.items():
            times[name].append(seconds(work, clock))
    return times


def resident(name: str = "VmRSS") -> float:
    """Return the resident memory of this process in MB: VmRSS is the current value, VmHWM the peak.

    The peak of getrusage would include that of the parent process.
    """
    match = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert match is not None
    return int(match[1]) / 1024


def reset_peak() -> None:
    """Reset VmHWM to the current resident memory."""
    Path("/proc/self/clear_refs").write_text("5")


def ratio(times: Sequence[float], others: Sequence[float]) -> float:
    """Return the median over rounds of the ratio within a round."""
    return median(a / b for a, b in zip(times, others, strict=True))


def machine() -> str:
    """Return processor, versions and date as a line of the README."""
    info = Path("/proc/cpuinfo")
    match = re.search(r"model name\s*: (.*)", info.read_text()) if info.exists() else None
    cpu = match[1] if match else platform.processor() or platform.machine()
    packages = ", ".join(f"{name} {version(name)}" for name in ("torch", "numpy", "scipy", "numba"))
    return (
        f"*{cpu}, {os.cpu_count()} cores; Python {platform.python_version()}, {packages}; "
        f"{date.today()}.*"
    )


def write_readme(tables: Sequence[Table], path: Path = README) -> None:
    """Replace the text between the markers of each table."""
    text = path.read_text(encoding="utf-8")
    for table in tables:
        begin, end = f"<!-- {table.name}:begin -->", f"<!-- {table.name}:end -->"
        before, opened, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        if not (opened and closed):
            raise ValueError(f"{path} has no markers for {table.name!r}")
        text = f"{before}{begin}\n\n{table.markdown()}\n\n{end}{after}"
    path.write_text(text, encoding="utf-8")


def bytes_per_posting(engine: Any) -> float:
    """Return the size of an ``ExactEngine``'s arrays, by posting."""
    size: int = sum(getattr(engine, field.name).nbytes for field in fields(engine))
    return size / int(engine.num_postings)


def read_vectors(folder: Path, vocabulary: Path, weight: float) -> Any:
    """Return published vectors in memory; see ``reproduction.stored.published_vectors``."""
    from reproduction.stored import published_vectors

    with TemporaryDirectory() as work:
        vectors = published_vectors(folder, vocabulary, weight, Path(work))
        documents = vectors.documents.load().copy()
        return vectors._replace(document_ids=list(vectors.document_ids), documents=documents)
