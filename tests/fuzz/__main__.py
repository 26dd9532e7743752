"""The long run: workers for all readers, watched from outside, and what they reached.

``python -m tests.fuzz --inputs 200000`` in the repository; ``--coverage`` where coverage is
installed; ``--guided`` lets atheris choose inputs where that is. Exits with 1 where a reader
failed, with a line for each kind of failure: ``--seed S --number N TARGET`` repeats that input.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]

SLOW = {"encoder": 0.05, "export": 0.1, "index": 0.5, "manifest": 0.5}
"""Targets that get a part of the inputs of others, as each of theirs costs more."""


def main() -> None:
    arguments = parse()
    os.chdir(ROOT)
    sys.path += [str(ROOT / "src"), str(ROOT / "tests")]
    if arguments.guided:
        run_guided(arguments)
    from .watched import Watched, run_all

    names = arguments.targets or listed()
    if arguments.number is not None:
        numbers = range(arguments.number, arguments.number + 1)
        finish(run_all([Watched(n, arguments.seed, numbers) for n in names], 1), len(names))
    counts = shares(names, arguments.inputs)
    start = time.monotonic()
    folder = Path(".coverage.d") if arguments.coverage else None
    work = [Watched(n, arguments.seed, range(counts[n]), folder) for n in names]
    found = run_all(work, arguments.jobs)
    print(f"{len(names)} readers, {time.monotonic() - start:,.0f} s")
    if folder is not None:
        report_coverage(folder)
    finish(found, sum(counts.values()))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("targets", nargs="*", help="all by default")
    parser.add_argument("--inputs", type=int, default=20_000, help="of all readers together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--number", type=int, help="run this input of each reader alone")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--guided", action="store_true", help="by coverage, with atheris")
    parser.add_argument("--coverage", action="store_true", help="measure lines and branches")
    return parser.parse_args()


def listed() -> list[str]:
    from .targets import TARGETS

    return list(TARGETS)


def shares(names: list[str], inputs: int) -> dict[str, int]:
    """How many inputs each target gets."""
    weights = {name: SLOW.get(name, 1.0) for name in names}
    each = inputs / sum(weights.values())
    return {name: max(1, round(each * weights[name])) for name in names}


def run_guided(arguments: argparse.Namespace) -> None:
    """One process for each target after the other, as its imports are instrumented."""
    counts = shares(arguments.targets or listed(), arguments.inputs)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    found: list[dict[str, Any]] = []
    for name, count in counts.items():
        command = [sys.executable, "-m", "tests.fuzz.guided", name, str(count)]
        command.append(str(arguments.seed))
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        own = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        if done.returncode:
            tail = " ".join(done.stderr.split())[-500:]
            own.append({"target": name, "problem": f"ended with {done.returncode}: {tail}"})
        edges = [int(number) for number in re.findall(r"cov: (\d+)", done.stderr)] or [0]
        print(f"{name:32} {count:8,} inputs, {edges[0]:5} edges at first, {edges[-1]:5} at last")
        found += own
    finish(found, sum(counts.values()))


KEYS = ("covered_lines", "num_statements", "covered_branches", "num_branches")


def report_coverage(folder: Path) -> None:
    """Lines and branches of every function that a reader entered."""
    import coverage

    measured = coverage.Coverage(data_file=str(folder / "all"), branch=True)
    measured.combine([str(folder)])
    report = folder / "report.json"
    measured.json_report(outfile=str(report))
    total: collections.Counter[str] = collections.Counter()
    for file, entry in sorted(json.loads(report.read_text())["files"].items()):
        own: collections.Counter[str] = collections.Counter()
        for name, function in entry["functions"].items():
            if name and function["summary"]["covered_lines"]:
                own.update({key: function["summary"][key] for key in KEYS})
        if own:
            print(f"{file.rpartition('src/')[2]:44} {share(own)}")
        total += own
    print(f"{'all functions that were entered':44} {share(total)}")


def share(counts: collections.Counter[str]) -> str:
    lines = f"lines {counts['covered_lines']:5} of {counts['num_statements']:5}"
    return f"{lines}, branches {counts['covered_branches']:5} of {counts['num_branches']:5}"


def finish(found: list[dict[str, Any]], inputs: int) -> None:
    for finding in found:
        print(json.dumps(finding))
    print(f"{len(found)} failures in {inputs:,} inputs")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
