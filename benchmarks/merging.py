"""What is left to the process that merges where words are counted and segments inverted elsewhere.

``python -m benchmarks.merging [DOCUMENTS]``. The parts are made and pickled first, as they would
come from another machine; reading them is part of merging.
"""

from __future__ import annotations

import pickle
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.collections import zipf_blocks
from benchmarks.common import Table, interleaved, ratio
from lexicept.corpora import read_documents
from lexicept.encoding.words import WordVectorizer
from lexicept.engines import ExactEngine
from lexicept.engines.inverted import PostingsWriter
from lexicept.index.impacts import VocabularySettings, weigher_of, write_segments
from lexicept.index.term_frequencies import SHARD
from lexicept.kernels.posting_lists import SEGMENT
from lexicept.parallel.shards import shards_of
from lexicept.storage.arrays import CSRWriter, StoredRows
from lexicept.weighting import BM25

DIMENSIONS, NONZEROS = 65_536, 116
ROUNDS = 9


def run(num_documents: int = 2 * SEGMENT) -> list[Table]:
    """Time both steps, whole and merging alone, in processor time."""
    with TemporaryDirectory() as folder:
        texts = [document.content for document in read_documents("python-docs")]
        lines = [
            _row(f"counting the words of {len(texts):,} documents", *_counting(texts)),
            _row(f"weights and postings of {num_documents:,}", *_inverting(folder, num_documents)),
        ]
    return [Table("merging", ["", "one process", "merging alone", "share"], lines)]


def _row(name: str, whole: Callable[[], object], merge: Callable[[], object]) -> list[str]:
    times = interleaved({"whole": whole, "merge": merge}, ROUNDS, time.process_time)
    middle = [f"{median(took):.2f} s" for took in times.values()]
    return [name, *middle, f"{ratio(times['merge'], times['whole']):.1%}"]


def _counting(texts: list[str]) -> tuple[Callable[[], object], Callable[[], object]]:
    blocks = [texts[start : start + SHARD] for start in range(0, len(texts), SHARD)]
    count = WordVectorizer().part_counter()
    sent = [pickle.dumps(count(block)) for block in blocks]

    def whole() -> None:
        words = WordVectorizer()
        for block in blocks:
            words.documents(block)

    def merge() -> None:
        words = WordVectorizer()
        for message in sent:
            words.join(pickle.loads(message))

    return whole, merge


def _inverting(folder: str, documents: int) -> tuple[Callable[[], object], Callable[[], object]]:
    with CSRWriter(Path(folder, "tf")) as writer:
        for block in zipf_blocks(documents, DIMENSIONS, NONZEROS, seed=0):
            writer.append(block)
    tf = StoredRows(Path(folder, "tf"), DIMENSIONS)
    shards = shards_of([tf])
    weigher = weigher_of(shards, [VocabularySettings(BM25())])
    new = partial(PostingsWriter, np.zeros(DIMENSIONS))
    offsets = np.zeros(documents)
    sent = [
        pickle.dumps(
            weigher.invert(shards_of([tf[start : start + SEGMENT]]), new().scales, new().kind)
        )
        for start in range(0, documents, SEGMENT)
    ]

    def write(number: list[int], add: Callable[[PostingsWriter], None]) -> None:
        path = Path(folder, f"postings-{number.pop()}")
        path.mkdir()
        with new(folder=path) as postings:
            add(postings)
            ExactEngine.of(postings, offsets)

    def add_weights(postings: PostingsWriter) -> None:
        for _ in write_segments(postings, weigher, [tf]):
            pass

    def add_segments(postings: PostingsWriter) -> None:
        for message in sent:
            counts = pickle.loads(message)
            postings.add(counts.groups, counts.scales.size)

    file_numbers = list(range(4 * (ROUNDS + 1)))
    return partial(write, file_numbers, add_weights), partial(write, file_numbers, add_segments)


if __name__ == "__main__":
    for table in run(*map(int, sys.argv[1:])):
        print(table.markdown())
