"""Time of an exact search against the number of documents, with another version and now.

``python -m benchmarks.growth CHECKOUT INDEX COLLECTION DATA``: CHECKOUT is a checkout of the other
version; the collections are those of ``benchmarks.pruning``, INDEX, COLLECTION and DATA as there.
Each version builds its postings and answers all queries, one at a time on one thread, in a process
of its own, the versions in turns. Scores are checked to be the same.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time

import numpy as np
import scipy.sparse as sp

from benchmarks.common import README, Table, seconds, write_readme
from lexicept.engines import ExactEngine

PLOT = README.with_name("growth.png")
SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000)
ROUNDS, PASSES, TOP_K = 3, 3, 10
WARM_UP_SECONDS = 3.0
VERSIONS = ("before", "now")


def answer(folder: Path, count: int) -> None:
    """Write the processor ms of each query among the first documents, and its scores."""
    documents, queries = (sp.load_npz(folder / f"{name}.npz") for name in ("documents", "queries"))
    engine = ExactEngine.build(documents[:count])
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


def measured(folder: Path, count: int, sources: Mapping[str, Path]) -> dict[str, np.ndarray]:
    """Return each version's ms of every query: its median over rounds [queries]."""
    times: dict[str, list[np.ndarray]] = {name: [] for name in sources}
    scores: list[np.ndarray] = []
    for _ in range(ROUNDS):
        for name, source in sources.items():
            path = os.pathsep.join([str(source / "src"), str(README.parents[1])])
            command = [sys.executable, "-m", "benchmarks.growth", "--one", str(folder), str(count)]
            subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=True)
            with np.load(folder / "answer.npz") as found:
                times[name].append(found["ms"])
                scores.append(found["scores"])
    for other in scores[1:]:
        np.testing.assert_allclose(other, scores[0], rtol=1e-5)
    return {name: np.median(own, axis=0) for name, own in times.items()}


def plot(medians: Mapping[str, Mapping[str, Sequence[float]]], path: Path = PLOT) -> None:
    """Plot the median ms of a query against the number of documents, for each collection."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.3 * len(medians), 4), layout="constrained")
    panels = figure.subplots(1, len(medians), squeeze=False)[0]
    for axes, (collection, versions) in zip(panels, medians.items(), strict=True):
        for (name, values), marker in zip(versions.items(), "so", strict=True):
            axes.plot(SIZES, values, marker=marker, label=name)
        axes.set(xscale="log", yscale="log", xlabel="documents", ylabel="ms, median of queries")
        axes.set_title(collection, fontsize=10)
        axes.legend()
    figure.savefig(path, dpi=80)


def main() -> None:
    """Run the command line."""
    if sys.argv[1:2] == ["--one"]:  # the other version lacks the imports below
        answer(Path(sys.argv[2]), int(sys.argv[3]))
        return
    from benchmarks.pruning import cases, multiplied
    from lexicept.index.reader import IndexReader

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
        with TemporaryDirectory() as folder:
            documents = multiplied(case.documents, SIZES[-1])
            sp.save_npz(Path(folder, "documents.npz"), documents, compressed=False)
            sp.save_npz(Path(folder, "queries.npz"), case.queries, compressed=False)
            del documents
            for count in SIZES:
                times = measured(Path(folder), count, sources)
                for name, ms in times.items():
                    own[name].append(float(np.median(ms)))
                shown = [
                    f"{np.median(ms):.3f} / {np.percentile(ms, 99):.2f}" for ms in times.values()
                ]
                ratio = f"{own['now'][-1] / own['before'][-1]:.2f} ×"
                rows.append([case.name, f"{count:,}", *shown, ratio])
                print(" | ".join(rows[-1]), flush=True)
    plot(medians)
    columns = ["median / p99 ms of a query", "documents", *VERSIONS, "now / before, medians"]
    write_readme([Table("growth", columns, rows)])


if __name__ == "__main__":
    main()
