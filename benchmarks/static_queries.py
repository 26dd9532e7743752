"""Queries by the static encoder: ``python -m benchmarks.static_queries INDEX DATA/cacm``.

The index is opened once; each judged query of the data is searched in turn by its words, and in all
vocabularies by the static encoder and by the model.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from itertools import cycle
from statistics import median
from typing import Any

import lexicept
from benchmarks.common import Table, interleaved, ratio
from lexicept.pipelines.opened import read_judged

ROUNDS = 5
"""Times that every query is searched."""

WAYS: dict[str, dict[str, Any]] = {
    "words": {"vocabulary": "words"},
    "all, static": {"query_encoder": "static"},
    "all, model": {"query_encoder": "model"},
}


def main() -> None:
    """Run the command line."""
    prog = "python -m benchmarks.static_queries"
    parser = argparse.ArgumentParser(prog=prog, description=__doc__)
    parser.add_argument("index")
    parser.add_argument("data", help="BEIR folder")
    parser.add_argument("--split", default="test")
    arguments = parser.parse_args()
    print(measured(arguments.index, arguments.data, arguments.split).markdown())


def measured(path: str, data: str, split: str) -> Table:
    """Return the time of a search in each way, and its ratio to that of words."""
    index = lexicept.open(path)
    queries = [query.text for query in read_judged(index.reader, data, split)[0]]
    cases = {name: _in_turn(index, queries, options) for name, options in WAYS.items()}
    times = interleaved(cases, ROUNDS * len(queries))
    rows = [
        [name, f"{1000 * median(took):.2f} ms", f"{ratio(took, times['words']):.2f} ×"]
        for name, took in times.items()
    ]
    title = f"{len(index):,} documents, {len(queries)} queries"
    return Table("static_queries", [title, "time", "time / words"], rows)


def _in_turn(
    index: lexicept.Index, queries: list[str], options: dict[str, Any]
) -> Callable[[], object]:
    """Return a function whose calls search one query after the other."""
    following = cycle([queries[-1], *queries[:-1]])  # the call that is not counted has the last one
    return lambda: index.search(next(following), **options)


if __name__ == "__main__":
    main()
