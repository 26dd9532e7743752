"""What the benchmarks share: tables, interleaved timing, and the README that shows them."""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import NamedTuple

README = Path(__file__).with_name("README.md")


class Table(NamedTuple):
    """A result; ``name`` is that of its markers in the README."""

    name: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    def markdown(self) -> str:
        """The table and what it was measured on."""
        lines = [self.columns, ["---"] * len(self.columns), *self.rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines) + f"\n\n{machine()}"


def seconds(work: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def interleaved(cases: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Seconds of every case in every round, A B A B, after one call each that is not counted.

    Interleaving lets whatever else the machine does slow all cases alike.
    """
    for work in cases.values():
        work()
    times: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, work in cases.items():
            times[name].append(seconds(work))
    return times


def resident(name: str = "VmRSS") -> float:
    """Resident memory of this process in MB: VmRSS is what it has, VmHWM its peak.

    What getrusage says begins with the peak of the process that started this one.
    """
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def reset_peak() -> None:
    """Let VmHWM begin with what the process has now."""
    Path("/proc/self/clear_refs").write_text("5")


def ratio(times: Sequence[float], others: Sequence[float]) -> float:
    """The median over rounds of the ratio within a round."""
    return median(a / b for a, b in zip(times, others, strict=True))


def machine() -> str:
    """Processor, versions and date, as a line of the README."""
    info = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*: (.*)", info.read_text()) if info.exists() else None
    cpu = found[1] if found else platform.processor() or platform.machine()
    packages = ", ".join(f"{name} {version(name)}" for name in ("torch", "numpy", "scipy", "numba"))
    return (
        f"*{cpu}, {os.cpu_count()} cores; Python {platform.python_version()}, {packages}; "
        f"{date.today()}.*"
    )


def write_readme(tables: Sequence[Table], path: Path = README) -> None:
    """Replace what is between the markers of each table, and nothing else."""
    text = path.read_text(encoding="utf-8")
    for table in tables:
        begin, end = f"<!-- {table.name}:begin -->", f"<!-- {table.name}:end -->"
        before, found, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        if not (found and closed):
            raise ValueError(f"{path} has no markers for {table.name!r}")
        text = f"{before}{begin}\n\n{table.markdown()}\n\n{end}{after}"
    path.write_text(text, encoding="utf-8")
