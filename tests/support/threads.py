"""Searches of one index by several threads, compared with one thread."""

from concurrent.futures import ThreadPoolExecutor
from itertools import product
from threading import Barrier

import lexicept
from lexicept.explanation.explanation import Explanation
from lexicept.index.hits import Hit

SUBJECTS = ("cats", "banks", "rivers", "springs", "paths", "lists", "flowers", "coils", "pets")
VERBS = ("sleep", "lend", "flow", "expand", "join", "sort", "bloom", "cost", "bark", "end", "sing")
PLACES = ("", "at night", "on a deposit", "in n log n", "of metal", "by the sofa", "long " * 60)


def open_questions(count: int) -> list[str]:
    """Return ``count`` queries of a few words to many, repeated after 693."""
    every = [" ".join(words).strip() for words in product(PLACES, VERBS, SUBJECTS)]
    return [every[i * 101 % len(every)] for i in range(count)]


def differing(index: lexicept.Index, threads: int, queries: int) -> int:
    """Search in threads at once; return how many results are not one thread's.

    Every eighth search is explained too.

    Args:
        threads: each asks all queries, from another one on.
        queries: the number of queries of each thread.
    """
    questions = open_questions(queries)
    expected = [_ask(index, questions, i) for i in range(queries)]
    together = Barrier(threads)

    def ask(thread: int) -> int:
        together.wait()
        order = [(i + thread * 13) % queries for i in range(queries)]
        return sum(_ask(index, questions, i) != expected[i] for i in order)

    with ThreadPoolExecutor(threads) as pool:
        return sum(pool.map(ask, range(threads)))


def _ask(index: lexicept.Index, queries: list[str], i: int) -> list[tuple[Hit, Explanation | None]]:
    hits = index.search(queries[i], 3, explain=i % 8 == 0)
    return [(hit, hit.explanation) for hit in hits]
