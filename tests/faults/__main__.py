"""The long run: every write point, random moments, readers beside updates, writers in a race.

``python -m tests.faults [--kills 100] [--updates 1000]`` in the repository.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[2]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.faults")
    parser.add_argument("--kills", type=int, default=100, help="random moments of each change")
    parser.add_argument("--updates", type=int, default=1000, help="while two processes read")
    parser.add_argument("--documents", type=int, default=400)
    arguments = parser.parse_args()
    sys.path += [str(ROOT / "src"), str(ROOT / "tests")]
    with TemporaryDirectory() as name:
        kill_each(Path(name), arguments.documents, arguments.kills)
        read_and_race(Path(name), arguments.updates)


def kill_each(folder: Path, count: int, kills: int) -> None:
    from fuzz.targets import use_vowels

    from .cases import cases, kill_after, kill_at, moments, run_unbroken

    use_vowels()

    for name, case in cases(count).items():
        whole = run_unbroken(case, folder / name)
        work = folder / "work"
        found: dict[str, Counter[str]] = {"points": Counter(), "moments": Counter()}
        for number in range(len(whole.points)):
            found["points"][kill_at(whole, work, number)] += 1
            shutil.rmtree(work)
        for seconds in moments(whole, kills, 0):
            found["moments"][kill_after(whole, work, seconds)] += 1
            shutil.rmtree(work)
        print(f"{name}: " + "; ".join(f"{k} {dict(v)}" for k, v in found.items()), flush=True)


def read_and_race(folder: Path, count: int) -> None:
    from lexicept.index import updates
    from lexicept.storage.generations import generation_number, generations

    from .cases import build
    from .readers import race, read_during_updates, version

    build(folder / "index", 1)
    updates.update(folder / "index", version(0))
    start = time.monotonic()
    counts = read_during_updates(folder / "index", count, 2)
    seconds = time.monotonic() - start
    print(f"{count} updates in {seconds:.0f} s, read {counts} times, none torn", flush=True)
    won = [race(lambda n=n: build(folder / f"raced{n}", 20), 3) for n in range(50)]
    assert set(won) == {1}, won
    before = generations(folder / "index")[-1]
    done = sum(race(lambda: updates.update(folder / "index", version(1)), 3) for _ in range(50))
    now = generations(folder / "index")[-1]
    assert generation_number(now.name) == (generation_number(before.name) or 0) + done
    print(f"50 races of 3 builds: one won each; of 150 updates {150 - done} were refused")


if __name__ == "__main__":
    main()
