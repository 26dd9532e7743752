"""``python -m tests.fuzz [TARGET] [--runs N] [--seed S] [FILE ...]``: fuzzing with atheris.

Without a target every target runs, one after the other. A run ends at the first input that makes a
reader fail, hang or take too much memory, and saves it as ``crash-TARGET-...``; with that FILE the
target reads this input alone.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import atheris

ROOT = Path(__file__).parents[2]
sys.path += [str(ROOT / "src"), str(ROOT / "tests")]

LONGEST = 2**16
"""Bytes of an input."""

SECONDS = 20
"""Time after which an input counts as a hang."""

COMPILED = [
    "lexicept.kernels.posting_lists",
    "lexicept.kernels.rra_listener",
    "lexicept.kernels.term_at_a_time",
]
"""Modules left as they are: Numba compiles no instrumented function."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("target", nargs="?", help="a reader; all by default")
    parser.add_argument("files", nargs="*", type=Path, help="inputs to read alone")
    parser.add_argument("--runs", type=int, default=10_000, help="inputs of each target")
    parser.add_argument("--seed", type=int, default=1, help="of atheris; 0 is random")
    arguments = parser.parse_args()
    if arguments.target is None:
        sys.exit(run_all(arguments.runs, arguments.seed))
    fuzz(arguments.target, arguments.runs, arguments.seed, arguments.files)


def run_all(runs: int, seed: int) -> int:
    """Run every target in a process; return how many failed."""
    from .targets import TARGETS

    failed = 0
    for name in TARGETS:
        command = [sys.executable, "-m", "tests.fuzz", name, f"--runs={runs}", f"--seed={seed}"]
        done = subprocess.run(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
        failed += done.returncode != 0
        tail = done.stderr.strip().splitlines()[-1:]
        print(name, "failed:\n" + done.stderr if done.returncode else "".join(tail), flush=True)
    print(f"{failed} of {len(TARGETS)} readers failed")
    return failed


def fuzz(name: str, runs: int, seed: int, files: list[Path]) -> None:
    """Fuzz one target; end the process."""
    with atheris.instrument_imports(include=["lexicept"], exclude=COMPILED):
        from support.vowels import use_vowels

        from .bench import Bench, limited_memory
        from .targets import TARGETS

    if name not in TARGETS:
        sys.exit(f"no target {name!r}: {', '.join(TARGETS)}")
    use_vowels()
    with TemporaryDirectory() as folder, TemporaryDirectory() as corpus, limited_memory():
        bench = Bench(TARGETS[name], Path(folder))
        for i, seed_input in enumerate(bench.seeds()):
            (Path(corpus) / f"{i}").write_bytes(seed_input)
        options = [f"-runs={runs}", f"-seed={seed}", f"-max_len={LONGEST}", f"-timeout={SECONDS}"]
        options += [f"-artifact_prefix={os.getcwd()}/crash-{name}-", "-detect_leaks=0"]
        options += [
            f"-dict={Path(__file__).parent / 'tokens.dict'}",
            "-rss_limit_mb=0",
            "-len_control=0",
        ]
        atheris.Setup([sys.argv[0], *options, *map(str, files or [corpus])], bench.read)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
