"""``python -m benchmarks.before_after CHECKOUT [NAME ...]``: another version's figures, and now.

CHECKOUT is a checkout of the other version. This version's benchmarks run with the library of
either, each run in a process of its own, before and now in turns. Peers' figures are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from math import exp, log
from pathlib import Path
from statistics import fmean, median
from typing import Any

from benchmarks.common import README, Table, write_readme

DATA = README.parents[2] / "shared" / "data"
NAMES: Mapping[str, Mapping[str, Any]] = {
    "start_up": {},
    "commands": {"data": DATA},
    "search": {},
    "rra": {"data": DATA},
    "heads": {},
    "scaling": {},
    "training": {"peers": False},
    "query": {},
    "memory": {},
    "filters": {},
}
"""Benchmarks whose calls both versions have, and their arguments."""
PEERS = re.compile(
    r"SciPy|PyTorch|torch'|autograd|sparsify|SentenceTransformer|backbone|einsum|plain"
)
FIGURE = re.compile(r"([\d,]*\.?\d+) ?(ms|s|MB|)$")


def figures(table: Table) -> Iterator[tuple[str, float]]:
    """Yield the name of each figure of lexicept, and its seconds or MB; a rate as its inverse."""
    for cells in table.rows:
        named = [cell for cell in cells if not FIGURE.match(cell) and cell[-1:] not in ("×", "%")]
        for column, cell in zip(table.columns[1:], cells[1:], strict=True):
            match, rate = FIGURE.match(cell), column.endswith("/s")
            if not match or not (match[2] or rate) or PEERS.search(" ".join([*named, column])):
                continue
            value = float(match[1].replace(",", "")) * (1e-3 if match[2] == "ms" else 1)
            yield f"{', '.join(named)}: {column}", 1 / value if rate else value


def measured(name: str, source: Path) -> dict[str, float]:
    """Return a benchmark's figures with the library of a checkout."""
    path = os.pathsep.join([str(source / "src"), str(README.parents[1])])
    command = [sys.executable, "-m", "benchmarks.before_after", "--one", name]
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    tables = [Table(*fields) for fields in json.loads(done.stdout.splitlines()[-1])]
    return dict(figure for table in tables for figure in figures(table))


def compared(name: str, other: Path, rounds: int) -> list[str]:
    """Return a benchmark's row: of each figure, the median over rounds of now / before."""
    ratios: dict[str, list[float]] = {}
    for i in range(rounds):
        print(f"{name}, round {i + 1} of {rounds}", file=sys.stderr, flush=True)
        before, now = measured(name, other), measured(name, README.parents[1])
        for figure in before.keys() & now.keys():
            ratios.setdefault(figure, []).append(now[figure] / before[figure])
    middle = {figure: median(values) for figure, values in ratios.items()}
    mean = exp(fmean(map(log, middle.values())))
    best, worst = (choose(middle, key=middle.__getitem__) for choose in (min, max))
    ends = [
        f"{middle[each]:.2f} × ({min(ratios[each]):.2f} to {max(ratios[each]):.2f}), {each}"
        for each in (best, worst)
    ]
    return [name, str(len(middle)), f"{mean:.2f} ×", *ends]


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.before_after", description=__doc__)
    parser.add_argument("checkout", type=Path, nargs="?")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", help="print one benchmark's tables; for the runs' processes")
    arguments = parser.parse_args()
    if arguments.one:
        tables = import_module(f"benchmarks.{arguments.one}").run(**NAMES[arguments.one])
        print(json.dumps(tables))
        return
    if arguments.checkout is None:
        parser.error("which checkout?")
    lines = [
        compared(name, arguments.checkout.resolve(), arguments.rounds)
        for name in arguments.names or NAMES
    ]
    columns = ["benchmark", "figures", "now / before, mean", "best figure", "worst figure"]
    table = Table("before_after", columns, lines)
    print(table.markdown())
    if not arguments.names:
        write_readme([table])


if __name__ == "__main__":
    main()
