"""Runs mutated inputs through readers in this process, within limits of memory and time."""

from __future__ import annotations

import resource
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from lexicept.errors import LexiceptError

from .mutator import mutate
from .targets import TARGETS, Target, use_vowels

SECONDS = 1.0
"""Of CPU time, that an input may take."""

MEMORY = 2**30
"""Bytes of address space, beyond what the readers need for valid files."""


class Bench:
    """The files of one target, written once and put back after every input."""

    def __init__(self, name: str, folder: Path) -> None:
        use_vowels()
        self.target: Target = TARGETS[name]
        self.name = name
        self.folder = folder
        self.target.write(folder)
        self.target.read(folder)  # valid files are read, and what is compiled is compiled
        paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        self.files = {path: path.read_bytes() for path in paths if path.name != ".lock"}
        self.mutated = [p for p in sorted(folder.glob(self.target.changed)) if p in self.files]

    def restore(self) -> None:
        """Put the files back, and remove what is new."""
        for path in self.folder.rglob("*"):
            if path.is_file() and path not in self.files:
                path.unlink()
        for path, content in self.files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists() or path.read_bytes() != content:
                path.write_bytes(content)

    def draw(self, seed: int, number: int) -> dict[Path, bytes]:
        """The changed files of one input; the same for the same numbers."""
        random = Random(f"{self.name}/{seed}/{number}")
        chosen = random.sample(self.mutated, min(len(self.mutated), random.choice((1, 1, 1, 2))))
        pool = list(self.files.values())
        return {path: mutate(random, self.files[path], pool) for path in chosen}

    def run(self, changed: dict[Path, bytes]) -> str | None:
        """Read one input; return what was wrong about how it went."""
        for path, content in changed.items():
            path.write_bytes(content)
        self.target.settle(self.folder)
        start = time.thread_time()
        try:
            self.target.read(self.folder)
        except LexiceptError:
            pass
        except Exception as error:
            return describe(error)
        finally:
            seconds = time.thread_time() - start
            self.restore()
        return None if seconds <= SECONDS else f"it took {seconds:.1f} s"


def describe(error: BaseException) -> str:
    """The error and the last lines of lexicept that it went through."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if "/lexicept/" in f.filename or f.filename.startswith("<")][-3:]
    places = " < ".join(f"{Path(f.filename).name}:{f.lineno} {f.name}" for f in reversed(ours))
    return f"{type(error).__name__}: {' '.join(str(error).split())[:160]} | {places}"


def limit_memory() -> None:
    """Let this process grow by ``MEMORY`` and no more."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))


def run(
    name: str, seed: int, numbers: range, progress: Callable[[int], None] = lambda _: None
) -> Iterator[dict[str, Any]]:
    """Run some inputs of one target; yield what went wrong, each kind once."""
    warnings.simplefilter("ignore")
    seen: set[str] = set()
    with TemporaryDirectory() as folder:
        bench = Bench(name, Path(folder))
        limit_memory()
        for number in numbers:
            progress(number)
            problem = bench.run(bench.draw(seed, number))
            if problem is not None:
                kind = problem.split(":")[0] + problem.rpartition("|")[2]
                if kind not in seen:
                    yield {"target": name, "seed": seed, "number": number, "problem": problem}
                seen.add(kind)
