"""Time of whole commands, from the start of the process to its end, and their peak memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.common import Table
from lexicept.corpora import Document, read_documents

LEXICEPT = str(Path(sys.executable).with_name("lexicept"))


def timed(*arguments: str | Path) -> tuple[float, float]:
    """Return the processor time of a command in seconds, and its peak memory in MB."""
    process = subprocess.Popen(
        [LEXICEPT, *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"lexicept {arguments[0]} failed: {said.decode()[-500:]}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def write(documents: list[Document], path: Path) -> Path:
    """Write documents as JSON Lines."""
    path.write_text("".join(json.dumps(document._asdict()) + "\n" for document in documents))
    return path


def run(data: Path, concepts: int = 300) -> list[Table]:
    """Build, verify, re-weight, search and evaluate indexes of SQuAD's paragraphs, and build and
    describe one of the first of them with concepts."""
    with TemporaryDirectory() as folder:
        path = Path(folder)
        documents = list(read_documents(str(data / "squad_train")))
        few = write(list(islice(documents, concepts)), path / "few.jsonl")
        dev, index = data / "squad_dev", path / "index"
        cases = {
            f"build, words, {len(documents):,} documents": (
                *("build", data / "squad_train", "--out", index, "--vocabulary", "words"),
            ),
            "index verify": ("index", "verify", index),
            "index reweight": ("index", "reweight", index, "--out", path / "reweighted"),
            "search": ("search", index, "Which team won the game?"),
            "build, words, SQuAD's development set": (
                *("build", dev, "--out", path / "dev", "--vocabulary", "words"),
            ),
            "evaluate, 10,570 queries": ("evaluate", path / "dev", dev),
            f"build, words and concepts, {concepts} documents": (
                *("build", few, "--out", path / "few"),
            ),
            "report of these": ("report", path / "few", "--out", path / "report.html"),
        }
        lines = []
        for name, arguments in cases.items():
            took, peak = timed(*arguments)
            lines.append([name, f"{took:.2f} s", f"{peak:.0f} MB"])
    return [Table("commands", ["Command", "processor time", "peak"], lines)]
