"""One query, from its text to the best ten, in a default index of Python's documentation."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from sentence_transformers import SentenceTransformer

import lexicept
from benchmarks.common import Table, interleaved, ratio
from benchmarks.encoding import DENSE
from lexicept.corpora import read_documents
from lexicept.encoding.light_encoder import packaged_encoder
from lexicept.encoding.sources import DEFAULT_BACKBONE, resolve

WORDS = 8
"""Number of words of a query."""


def run(num_documents: int = 3000, num_queries: int = 150) -> list[Table]:
    """Time a different query each round, the first words of a document."""
    documents = list(islice(read_documents("python-docs"), num_documents))
    long = (words for words in (document.content.split() for document in documents))
    queries = [" ".join(words[:WORDS]) for words in long if len(words) >= WORDS][:num_queries]
    encoder = packaged_encoder()
    windows = {query: encoder.windows([query], "query") for query in queries}
    tokens = sum(len(window.token_ids) for [window] in windows.values()) / len(queries)
    dense = SentenceTransformer(resolve(DEFAULT_BACKBONE), device="cpu")

    def in_turn(work: Callable[[str], object]) -> Callable[[], object]:
        # The call that is not counted has the last one.
        following = cycle([queries[-1], *queries[:-1]])
        return lambda: work(next(following))

    states = "the encoder's states"
    with TemporaryDirectory() as folder:
        index = lexicept.build(documents, Path(folder, "index"))
        ways: dict[str, Callable[[str], object]] = {
            states: lambda query: list(encoder.token_states(windows[query], "query")),
            DENSE: dense.encode,
            "`Index.search`, text → top 10": index.search,
            "words alone": partial(index.search, vocabulary="words"),
        }
        times = interleaved({name: in_turn(work) for name, work in ways.items()}, num_queries)
    lines = [
        [name, f"{1000 * median(took):.2f} ms", f"{ratio(took, times[states]):.2f} ×"]
        for name, took in times.items()
    ]
    title = f"One query of {tokens:.0f} tokens, {len(documents):,} documents"
    return [Table("query", [title, "time", "time / states"], lines)]
