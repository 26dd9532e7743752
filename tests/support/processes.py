"""Other interpreters: loaded modules, and commands and functions stopped at a point."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

HEAVY = {"torch", "transformers", "sentence_transformers", "safetensors", "tokenizers", "ray"}


class KilledError(Exception):
    """Raised instead of killing a process."""


MAIN = "from lexicept.cli import main\nmain()"


def loaded_after(code: str, *arguments: object) -> set[str]:
    """Top-level modules loaded by a fresh interpreter at its exit."""
    script = (
        "import atexit, json, sys\n"
        "show = lambda: sys.stderr.write('\\n' + json.dumps([*sys.modules]))\n"
        f"atexit.register(show)\n{code}"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return {name.partition(".")[0] for name in json.loads(done.stderr.splitlines()[-1])}


def command(*arguments: object) -> list[str | bytes]:
    texts = (text if isinstance(text, bytes) else str(text) for text in arguments)
    return [sys.executable, "-c", MAIN, *texts]


def launch(program: str, folder: Path, *arguments: object) -> None:
    """Run a program, kept in a folder, in two processes of torch's launcher."""
    (folder / "program.py").write_text(program)
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    done = subprocess.run(
        [sys.executable, *launcher, str(folder / "program.py"), *map(str, arguments)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def stops_at(work: Callable[..., None], call: int) -> Callable[..., None]:
    """Return ``work``, interrupted from the keyboard at a given call."""
    calls = iter(range(1, call))

    def stopped(*arguments: Any, **options: Any) -> None:
        if next(calls, None) is None:
            raise KeyboardInterrupt
        work(*arguments, **options)

    return stopped
