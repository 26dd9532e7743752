"""A worker whose inputs are chosen by the edges that they reach (atheris, libFuzzer)."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import atheris

with atheris.instrument_imports(include=["lexicept"]):
    from .mutator import LONGEST, mutate
    from .worker import Bench, limit_memory


def main(arguments: list[str]) -> None:
    """``NAME INPUTS SEED``: findings as JSON Lines on standard output."""
    name, inputs, seed = arguments
    warnings.simplefilter("ignore")
    folder, corpus = TemporaryDirectory(), TemporaryDirectory()
    bench = Bench(name, Path(folder.name))
    for number, path in enumerate(bench.mutated):
        # An input is which file is replaced, and by what.
        content = number.to_bytes(2, "little") + bench.files[path]
        (Path(corpus.name) / f"{number}").write_bytes(content)
    pool = list(bench.files.values())
    seen: set[str] = set()

    def change(data: bytes, longest: int, number: int) -> bytes:
        random = Random(number)
        if random.random() < 0.5:
            return bytes(data[:2] + atheris.Mutate(data[2:], longest - 2))
        return data[:2] + mutate(random, bytes(data[2:]), pool)[: longest - 2]

    def read(data: bytes) -> None:
        path = bench.mutated[int.from_bytes(data[:2], "little") % len(bench.mutated)]
        problem = bench.run({path: data[2:]})
        if problem is not None:
            kind = problem.split(":")[0] + problem.rpartition("|")[2]
            if kind not in seen:
                finding = {"target": name, "file": path.name, "content": data[2:].hex()[:4000]}
                print(json.dumps({**finding, "problem": problem}), flush=True)
            seen.add(kind)

    limit_memory()
    options = [f"-runs={inputs}", f"-seed={int(seed) + 1}", "-timeout=20"]
    options += [f"-max_len={LONGEST}", "-rss_limit_mb=0", "-detect_leaks=0"]
    atheris.Setup([sys.argv[0], *options, corpus.name], read, custom_mutator=change)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1:])
