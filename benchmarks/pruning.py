"""Exact search with and without pruning, and PISA's MaxScore: a million documents like real ones.

``python -m benchmarks.pruning INDEX COLLECTION DATA [--pisa PYTHON]``

INDEX is an index of the BEIR folder COLLECTION; DATA holds SPLADE-v3's vectors
(``nfcorpus_splade_v3``, ``bert_vocab/vocab.txt``). Their documents come first. Each later pass over
them changes every document: three in ten of its dimensions are replaced by those of random
postings, and every weight is drawn from the dimension's weights. PYTHON is that of an environment
with pyterrier-pisa, which gets the same weights in 255 steps of the largest, those of queries too:
it cuts others off to whole numbers. Its scores are checked.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from benchmarks.common import Table, seconds, write_readme
from lexicept.corpora import read_queries
from lexicept.engines import ExactEngine
from lexicept.index.reader import IndexReader
from lexicept.vectors import prune_rows, row_numbers
from reproduction.vectors import read_vectors

QUERIES, TOP_K, ROUNDS = 200, 10, 3
REPLACED = 0.3
SPLADE_NONZEROS = 120
"""Non-zeros that are left of a document of SPLADE-v3, as in a pruned index."""


class Case(NamedTuple):
    """Documents [n, V] and queries [m, V]."""

    name: str
    documents: sp.csr_array
    queries: sp.csr_array


def cases(index: IndexReader, collection: Path, data: Path) -> Iterator[Case]:
    """Yield words, words and concepts where the index has both, and SPLADE-v3."""
    texts = [query.text for query in read_queries(collection)][:QUERIES]
    documents, queries = index.engine.matrix(), index.query_vectors(texts)
    if len(index.vocabularies) > 1:
        yield Case("words and concepts", documents, queries)
    words = index.span("words")
    yield Case("words, BM25", sp.csr_array(documents[:, words]), sp.csr_array(queries[:, words]))
    vocabulary = data / "bert_vocab" / "vocab.txt"
    _, X, _, Q, _ = read_vectors(data / "nfcorpus_splade_v3", vocabulary, 0.01)
    yield Case("SPLADE-v3", prune_rows(X, SPLADE_NONZEROS), sp.csr_array(Q[:QUERIES]))


def copies(documents: sp.csr_array) -> Iterator[sp.csr_array]:
    """Yield the documents, and then others like them without end: CSR f32 [n, V]."""
    random = np.random.default_rng(0)
    columns = sp.csc_array(documents)
    df = np.diff(columns.indptr)
    rows, size = row_numbers(documents), documents.shape[0]
    yield sp.csr_array(documents.astype(np.float32))
    while True:
        other = documents.indices[random.integers(0, documents.nnz, documents.nnz)]
        chosen = np.where(random.random(documents.nnz) < REPLACED, other, documents.indices)
        cells = np.unique(rows * documents.shape[1] + chosen)  # a dimension comes once
        row, dimension = np.divmod(cells, documents.shape[1])
        place = columns.indptr[dimension] + (random.random(row.size) * df[dimension]).astype(int)
        indptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=size))])
        stored = (columns.data[place].astype(np.float32), dimension.astype(np.int32), indptr)
        yield sp.csr_array(stored, shape=documents.shape)


def multiplied(documents: sp.csr_array, count: int) -> sp.csr_array:
    """Return ``count`` documents like these: CSR f32 [count, V]."""
    parts = islice(copies(documents), -(-count // documents.shape[0]))
    return sp.csr_array(sp.vstack(list(parts), format="csr")[:count])


def processor_seconds(work: Callable[[], object]) -> float:
    """Return the processor time of some work: other processes do not lengthen it."""
    start = time.process_time()
    work()
    return time.process_time() - start


def latencies(engines: list[ExactEngine], queries: sp.csr_array) -> np.ndarray:
    """Return processor ms of one query at a time [engines, rounds × n]; results are checked."""
    singles = [queries[[row]] for row in range(queries.shape[0])]
    for query in singles:
        (numbers, scores), *others = (
            engine.search(query, TOP_K, threads=1)[0] for engine in engines
        )
        for found, own in others:
            np.testing.assert_array_equal(found, numbers)
            np.testing.assert_array_equal(own, scores)
    # One engine after the other, so that none finds a query's postings in the processor's cache.
    times = [
        [
            [
                processor_seconds(partial(engine.search, query, TOP_K, threads=1))
                for query in singles
            ]
            for engine in engines
        ]
        for _ in range(ROUNDS)
    ]
    return 1e3 * np.array(times).transpose(1, 0, 2).reshape(len(engines), -1)


class Unpruned(ExactEngine):
    """Reads all postings of a query."""

    pruned_from = sys.maxsize

    @classmethod
    def of(cls, engine: ExactEngine) -> Unpruned:
        return cls(**{field.name: getattr(engine, field.name) for field in fields(engine)})


def pisa(python: str, engine: ExactEngine, queries: sp.csr_array) -> np.ndarray:
    """Return processor ms of a query with PISA's MaxScore [rounds × n]; scores are checked.

    Weights of documents are 1 to 255 of the largest of all, of queries 1 to 255 of their largest.
    """
    documents, weights = engine.postings(slice(0, engine.num_dimensions))
    impacts = np.maximum(1, np.rint(weights * (255 / engine.largest))).astype(np.uint8)
    largest = queries.max(axis=1).toarray().ravel()[row_numbers(queries)]
    steps = np.maximum(1, np.rint(queries.data * (255 / largest)))
    whole = sp.csr_array((steps, queries.indices, queries.indptr), shape=queries.shape)
    arrays = {"df": engine.df, "documents": documents, "impacts": impacts}
    arrays |= {f"query_{name}": getattr(whole, name) for name in ("indptr", "indices", "data")}
    with TemporaryDirectory() as folder:
        for name, values in arrays.items():
            np.save(Path(folder, f"{name}.npy"), values)
        np.save(Path(folder, "num_documents.npy"), engine.num_documents)
        script = Path(__file__).with_name("pisa.py")
        command = [python, "-P", str(script), folder, str(ROUNDS), str(TOP_K)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    answer = json.loads(done.stdout.splitlines()[-1])
    ends = np.cumsum(engine.df)
    for row, found in enumerate(answer["scores"]):
        scores = np.zeros(engine.num_documents)
        query = whole[[row]]
        for dimension, weight in zip(query.indices, query.data, strict=True):
            own = slice(ends[dimension] - engine.df[dimension], ends[dimension])
            scores[documents[own]] += weight * impacts[own]
        best = np.sort(np.partition(scores, -TOP_K)[-TOP_K:])[::-1]
        np.testing.assert_array_equal(found, best[best > 0])
    return 1e3 * np.ravel(answer["seconds"])


def summary(times: np.ndarray) -> str:
    """Return median, mean and p99."""
    return f"{np.median(times):.2f} / {times.mean():.2f} / {np.percentile(times, 99):.2f}"


def gains_of_threads(engine: ExactEngine, queries: sp.csr_array) -> str:
    """Return how many times as fast two threads are as one: for all queries together, and for the
    median query alone, by the clock."""
    together: dict[int, list[float]] = {1: [], 2: []}
    alone: dict[int, list[list[float]]] = {1: [], 2: []}
    singles = [queries[[row]] for row in range(queries.shape[0])]
    for _ in range(ROUNDS):
        for n in (1, 2):
            together[n].append(seconds(partial(engine.search, queries, TOP_K, threads=n)))
            one_by_one = (partial(engine.search, query, TOP_K, threads=n) for query in singles)
            alone[n].append([seconds(search) for search in one_by_one])
    middle = {n: float(np.median(np.median(times, axis=0))) for n, times in alone.items()}
    return f"{min(together[1]) / min(together[2]):.2f} × / {middle[1] / middle[2]:.2f} ×"


def measure(case: Case, count: int, python: str | None) -> Iterator[list[str]]:
    """Yield the rows of a case."""
    documents = multiplied(case.documents, count)
    for bits in (32, 8):
        engine = ExactEngine.build(documents, weight_bits=bits)
        slow, fast = latencies([Unpruned.of(engine), engine], case.queries)
        cells = [summary(slow), summary(fast), f"{np.median(slow) / np.median(fast):.2f} ×"]
        cells.append(gains_of_threads(engine, case.queries))
        yield [f"{case.name}, {bits} bits", *cells, f"{engine.size / engine.num_postings:.2f}"]
    if python is not None:
        peer = pisa(python, engine, case.queries)
        cells = ["", summary(peer), f"{np.median(peer) / np.median(fast):.2f} × of 8 bits", "", ""]
        yield [f"{case.name}, PISA's MaxScore", *cells]


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pruning", description=__doc__)
    parser.add_argument("index")
    parser.add_argument("collection", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--pisa", metavar="PYTHON")
    arguments = parser.parse_args()
    found = cases(IndexReader.open(arguments.index), arguments.collection, arguments.data)
    rows = [row for case in found for row in measure(case, arguments.documents, arguments.pisa)]
    heading = f"{arguments.documents:,} documents: median / mean / p99 ms of a processor"
    columns = [
        "all postings",
        "pruned",
        "ratio of medians",
        "two threads: all queries / one",
        "bytes / non-zero",
    ]
    table = Table("maxscore", [heading, *columns], rows)
    print(table.markdown())
    write_readme([table])


if __name__ == "__main__":
    main()
