"""``python -m benchmarks.changes FOLDER DATA``: changes of a million documents, and what they find.

An index of synthetic documents is made in FOLDER (3 GB), and changed one time after another, each
change in a process of its own. Then collections of DATA are indexed (words) without a sixteenth of
their documents, which are added; results are compared with those of an index that was built whole.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from statistics import fmean, median
from time import perf_counter, process_time
from typing import Any

import numpy as np

import lexicept
from benchmarks.collections import zipf_collection
from benchmarks.common import Table, resident, seconds, write_readme
from benchmarks.scale import DIMENSIONS, NONZEROS, QUERIES, QUERY_NONZEROS, STEPS
from lexicept.corpora import Document, read_documents, read_queries
from lexicept.engines.joined import JoinedEngine
from lexicept.evaluation.significance import compare
from lexicept.index import added_postings, updates
from lexicept.index.reader import IndexReader

DOCUMENTS, CHANGED = 1_000_000, 1000
KINDS = ["add", "add", "add one", "replace", "delete ten", "add", "merge"]
COLLECTIONS = ["scifact", "cranfield", "cacm", "vaswani_npl", "squad_dev"]


def changed(change: str, index: Path, i: int) -> dict[str, float]:
    """Change the index, and return what that took."""
    random = np.random.default_rng(i)
    names = [f"new-{i}-{position}" for position in range(1 if change == "add one" else CHANGED)]
    if change == "replace":
        names = [f"ids-{n}" for n in random.choice(DOCUMENTS, CHANGED, replace=False)]
    words = random.zipf(1.2, (len(names), NONZEROS)) % DIMENSIONS
    documents = [
        Document(name, " ".join(f"w{word}" for word in text))
        for name, text in zip(names, words.tolist(), strict=True)
    ]
    before = written()
    start, cpu = perf_counter(), process_time()
    if change == "merge":
        updates.merge(index)
    elif change == "delete ten":
        updates.delete(index, [f"ids-{1000 * i + n}" for n in range(0, 1000, 100)])
    else:
        updates.update(index, documents)
    took = {"wall": perf_counter() - start, "processor": process_time() - cpu}
    return took | {"peak": resident("VmHWM"), "written": (written() - before) / 1e6}


def written() -> int:
    """Return the bytes that this process has written."""
    return int(Path("/proc/self/io").read_text().partition("wchar: ")[2].split()[0])


def searched(index: Path) -> dict[str, float]:
    """Return the parts of postings and the median time of a query."""
    engine = IndexReader.open(index).engine
    Q = zipf_collection(QUERIES, DIMENSIONS, QUERY_NONZEROS, seed=1)
    queries = [Q[[i]] for i in range(QUERIES)]
    for _ in range(3):
        times = [seconds(partial(engine.search, q, 10, threads=1)) for q in queries]
    return {"parts": 2 if isinstance(engine, JoinedEngine) else 1, "median": 1e3 * median(times)}


def costs(folder: Path) -> Table:
    """Return a table of changes, one after another."""
    work = folder / "changes"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    for step in ("write", "plain", "index"):
        STEPS[step](work, DOCUMENTS)
    command = [sys.executable, "-m", "benchmarks.changes", str(work / "index"), "--step"]
    lines = []
    for i, change in enumerate(["", *KINDS]):
        values: dict[str, Any] = {}
        for step in [change, "search"] if change else ["search"]:
            done = subprocess.run(
                [*command, step, str(i)], check=True, stdout=subprocess.PIPE, text=True
            )
            values |= json.loads(done.stdout.splitlines()[-1])
        print(change, values, file=sys.stderr, flush=True)
        took = ["–"] * 4
        if change:
            took = [f"{values['wall']:.2f} s", f"{values['processor']:.2f} s"]
            took += [f"{values['peak'] / 1e3:.2f} GB", f"{values['written']:.0f} MB"]
        name = {"": "a new index", "add": "add 1,000", "add one": "add 1"}.get(change, change)
        name = "replace 1,000" if name == "replace" else name.replace("ten", "10")
        lines.append([name, *took, str(values["parts"]), f"{values['median']:.2f} ms"])
    shutil.rmtree(work)
    columns = ["change", "wall time", "processor time", "peak memory", "written", "parts", "query"]
    return Table("changes", columns, lines)


def found(folder: Path, data: Path, name: str) -> list[str]:
    """Return a collection's row."""
    documents = list(read_documents(str(data / name)))
    random.Random(0).shuffle(documents)
    cut = len(documents) - len(documents) // (added_postings.STALE + 1)
    work = folder / name
    shutil.rmtree(work, ignore_errors=True)
    whole = lexicept.build(documents, work / "whole", vocabulary="words")
    grown = lexicept.build(documents[:cut], work / "grown", vocabulary="words")
    added_postings.LARGE = 0
    grown.add(documents[cut:])
    assert grown.info()["parts"] == 2
    texts = [query.text for query in read_queries(str(data / name))]
    results = zip(*(i.search_many(texts, 10) for i in (whole, grown)), strict=True)
    same = [
        len({a.id for a in left} & {b.id for b in other}) / max(len(left), len(other))
        for left, other in results
        if left or other
    ]
    evaluated = [
        next(iter(lexicept.evaluate(index, data / name).systems.values()))
        for index in (whole, grown)
    ]
    values = [{"nDCG@10": own.per_query["nDCG@10"]} for own in evaluated]
    (test,) = compare({"whole": values[0], "grown": values[1]})
    shutil.rmtree(work)
    means = [f"{own.values['nDCG@10']:.4f}" for own in evaluated]
    counts = f"{len(documents) - cut:,} of {len(documents):,}"
    return [name, counts, *means, f"{test.p:.2g}", f"{fmean(same):.2%}"]


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.changes", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("--step", nargs=2, help="for the steps' processes")
    arguments = parser.parse_args()
    if arguments.step:
        change, number = arguments.step
        step = searched(arguments.folder) if change == "search" else None
        print(json.dumps(step or changed(change, arguments.folder, int(number))))
        return
    columns = ["collection", "added", "built whole", "added later", "p", "same results"]
    lines = [found(arguments.folder, arguments.data, name) for name in COLLECTIONS]
    tables = [Table("added", columns, lines), costs(arguments.folder)]
    for table in tables:
        print(table.markdown())
    write_readme(tables)


if __name__ == "__main__":
    main()
