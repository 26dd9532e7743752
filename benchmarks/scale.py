"""Collections of 10,000 to 10 million documents: building, RRA, search, adding, verifying.

``python -m benchmarks.scale FOLDER [N...]`` writes the collections and what is built of them into
the folder, 4 KB per document at most, and removes them again. Every step is a process of its own,
so that its peak memory is its own. The texts are a line each: nothing but ``verify`` reads them.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from benchmarks.collections import zipf_blocks, zipf_collection
from benchmarks.common import README, Table, bytes_per_posting, seconds, write_readme
from benchmarks.search import scipy_search
from lexicept.corpora import Document
from lexicept.encoding.words import WordVectorizer
from lexicept.index import impacts
from lexicept.index.generations import publish
from lexicept.index.impacts import Derived, RRASettings, VocabularySettings
from lexicept.index.parts import PARTS, TEXTS, frequencies, part_name
from lexicept.index.updates import update
from lexicept.index.verification import verify
from lexicept.parallel.shards import shards_of
from lexicept.storage.arrays import CSRWriter, StoredRows
from lexicept.storage.manifest import generation_name
from lexicept.storage.texts import TextStore
from lexicept.weighting import BM25

SIZES = (10_000, 100_000, 1_000_000, 5_000_000, 10_000_000)
DIMENSIONS, NONZEROS = 65_536, 116
QUERIES, QUERY_NONZEROS, TOP_K = 200, 21, 10
SETTINGS = [VocabularySettings(BM25())]
ADDED = 1000
"""Documents that are added to each collection."""
ALPHA = RRASettings(1.25)
BUILDS = ("plain", "rounded", "rra")
MEASURED = ("plain", "reason", "rra", "search", "add", "verify")
"""Steps whose peak memory counts."""
SCIPY_DOCUMENTS = 1_000_000
"""Largest collection searched by SciPy, which holds it in memory twice."""


def generation(folder: Path) -> Path:
    """Return the folder of the index's first generation."""
    return folder / "index" / generation_name(1)


def collection(folder: Path) -> list[StoredRows]:
    """Return the documents' frequencies."""
    part_folder = generation(folder) / PARTS / part_name(1)
    return [StoredRows(frequencies(part_folder, "words"), DIMENSIONS)]


def write(folder: Path, documents: int) -> dict[str, float]:
    """Write the collection, block by block."""

    def work() -> None:
        part_folder = generation(folder) / PARTS / part_name(1)
        part_folder.mkdir(parents=True)
        words = generation(folder) / "words"
        words.mkdir()
        WordVectorizer(terms=(f"w{n}" for n in range(DIMENSIONS))).save(words)
        for name in TEXTS:
            TextStore.write(part_folder / name, (f"{name}-{n}" for n in range(documents)))
        with CSRWriter(frequencies(part_folder, "words")) as writer:
            for block in zipf_blocks(documents, DIMENSIONS, NONZEROS, seed=0):
                writer.append(block)

    return {"write": seconds(work)}


def build(folder: Path, name: str, rra: RRASettings | None, bits: int) -> dict[str, float]:
    """Build weights, RRA if asked for, and postings."""
    work = partial(Derived.compute, collection(folder), SETTINGS, rra, folder / name, bits)
    return {name: seconds(work)}


def index(folder: Path) -> dict[str, float]:
    """Make an index of the frequencies and of the postings that are built of them."""
    (folder / "plain").rename(generation(folder) / "postings")
    documents = collection(folder)[0].indptr.size - 1
    record = {"name": "words", "size": DIMENSIONS, **SETTINGS[0].to_json()}
    data = {"documents": documents, "vocabularies": [record], "rra": None, "vectors": None}
    return {"publish": seconds(partial(publish, folder / "index", generation(folder), data))}


def add(folder: Path, documents: int) -> dict[str, float]:
    """Add documents, of as many words as the others have."""
    random = np.random.default_rng(2)
    words = random.zipf(1.2, (ADDED, NONZEROS)) % DIMENSIONS
    new = [
        Document(f"n{documents}-{i}", " ".join(f"w{word}" for word in words_of_document))
        for i, words_of_document in enumerate(words.tolist())
    ]
    return {"add": seconds(partial(update, folder / "index", new))}


def check(folder: Path) -> dict[str, float]:
    """Verify the index to the last byte."""

    def work() -> None:
        messages = verify(folder / "index").problems
        assert not messages, messages

    return {"verify": seconds(work)}


def reason(folder: Path) -> dict[str, float]:
    """Run RRA's passes alone, with weights computed again."""
    shards = shards_of(collection(folder))
    weigher = impacts.weigher_of(shards, SETTINGS)
    return {"reason": seconds(lambda: impacts.reason(shards, weigher, DIMENSIONS, ALPHA))}


def search(folder: Path, documents: int) -> dict[str, Any]:
    """Time opening, and queries one at a time on one thread."""
    Q = zipf_collection(QUERIES, DIMENSIONS, QUERY_NONZEROS, seed=1)
    values: dict[str, Any] = {"open": seconds(lambda: Derived.load(folder / "plain"))}
    for name in BUILDS:
        derived = Derived.load(folder / name)
        queries = [(Q[[i]], Q[[i]] @ derived.background) for i in range(QUERIES)]
        # The first round compiles, and brings the postings into memory.
        for _ in range(2):
            times = [seconds(partial(derived.engine.search, q, TOP_K, f, 1)) for q, f in queries]
        values[f"{name} latency"] = np.percentile(times, [50, 99]).tolist()
        values[f"{name} bytes"] = bytes_per_posting(derived.engine)
    if documents <= SCIPY_DOCUMENTS:
        XT = Derived.load(folder / "plain").engine.matrix().T.tocsr()
        times = [seconds(partial(scipy_search, Q[[i]], XT, TOP_K)) for i in range(QUERIES)]
        values["scipy"] = np.median(times)
    return values


STEPS: dict[str, Callable[[Path, int], dict[str, Any]]] = {
    "write": write,
    "plain": lambda folder, _: build(folder, "plain", None, 32),
    "rounded": lambda folder, _: build(folder, "rounded", None, 8),
    "reason": lambda folder, _: reason(folder),
    "rra": lambda folder, _: build(folder, "rra", ALPHA, 32),
    "search": search,
    "index": lambda folder, _: index(folder),
    "add": add,
    "verify": lambda folder, _: check(folder),
}


def peak_memory() -> float:
    """Return the peak resident memory of this process, mapped pages included, in GB."""
    # What getrusage says begins with the peak of the process that started this one.
    match = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert match is not None
    return int(match[1]) * 1024 / 1e9


def measure(folder: Path, documents: int) -> dict[str, Any]:
    """Measure all steps of one size."""
    work = folder / str(documents)
    work.mkdir(parents=True)
    values: dict[str, Any] = {"documents": documents}
    try:
        for step in STEPS:
            command = [sys.executable, "-m", "benchmarks.scale", "--step", step, str(work)]
            done = subprocess.run(
                [*command, str(documents)], check=True, stdout=subprocess.PIPE, text=True
            )
            values |= json.loads(done.stdout.splitlines()[-1])
            print(values, flush=True)
    finally:
        shutil.rmtree(work)
    return values


def table(results: list[dict[str, Any]]) -> Table:
    """Return a table with a row for every size."""
    columns = [
        "documents", "build", "RRA's passes", "build with RRA", "peak memory", "open",
        "bytes / non-zero", "8 bits", "median", "p99", "8 bits: median", "RRA: median",
        "SciPy: median", "median / SciPy's", "8 bits / SciPy's", f"add {ADDED:,}", "verify",
    ]  # fmt: skip
    lines = []
    for values in results:
        plain, rounded, rra = (values[f"{name} latency"] for name in BUILDS)
        scipy = values.get("scipy")
        lines.append([
            f"{values['documents']:,}",
            f"{values['plain']:.1f} s",
            f"{values['reason']:.1f} s",
            f"{values['rra']:.1f} s",
            f"{max(values[f'{step} peak'] for step in MEASURED):.2f} GB",
            f"{1e3 * values['open']:.0f} ms",
            f"{values['plain bytes']:.2f}",
            f"{values['rounded bytes']:.2f}",
            *(f"{1e3 * t:.1f} ms" for t in (*plain, rounded[0], rra[0])),
            f"{1e3 * scipy:.1f} ms" if scipy else "–",
            f"{plain[0] / scipy:.3f} ×" if scipy else "–",
            f"{rounded[0] / scipy:.3f} ×" if scipy else "–",
            f"{values['add']:.1f} s",
            f"{values['verify']:.1f} s",
        ])  # fmt: skip
    return Table("scale", columns, lines)


def plot(results: list[dict[str, Any]], path: Path) -> None:
    """Plot times and memory against the number of documents, both logarithmic."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    x = [values["documents"] for values in results]
    for key, label in (
        ("plain", "build"),
        ("reason", "RRA's passes"),
        ("rra", "build with RRA"),
        ("add", f"add {ADDED:,}"),
        ("verify", "verify"),
    ):
        y = [values[key] for values in results]
        left.loglog(x, y, "o-", label=label)
        right.loglog(x, [values[f"{key} peak"] for values in results], "o-", label=label)
    times = np.array(x) * results[0]["plain"] / x[0]
    left.loglog(x, times, ":", color="gray", label="linear")
    for axes, label in ((left, "seconds"), (right, "peak memory, GB")):
        axes.set(xlabel="documents", ylabel=label)
        axes.grid(True, which="both", alpha=0.2)
        axes.legend()
    figure.savefig(path, dpi=110)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("sizes", type=int, nargs="*", metavar="N", help=f"{SIZES} by default")
    parser.add_argument("--step", choices=STEPS, help="one step alone; for the steps' processes")
    arguments = parser.parse_args()
    if arguments.step:
        values = STEPS[arguments.step](arguments.folder, *arguments.sizes)
        used = {f"{arguments.step} peak": peak_memory(), f"{arguments.step} cpu": process_time()}
        print(json.dumps(values | used))
        return
    results = [measure(arguments.folder, size) for size in arguments.sizes or SIZES]
    shown = table(results)
    print(shown.markdown())
    write_readme([shown])
    plot(results, README.with_name("scale.png"))


if __name__ == "__main__":
    main()
