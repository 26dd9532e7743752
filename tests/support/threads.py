"""Searches of one index by several threads, compared with those of one thread."""

from __future__ import annotations

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
    return [every[number * 101 % len(every)] for number in range(count)]


def differing(index: lexicept.Index, threads: int, queries: int) -> int:
    """Search in threads at once; return how many results are not one thread's.

    Every eighth search is explained too.

    Args:
        threads: each asks all queries, from another one on.
        queries: the number of queries of each thread.
    """
    asked = open_questions(queries)
    expected = [_ask(index, asked, number) for number in range(queries)]
    together = Barrier(threads)

    def ask(thread: int) -> int:
        together.wait()
        order = [(number + thread * 13) % queries for number in range(queries)]
        return sum(_ask(index, asked, number) != expected[number] for number in order)

    with ThreadPoolExecutor(threads) as pool:
        return sum(pool.map(ask, range(threads)))


def _ask(
    index: lexicept.Index, queries: list[str], number: int
) -> list[tuple[Hit, Explanation | None]]:
    hits = index.search(queries[number], 3, explain=number % 8 == 0)
    return [(hit, hit.explanation) for hit in hits]
