"""Time of an exact search against the number of documents, with another version and now.

``python -m benchmarks.growth CHECKOUT INDEX COLLECTION DATA``: CHECKOUT is a checkout of the other
version; the collections are those of ``benchmarks.pruning``, INDEX, COLLECTION and DATA as there.
Each version writes its postings to disk, opens them, and answers all queries, one at a time on one
thread, in processes of its own, the versions in turns. Scores are checked to be the same.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time

import numpy as np
import scipy.sparse as sp

from benchmarks.common import README, Table, seconds, write_readme
from benchmarks.pruning import Case, cases, copies
from lexicept.engines.exact import ExactEngine, PostingsWriter
from lexicept.index.reader import IndexReader

PLOT = README.with_name("growth.png")
SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000)
LARGER = {"words, BM25": (10_000_000,)}
"""Further sizes of a collection; drawing as many documents of the others takes half an hour."""
BLOCK = 2**16
"""Documents that are inverted together, about."""
ROUNDS, PASSES, TOP_K = 3, 3, 10
WARM_UP_SECONDS = 3.0
VERSIONS = ("before", "now")


def build(folder: Path, count: int) -> None:
    """Write the postings of so many documents like those of the folder."""
    base = sp.load_npz(folder / "documents.npz")
    passes, left = copies(base), count
    shutil.rmtree(folder / "postings", ignore_errors=True)
    (folder / "postings").mkdir()
    largest = np.ones(base.shape[1], np.float32)  # for weights of 8 bits alone
    with PostingsWriter(largest, 32, folder / "postings") as writer:
        while left:
            own = islice(passes, min(-(-left // base.shape[0]), BLOCK // base.shape[0]))
            block = sp.csr_array(sp.vstack(list(own), format="csr")[:left])
            writer.add(block)
            left -= block.shape[0]
        writer.finish(np.zeros(count))


def answer(folder: Path) -> None:
    """Write the processor ms of each query, and its scores."""
    queries = sp.load_npz(folder / "queries.npz")
    engine = ExactEngine.open(folder / "postings")
    singles = [queries[[row]] for row in range(queries.shape[0])]
    scores = [engine.search(query, TOP_K, threads=1)[0][1] for query in singles]
    # A process's first searches run in NumPy, until loading compiled code has paid.
    until = process_time() + WARM_UP_SECONDS
    while process_time() < until:
        engine.search(queries, TOP_K, threads=1)
    times = [
        [seconds(partial(engine.search, one, TOP_K, threads=1), process_time) for one in singles]
        for _ in range(PASSES)
    ]
    np.savez(
        folder / "answer.npz", ms=1e3 * np.median(times, axis=0), scores=np.concatenate(scores)
    )


def measured(case: Case, count: int, sources: Mapping[str, Path]) -> dict[str, np.ndarray]:
    """Return each version's ms of every query: its median over rounds [queries]."""

    def run(source: Path, *step: str) -> None:
        path = os.pathsep.join([str(source / "src"), str(README.parents[1])])
        command = [sys.executable, "-m", "benchmarks.growth", *step]
        subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=True)

    times: dict[str, list[np.ndarray]] = {name: [] for name in sources}
    scores: list[np.ndarray] = []
    with TemporaryDirectory() as place:
        for name, source in sources.items():
            folder = Path(place, name)
            folder.mkdir()
            sp.save_npz(folder / "documents.npz", case.documents)
            sp.save_npz(folder / "queries.npz", case.queries)
            run(source, "--build", str(folder), str(count))
        for _ in range(ROUNDS):
            for name, source in sources.items():
                run(source, "--answer", str(Path(place, name)))
                with np.load(Path(place, name, "answer.npz")) as found:
                    times[name].append(found["ms"])
                    scores.append(found["scores"])
    for other in scores[1:]:
        np.testing.assert_allclose(other, scores[0], rtol=1e-5)
    return {name: np.median(own, axis=0) for name, own in times.items()}


def sizes(collection: str) -> tuple[int, ...]:
    """Return the numbers of documents that are measured."""
    return SIZES + LARGER.get(collection, ())


def plot(medians: Mapping[str, Mapping[str, Sequence[float]]], path: Path = PLOT) -> None:
    """Plot the median ms of a query against the number of documents, for each collection."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.3 * len(medians), 4), layout="constrained")
    panels = figure.subplots(1, len(medians), squeeze=False)[0]
    for axes, (collection, versions) in zip(panels, medians.items(), strict=True):
        for (name, values), marker in zip(versions.items(), "so", strict=True):
            axes.plot(sizes(collection), values, marker=marker, label=name)
        axes.set(xscale="log", yscale="log", xlabel="documents", ylabel="ms, median of queries")
        axes.set_title(collection, fontsize=10)
        axes.legend()
    figure.savefig(path, dpi=80)


def main() -> None:
    """Run the command line."""
    if sys.argv[1:2] == ["--build"]:
        build(Path(sys.argv[2]), int(sys.argv[3]))
        return
    if sys.argv[1:2] == ["--answer"]:
        answer(Path(sys.argv[2]))
        return
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("index")
    parser.add_argument("collection", type=Path)
    parser.add_argument("data", type=Path)
    arguments = parser.parse_args()
    sources = dict(zip(VERSIONS, (arguments.checkout.resolve(), README.parents[1]), strict=True))
    rows: list[list[str]] = []
    medians: dict[str, dict[str, list[float]]] = {}
    for case in cases(IndexReader.open(arguments.index), arguments.collection, arguments.data):
        own = medians[case.name] = {name: [] for name in VERSIONS}
        for count in sizes(case.name):
            times = measured(case, count, sources)
            for name, ms in times.items():
                own[name].append(float(np.median(ms)))
            shown = [f"{np.median(ms):.3f} / {np.percentile(ms, 99):.2f}" for ms in times.values()]
            ratio = f"{own['now'][-1] / own['before'][-1]:.2f} ×"
            rows.append([case.name, f"{count:,}", *shown, ratio])
            print(" | ".join(rows[-1]), flush=True)
    plot(medians)
    columns = ["median / p99 ms of a query", "documents", *VERSIONS, "now / before, medians"]
    write_readme([Table("growth", columns, rows)])


if __name__ == "__main__":
    main()
