"""``python -m benchmarks.cold_start FOLDER``: documents to a searchable index.

Whole processes, in turns: ``lexicept build`` with the packaged model, as it is and adapted to the
documents, and sentence-transformers embedding the same documents with the model that it is made of,
as it does by default and in bfloat16.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.common import Table, ratio, seconds
from benchmarks.start_up import LEXICEPT
from lexicept.corpora import read_documents

PEER = """
import sys, torch
from sentence_transformers import SentenceTransformer
from lexicept.encoding.sources import DEFAULT_BACKBONE, resolve
from lexicept.corpora import read_documents
texts = [document.content for document in read_documents(sys.argv[1])]
model = SentenceTransformer(resolve(DEFAULT_BACKBONE))
with torch.autocast("cpu", torch.bfloat16, enabled=sys.argv[2] == "bfloat16"):
    model.encode(texts, show_progress_bar=False)
"""


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cold_start", description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    times: dict[str, list[float]] = {}
    for _ in range(arguments.rounds):
        for name, took in one_round(arguments.folder):
            times.setdefault(name, []).append(took)
    ours, *_ = times
    rows = [
        [name, *(f"{took:.1f} s" for took in seconds), f"{ratio(times[ours], seconds):.2f} ×"]
        for name, seconds in times.items()
    ]
    count = sum(1 for _ in read_documents(arguments.folder))
    columns = [f"{count:,} documents", *(f"run {n}" for n in range(1, arguments.rounds + 1))]
    print(Table("cold-start", [*columns, "lexicept / it"], rows).markdown())


def one_round(folder: str) -> list[tuple[str, float]]:
    """Return the seconds of each command."""
    times = []
    for options in (("--no-adapted"), ()):
        with TemporaryDirectory() as out:
            build = [LEXICEPT, "build", folder, "--out", str(Path(out) / "index"), *options]
            times.append((" ".join(["lexicept build", *options]), timed(build)))
    for precision in ("float32", "bfloat16"):
        command = [sys.executable, "-c", PEER, folder, precision]
        times.append((f"sentence-transformers, {precision}", timed(command)))
    return times


def timed(command: Sequence[str]) -> float:
    """Return the seconds of a process that must succeed."""
    return seconds(lambda: subprocess.run(command, check=True, capture_output=True))


if __name__ == "__main__":
    main()
