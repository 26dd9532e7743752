"""Wall time of the command line's short commands."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from itertools import islice
from pathlib import Path
from statistics import median

from benchmarks.common import Table, interleaved
from lexicept.corpora import read_documents

LEXICEPT = str(Path(sys.executable).with_name("lexicept"))


def call(*arguments: str) -> None:
    """Run the command in a process of its own."""
    subprocess.run([LEXICEPT, *arguments], check=True, capture_output=True)


def run_python(code: str) -> None:
    """Run code in a process of its own."""
    subprocess.run([sys.executable, "-c", code], check=True)


def run(num_documents: int = 500, rounds: int = 7) -> list[Table]:
    """Time ``--help``, searches in a small index of words and concepts, and importing torch."""
    with tempfile.TemporaryDirectory() as folder:
        corpus, index = str(Path(folder, "corpus.jsonl")), str(Path(folder, "index"))
        with open(corpus, "w", encoding="utf-8") as file:
            for document in islice(read_documents("python-docs"), num_documents):
                file.write(json.dumps(document._asdict()) + "\n")
        call("build", corpus, "--out", index)
        search = ("search", index, "open a file for reading")
        cases = {
            "`lexicept --help`": lambda: call("--help"),
            "`lexicept search`, words": lambda: call(*search, "--vocabulary", "words"),
            "words and concepts": lambda: call(*search),
            "`python -c 'import torch'`": lambda: run_python("import torch"),
        }
        # The call that is not counted lets numba compile and cache, which happens once per install.
        times = interleaved(cases, rounds)
    lines = [[name, f"{median(took):.2f} s"] for name, took in times.items()]
    return [Table("start_up", ["Command", "wall time"], lines)]
