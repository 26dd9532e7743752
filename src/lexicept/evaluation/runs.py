"""TREC runs: the results of a system for each query."""

from __future__ import annotations

import gzip
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path

from lexicept.corpora.lines import read_lines
from lexicept.index.hits import Hit
from lexicept.storage.files import replace_file
from lexicept.vectors import Floats, Integers

Run = Mapping[str, Mapping[str, float]]
"""Query id → document id → score."""

RUN_DEPTH = 1000
"""Number of documents per query in the run of an index."""


def run_of_rows(
    query_ids: Sequence[str],
    rankings: Iterable[tuple[Integers, Floats]],
    document_ids: Sequence[str],
) -> dict[str, dict[str, float]]:
    """Return the run of the rankings of an engine: document numbers and scores of each query, which
    ``document_ids`` [N] name."""
    return {
        query: {
            document_ids[number]: score
            for number, score in zip(numbers.tolist(), scores.tolist(), strict=True)
        }
        for query, (numbers, scores) in zip(query_ids, rankings, strict=True)
    }


def run_of_hits(
    query_ids: Sequence[str], results: Iterable[Iterable[Hit]]
) -> dict[str, dict[str, float]]:
    """Return the run of an index's results: the hits of each query [n]."""
    return {
        query: {hit.id: hit.score for hit in hits}
        for query, hits in zip(query_ids, results, strict=True)
    }


def without_identical_ids(run: Run, depth: int | None = None) -> dict[str, dict[str, float]]:
    """Return a run without hits that have the id of the query, the first ``depth`` of each query:
    BEIR's ``ignore_identical_ids`` (Thakur et al. 2021), for collections with documents as queries,
    such as ArguAna and Quora."""
    return {
        query: dict(islice(((id_, s) for id_, s in documents.items() if id_ != query), depth))
        for query, documents in run.items()
    }


def write_run(path: str | os.PathLike[str], run: Run, tag: str = "lexicept") -> None:
    """Write a TREC run: ``query Q0 document rank score tag``, best first, atomically; gzipped if
    the name ends in .gz. White space in the tag becomes underscores."""
    lines = []
    name = "_".join(tag.split()) or "lexicept"
    for query, documents in run.items():
        ranked = sorted(documents.items(), key=lambda item: -item[1])
        for rank, (document, score) in enumerate(ranked, 1):
            lines.append(f"{query} Q0 {document} {rank} {score:.9g} {name}\n")
    content = "".join(lines).encode()
    if os.fspath(path).lower().endswith(".gz"):
        # The same run is the same file: gzip would write the time.
        content = gzip.compress(content, mtime=0)
    replace_file(Path(path), content)


def read_run(path: str | os.PathLike[str]) -> dict[str, dict[str, float]]:
    """Read a TREC run, gzipped if the name ends in .gz. Raises InputError if the file can't be
    read, or a line, named in the message, does not have six columns, has a score that is no finite
    number, or repeats a document of the query."""
    run: dict[str, dict[str, float]] = {}
    for location, line in read_lines(os.fspath(path)):
        columns = line.split()
        if len(columns) != 6:
            raise location.error(f"{len(columns)} columns, a run has 6")
        query, _, document, _, score, _ = columns
        try:
            value = float(score)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise location.error(f"score {score!r} is not a finite number")
        if document in run.setdefault(query, {}):
            raise location.error(f"{document!r} again for query {query!r}")
        run[query][document] = value
    return run
