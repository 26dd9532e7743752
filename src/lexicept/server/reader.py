"""The newest generation of an index, opened and warm, and the thread that encodes for it."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TypeVar

from lexicept.index.reader import IndexReader, Steering
from lexicept.index.stored import Hit
from lexicept.server.excerpts import Cards

T = TypeVar("T")

FOLLOW_SECONDS = 1.0
"""Between two looks at whether the index was updated."""

BATCH = 32
"""Queries that are encoded together at most."""

MOST_WAITING = 256
"""Requests that may wait for the thread; more would wait longer than people do."""

logger = logging.getLogger("uvicorn.error")


class BusyError(Exception):
    """Too many requests wait already."""


@dataclass(frozen=True)
class Generation:
    """An opened index, and what is known of its documents already."""

    index: IndexReader
    cards: Cards

    @classmethod
    def of(cls, index: IndexReader) -> Generation:
        return cls(index, Cards(index))


class Search(NamedTuple):
    """Arguments of ``IndexReader.search``."""

    query: str
    top_k: int
    vocabulary: str | None
    steering: Steering | None


@dataclass(frozen=True)
class Waiting:
    """A search that a request waits for."""

    index: IndexReader
    search: Search
    found: asyncio.Future[list[Hit]]


class Reader:
    """Serves searches from one generation of an index, and moves to the next when there is one.

    Args:
        engine: what searches; a generation without it is not moved to.

    Raises:
        InputError: the index has no such engine, or has changed since that was built.
        IndexFormatError: no index, or a damaged one.
    """

    def __init__(self, path: str | os.PathLike[str], engine: str = "exact") -> None:
        self.path = Path(path)
        self._open = partial(IndexReader.open, path, engine=engine)
        self._seen = self._manifest()
        self.generation = Generation.of(self._open())
        """What a request must read once: it is another object after an update."""
        # One thread: tokenizers can't be shared, and torch spreads over the cores by itself.
        self._thread = ThreadPoolExecutor(1, "lexicept")
        self._waiting: list[Waiting] = []
        self._answering: asyncio.Task[None] | None = None
        self._in_line = 0
        """Requests that wait for the thread, or that it is at work for."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Load the models, then follow updates until the block ends."""
        await self._do(partial(warm, self.generation.index))
        following = asyncio.create_task(self._follow())
        try:
            yield
        finally:
            following.cancel()
            self._thread.shutdown(cancel_futures=True)

    async def run(self, work: Callable[[], T]) -> T:
        """Do something for a request in the thread where models are run.

        Raises:
            BusyError: ``MOST_WAITING`` requests wait already.
        """
        with self._place_in_line():
            return await self._do(work)

    async def _do(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def search(self, index: IndexReader, search: Search) -> list[Hit]:
        """``IndexReader.search``, in the thread where it needs a model.

        Searches that arrive while the model is at work are then encoded together.

        Raises:
            BusyError: it needs the thread, and ``MOST_WAITING`` requests wait already.
        """
        if search.vocabulary == "words" or not has_concepts(index):
            return index.search(*search)
        with self._place_in_line():
            waiting = Waiting(index, search, asyncio.get_running_loop().create_future())
            self._waiting.append(waiting)
            if self._answering is None or self._answering.done():
                self._answering = asyncio.create_task(self._answer_waiting())
            return await waiting.found

    @contextmanager
    def _place_in_line(self) -> Iterator[None]:
        if self._in_line >= MOST_WAITING:
            raise BusyError
        self._in_line += 1
        try:
            yield
        finally:
            self._in_line -= 1

    async def _answer_waiting(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:BATCH], self._waiting[BATCH:]
            outcome: Sequence[list[Hit]] | Exception
            try:
                outcome = await self._do(partial(search_together, batch))
            except Exception as error:  # each request has to know
                outcome = error
            for place, waiting in enumerate(batch):
                if waiting.found.done():  # the client is gone
                    continue
                if isinstance(outcome, Exception):
                    waiting.found.set_exception(outcome)
                else:
                    waiting.found.set_result(outcome[place])

    def _manifest(self) -> tuple[int, int] | None:
        """What changes when the manifest is replaced."""
        try:
            found = (self.path / "manifest.json").stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(FOLLOW_SECONDS)
            manifest = self._manifest()
            if manifest == self._seen:
                continue
            self._seen = manifest
            try:
                index = await asyncio.to_thread(self._open)
                await self._do(partial(warm, index))
            except Exception as error:  # the next update must be followed too
                logger.warning("still serving the index as it was: %s", error)
            else:
                self.generation = Generation.of(index)


def has_concepts(index: IndexReader) -> bool:
    """Whether a search of all vocabularies needs a model."""
    return any(vocabulary.name != "words" for vocabulary in index.vocabularies)


def search_together(batch: Sequence[Waiting]) -> list[list[Hit]]:
    """What each search finds; those that differ in their queries only are one batch."""
    alike: dict[object, list[int]] = {}
    for place, waiting in enumerate(batch):
        _, top_k, vocabulary, steering = waiting.search
        factors = None if steering is None else frozenset(steering.items())
        alike.setdefault((waiting.index, top_k, vocabulary, factors), []).append(place)
    found: list[list[Hit]] = [[]] * len(batch)
    for places in alike.values():
        index, (_, top_k, vocabulary, steering) = batch[places[0]].index, batch[places[0]].search
        queries = [batch[place].search.query for place in places]
        vectors = index.query_vectors(queries, vocabulary, steering)
        for place, hits in zip(places, index.search_vectors(vectors, top_k), strict=True):
            found[place] = hits
    return found


def warm(index: IndexReader) -> None:
    """Do what only the first request would wait for: models, compiled code, the map of ids."""
    for document in islice(index.documents(), 1):
        for vocabulary in index.vocabularies:
            index.search(document.content[:200], 1, vocabulary.name)
        index.document_number(document.id)
