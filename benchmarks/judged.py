"""Judged collections, and what search systems find in them."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np

from benchmarks.start_up import LEXICEPT
from lexicept.corpora import Qrel, Query, read_qrels, read_queries
from lexicept.evaluation import effectiveness
from lexicept.evaluation.runs import Run
from lexicept.index.reader import IndexReader
from lexicept.vectors import Floats

NDCG = "nDCG@10"
SUBJECT = "words and concepts"
RESAMPLES = 10_000


@dataclass(frozen=True)
class Collection:
    """An index, and judged queries of it."""

    name: str
    index: IndexReader
    queries: list[Query]
    qrels: list[Qrel]

    @property
    def texts(self) -> list[str]:
        return [query.text for query in self.queries]


class System(NamedTuple):
    """Effectiveness and cost of a search system."""

    name: str
    ndcg: Mapping[str, float]
    """nDCG@10 by query."""
    qd_flops: float | None = None
    """QD-FLOPs of its concepts alone."""
    document_length: float | None = None

    @classmethod
    def of_run(
        cls,
        name: str,
        qrels: Sequence[Qrel],
        run: Run,
        qd_flops: float | None = None,
        document_length: float | None = None,
    ) -> Self:
        """Evaluate a run."""
        values = effectiveness.evaluate_queries(qrels, run, [NDCG])[NDCG]
        return cls(name, values, qd_flops, document_length)

    @property
    def mean(self) -> float:
        """The mean nDCG@10."""
        return float(np.mean([*self.ndcg.values()]))


def opened(path: str, out: Path, options: Sequence[str], every: int = 1) -> Collection:
    """Open a collection's index, built where it is absent, and its queries."""
    folder, _, split = path.rpartition(":")
    queries = sorted(read_queries(folder, split))[::every]
    kept = {query.id for query in queries}
    qrels = [qrel for qrel in read_qrels(folder, split) if qrel.query_id in kept]
    name = Path(folder).name
    return Collection(name, built(folder, out / f"{name}.index", options), queries, qrels)


def built(folder: str, path: Path, options: Sequence[str]) -> IndexReader:
    """Build an index of a collection, or open it."""
    if not path.exists():
        command = [LEXICEPT, "build", folder, "--out", str(path), *options]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return IndexReader.open(path)


def ahead(ours: System, other: System) -> str:
    """Return the mean difference with its 95 % interval, from means of resampled queries."""
    differences: Floats = np.array([ours.ndcg[query] - other.ndcg[query] for query in ours.ndcg])
    random = np.random.default_rng(0)
    drawn = random.integers(differences.size, size=(RESAMPLES, differences.size), dtype=np.int32)
    low, high = np.percentile(differences[drawn].mean(axis=1), [2.5, 97.5])
    mean, low, high = (decimal(value, 3, "+") for value in (differences.mean(), low, high))
    return f"{mean} [{low}, {high}]"


def decimal(value: float, digits: int, sign: str = "") -> str:
    """Return a number between -1 and 1 without the zero before its point."""
    return f"{value:{sign}.{digits}f}".replace("0.", ".", 1).replace("-", "−")
