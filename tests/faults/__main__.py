"""The long run: power cuts and kills, I/O errors, readers beside updates, writers in a race.

``python -m tests.faults [CASE ...]`` in the repository. Without a case everything runs. The exit
status is 1 if any trial failed.
"""

import argparse
import os
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[2]

SHOWN = 10
"""Failures of a kind that are printed."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.faults")
    parser.add_argument("cases", nargs="*", metavar="CASE", help="such as build; all by default")
    parser.add_argument("--documents", type=int, default=40, help="in an index of words")
    parser.add_argument("--every", type=int, default=1, help="try each so many-th call only")
    parser.add_argument("--updates", type=int, default=1000, help="while two processes read")
    arguments = parser.parse_args()
    sys.path += [str(ROOT / "src"), str(ROOT / "tests")]
    # A forked child has none of its parent's OpenMP threads, and would wait for them for ever.
    os.environ["OMP_NUM_THREADS"] = "1"
    shared_memory = Path("/dev/shm")  # nothing is flushed, so that a disk only costs time
    parent = shared_memory if shared_memory.is_dir() else None
    with TemporaryDirectory(dir=parent) as name:
        failed = interrupt_each(Path(name), arguments.cases, arguments.documents, arguments.every)
        if not arguments.cases:
            read_and_race(Path(name), arguments.updates)
    sys.exit(failed > 0)


def interrupt_each(folder: Path, names: list[str], count: int, every: int) -> int:
    """Run the trials of each case; return the number of failures."""
    from support.vowels import use_vowels

    from . import calls, trials
    from .cases import index_cases, model_cases

    if not calls.available():
        sys.exit("faults need Linux on x86-64, and a kernel that lets a process filter calls")
    calls.allow_many_files()
    use_vowels()
    cases, failed = {**index_cases(count), **model_cases()}, 0

    def chosen(indices: list[int]) -> list[int]:
        return indices[::every]

    for name in names or cases:
        whole = trials.run_undisturbed(cases[name], folder / name)
        trials_made = {
            "power cuts and kills": trials.cut_power(whole, folder / name, chosen),
            "I/O errors": trials.fail_calls(whole, folder / name, chosen),
        }
        for trial, tally in trials_made.items():
            failed += len(tally.failures)
            print(f"{name}: {trial}: {tally}", flush=True)
            for failure in tally.failures[:SHOWN]:
                print(f"  {failure}", flush=True)
    return failed


def read_and_race(folder: Path, count: int) -> None:
    from lexicept.index import updates
    from lexicept.storage.manifest import generation_number, generations

    from .cases import build
    from .readers import race, read_during_updates, version

    build(folder / "read", 1)
    updates.update(folder / "read", version(0))
    start = time.monotonic()
    counts = read_during_updates(folder / "read", count, 2)
    seconds = time.monotonic() - start
    print(f"{count} updates in {seconds:.0f} s, read {counts} times, none torn", flush=True)
    won = [race(lambda n=n: build(folder / f"raced{n}", 20), 3) for n in range(50)]
    assert set(won) == {1}, won
    before = generations(folder / "read")[-1]
    done = sum(race(lambda: updates.update(folder / "read", version(1)), 3) for _ in range(50))
    now = generations(folder / "read")[-1]
    assert generation_number(now.name) == (generation_number(before.name) or 0) + done
    print(f"50 races of 3 builds: one won each; of 150 updates {150 - done} were refused")


if __name__ == "__main__":
    main()
