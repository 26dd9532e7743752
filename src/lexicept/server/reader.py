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
from typing import Literal, NamedTuple, TypeVar

from lexicept.engines.mask import Mask
from lexicept.errors import IndexFormatError
from lexicept.index.manifest import manifest_identity, resolved
from lexicept.index.queries import Steering
from lexicept.index.reader import IndexReader
from lexicept.index.stored import Hit
from lexicept.queries.syntax import ParsedQuery
from lexicept.server.excerpts import Cards

T = TypeVar("T")

FOLLOW_SECONDS = 1.0
"""Seconds between checks of the index on disk."""

MOST_SECONDS = 60.0
"""Most seconds between attempts to open an index that can't be opened."""

BATCH = 32
"""Most queries of one batch."""

MOST_WAITING = 256
"""Most requests that wait for the thread."""

logger = logging.getLogger("uvicorn.error")


class BusyError(Exception):
    """The queue of requests is full."""


@dataclass(frozen=True)
class Generation:
    """An opened index with its cached summaries."""

    index: IndexReader
    cards: Cards

    @classmethod
    def of(cls, index: IndexReader) -> Generation:
        return cls(index, Cards(index))


class State(NamedTuple):
    """State of the index, as ``/health`` reports it."""

    status: Literal["ok", "stale", "damaged"]
    """Stale: the index has changed, but can't be opened as it is now, and the generation before is
    served. Damaged: a file of the served generation was truncated, and requests are refused."""
    reason: str | None = None


class Search(NamedTuple):
    """A search of an index."""

    query: ParsedQuery
    top_k: int
    vocabulary: str | None
    steering: Steering | None
    mask: Mask | None = None
    """The documents that meet the query's conditions and the filter."""

    def run(self, index: IndexReader) -> list[Hit]:
        """Return the results."""
        query, top_k, vocabulary, steering, mask = self
        vectors = index.query_vectors([query], vocabulary, steering)
        return index.search_parsed([query], vectors, top_k, mask=mask)[0]


@dataclass(frozen=True)
class Waiting:
    """A search with the future of its result."""

    index: IndexReader
    search: Search
    answer: asyncio.Future[list[Hit]]


class Reader:
    """Serves searches from an index, and moves to a new generation when it is updated.

    Args:
        engine: the name of the engine; generations without it are ignored.
        query_encoder: model or lookup; generations without a token table are ignored by the latter.

    Raises:
        InputError: the index has no such engine or encoder of queries, or has changed since the
            engine was built.
        IndexFormatError: no index, or a damaged one.
    """

    def __init__(
        self, path: str | os.PathLike[str], engine: str = "exact", query_encoder: str = "model"
    ) -> None:
        self.path = Path(path)
        self._engine, self._query_encoder = engine, query_encoder
        self._seen = self._tried = manifest_identity(self.path)
        """The manifest of the generation that is served, and the one that was tried last."""
        self.served = Generation.of(self._open())
        self.state = State("ok")
        self._wait = self._retry_at = 0.0
        # One thread: torch spreads over the cores by itself.
        self._thread = ThreadPoolExecutor(1, "lexicept")
        self._waiting: list[Waiting] = []
        self._answering: asyncio.Task[None] | None = None
        self._in_line = 0
        """Requests that wait for the thread, or that it is at work for."""

    def _open(self) -> IndexReader:
        return IndexReader.open(self.path, engine=self._engine).using(self._query_encoder)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Load the models, then follow updates until the block ends."""
        await self._do(partial(warm, self.served.index))
        following = asyncio.create_task(self._follow())
        try:
            yield
        finally:
            following.cancel()
            self._thread.shutdown(cancel_futures=True)

    @property
    def generation(self) -> Generation:
        """The generation that is served. A request reads it once: an update replaces it.

        Raises:
            IndexFormatError: a file of it was truncated.
        """
        if self.state.status == "damaged":
            raise IndexFormatError(f"{self.path}: {self.state.reason}")
        return self.served

    def reason(self, error: Exception) -> str:
        """Return what an error says, without the index's place on this machine."""
        text = str(error) or type(error).__name__
        for place in (self.path, resolved(self.path)):
            text = text.replace(f"{place}: ", "").replace(f"{place}/", "")
        return text

    async def run(self, work: Callable[[], T]) -> T:
        """Call a function in the thread that runs models.

        Raises:
            BusyError: ``MOST_WAITING`` requests are waiting.
        """
        with self._place_in_line():
            return await self._do(work)

    async def _do(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def search(self, index: IndexReader, search: Search) -> list[Hit]:
        """``IndexReader.search``, in the thread where it needs a model.

        Searches that arrive while the model is at work are then encoded together.

        Raises:
            BusyError: it needs the thread, and ``MOST_WAITING`` requests are waiting.
        """
        if search.vocabulary == "words" or not needs_model(index):
            return search.run(index)
        with self._place_in_line():
            waiting = Waiting(index, search, asyncio.get_running_loop().create_future())
            self._waiting.append(waiting)
            if self._answering is None or self._answering.done():
                self._answering = asyncio.create_task(self._answer_waiting())
            return await waiting.answer

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
                if waiting.answer.done():  # the client is gone
                    continue
                if isinstance(outcome, Exception):
                    waiting.answer.set_exception(outcome)
                else:
                    waiting.answer.set_result(outcome[place])

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(FOLLOW_SECONDS)
            try:
                await self.check()
            except Exception as error:  # as when no thread can be started
                self._become(State("stale", self.reason(error)))

    async def check(self) -> None:
        """Serve the newest generation where it can be opened, and say so where it can't."""
        manifest = await asyncio.to_thread(manifest_identity, self.path)
        lost = await asyncio.to_thread(truncated, self.served.index)
        if lost is not None:
            self._become(State("damaged", lost))
        elif manifest == self._seen and self.state.status != "damaged":
            self._become(State("ok"))
            return
        now = asyncio.get_running_loop().time()
        if manifest != self._tried:
            self._wait = 0.0
        elif now < self._retry_at:
            return
        self._tried = manifest
        try:
            self.served = Generation.of(await self._load())
        except Exception as error:  # the next update must be followed too
            self._wait = min(max(FOLLOW_SECONDS, 2 * self._wait), MOST_SECONDS)
            self._retry_at = now + self._wait
            if self.state.status != "damaged":
                self._become(State("stale", self.reason(error)))
        else:
            self._seen = manifest
            self._become(State("ok"))

    async def _load(self) -> IndexReader:
        """Return the newest generation, with the models that are loaded and still its own."""
        index = await asyncio.to_thread(self._open)
        index.adopt(self.served.index)
        await self._do(partial(warm, index))
        return index

    def _become(self, state: State) -> None:
        """Change the state and log it, once."""
        if state != self.state:
            if state.status == "stale":
                logger.warning("still serving the index as it was: %s", state.reason)
            elif state.status == "damaged":
                logger.error("refusing requests, the index is damaged: %s", state.reason)
            else:
                logger.info("serving generation %s", self.served.index.folder.name)
        self.state = state


def truncated(index: IndexReader) -> str | None:
    """Return which file of an open index has lost bytes, if any: the system ends a process that
    reads a mapped file behind its end. What is mapped outlasts files that are removed."""
    for name, entry in index.manifest["files"].items():
        try:
            size = os.stat(index.path / name).st_size
        except OSError:
            continue
        if size < entry["size"]:
            return f"{name} has {size} bytes instead of {entry['size']}"
    return None


def needs_model(index: IndexReader) -> bool:
    """Return whether a search of the index needs a model: it has concepts, not looked up."""
    concepts = any(vocabulary.name != "words" for vocabulary in index.vocabularies)
    return concepts and index.query_encoder == "model"


def search_together(batch: Sequence[Waiting]) -> list[list[Hit]]:
    """Return the results of each search; searches that differ only in their query are one batch."""
    alike: dict[object, list[int]] = {}
    for place, waiting in enumerate(batch):
        query, *others, steering, mask = waiting.search
        factors = None if steering is None else frozenset(steering.items())
        conditions = (query.conditions, id(mask))  # the same filter has the same mask
        alike.setdefault((waiting.index, *others, factors, conditions), []).append(place)
    answers: list[list[Hit]] = [[]] * len(batch)
    for places in alike.values():
        first = batch[places[0]]
        index, (_, top_k, vocabulary, steering, mask) = first.index, first.search
        queries = [batch[place].search.query for place in places]
        vectors = index.query_vectors(queries, vocabulary, steering)
        rankings = index.search_parsed(queries, vectors, top_k, mask=mask)
        for place, hits in zip(places, rankings, strict=True):
            answers[place] = hits
    return answers


def warm(index: IndexReader) -> None:
    """Load models, compile code and read the ids before the first request."""
    for document in islice(index.documents(), 1):
        for vocabulary in index.vocabularies:
            index.search(document.content[:200], 1, vocabulary.name)
        index.document_rows(document.id)
