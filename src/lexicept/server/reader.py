"""The newest generation of an index, opened and warm, and the thread of the models."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

from lexicept.engines.mask import Mask
from lexicept.errors import IndexFormatError
from lexicept.index.hits import Hit
from lexicept.index.manifest import manifest_identity, resolved
from lexicept.index.query_encoders import QueryCache
from lexicept.index.reader import IndexReader
from lexicept.index.results import matches_badly
from lexicept.kernels.compiled import call_kernels
from lexicept.queries.syntax import ParsedQuery
from lexicept.server.excerpts import card
from lexicept.server.metrics import BATCHES, CACHE

T = TypeVar("T")

FOLLOW_SECONDS = 1.0
"""Seconds between checks of the index on disk."""

RETRY_SECONDS = 10.0
"""Seconds between attempts to open the same index, which can't be opened."""

BATCH = 32
"""Most queries of one batch."""

GATHER_SECONDS = 0.005
"""Most seconds after a batch in which the next one grows to its size."""

MOST_WAITING = 256
"""Most requests that wait for the threads."""

QUERY_CACHE_MB = 32
"""Memory for queries that the model encoded, in MB: some 14,000 short ones."""

CACHED_CARDS = 8_192
"""Summaries of documents in memory: about 5 MB."""

logger = logging.getLogger("uvicorn.error")


class BusyError(Exception):
    """Raised for a request when the queue is full."""


@dataclass(frozen=True)
class Generation:
    """An opened index."""

    index: IndexReader
    card: Callable[[int], str]
    """``excerpts.card`` of the index, cached."""


class State(NamedTuple):
    """State of the index, in ``/health``."""

    status: Literal["ok", "stale", "damaged"]
    """Stale: the index has changed, but can't be opened as it is now, and the generation before is
    served. Damaged: a file of the served generation was truncated, and requests are refused."""
    reason: str | None = None


@dataclass(frozen=True)
class SearchRequest:
    """A search of an index."""

    index: IndexReader
    query: ParsedQuery
    top_k: int
    vocabulary: str | None
    mask: Mask | None
    """The documents that meet the query's conditions."""
    rescore: bool = True
    """See ``IndexReader.search``."""

    @property
    def needs_model(self) -> bool:
        """True if a model reads the query."""
        return any(
            vocabulary.needs_model
            for vocabulary in self.index.vocabularies
            if self.vocabulary in (None, vocabulary.name)
        )


class Reader:
    """Serves searches from an index, and moves to a new generation after an update. Raises
    IndexFormatError for no index, or a damaged index.

    Args:
        query_cache: bytes of memory for queries that the model encoded; 0 keeps none.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, query_cache: int = QUERY_CACHE_MB * 2**20
    ) -> None:
        self.path = Path(path)
        self._query_cache = query_cache
        self._seen = self._tried = manifest_identity(self.path)
        """The manifest of the generation that is served, and the one that was tried last."""
        self.served = self._open()
        self.state = State("ok")
        self._retry_at = 0.0
        # One thread: torch spreads over the cores by itself.
        self._thread = ThreadPoolExecutor(1, "lexicept")
        self._queue: list[tuple[SearchRequest, asyncio.Future[list[Hit]]]] = []
        self._answering: asyncio.Task[None] | None = None
        self._in_line = 0
        """Requests that wait for a thread, or that one is at work for."""

    def _open(self) -> Generation:
        index = IndexReader.open(self.path)
        if self._query_cache and "concepts" in index.encoders:
            index.encoders["concepts"].cache = QueryCache(self._query_cache)
        return Generation(index, lru_cache(CACHED_CARDS)(partial(card, index)))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Load the models, then follow updates until the block ends. Searches in the queue at
        the end are answered."""
        await asyncio.to_thread(warm, self.served.index)
        following = asyncio.create_task(self._follow())
        try:
            yield
        finally:
            following.cancel()
            if self._answering is not None:
                await self._answering
            self._thread.shutdown(cancel_futures=True)

    @property
    def generation(self) -> Generation:
        """The generation in service. A request reads this property once: an update replaces it.
        Raises IndexFormatError if a file of the generation was truncated."""
        if self.state.status == "damaged":
            raise IndexFormatError(f"{self.path}: {self.state.reason}")
        return self.served

    def reason(self, error: Exception) -> str:
        """Return an error's message without the index's path on this machine."""
        text = str(error) or type(error).__name__
        for path in (self.path, resolved(self.path)):
            text = text.replace(f"{path}: ", "").replace(f"{path}/", "")
        return text

    async def run(self, work: Callable[[], T]) -> T:
        """Call a function in the models' thread. Raises BusyError if ``MOST_WAITING`` requests
        are waiting."""
        with self._place_in_line():
            return await self._with_models(work)

    async def read(self, work: Callable[[], T]) -> T:
        """Call a function that reads documents in another thread, where it does not wait for a
        batch of queries; see ``run``."""
        with self._place_in_line():
            return await asyncio.to_thread(work)

    async def search(self, request: SearchRequest) -> list[Hit]:
        """Return the results of a search; a search by a model runs in the models' thread; see
        ``run``. Searches that arrive while the model is busy are encoded together afterwards. A
        search that finds the model idle does not wait."""
        if not request.needs_model or self._is_cached(request):
            return search_together([request])[0]
        with self._place_in_line():
            hits: asyncio.Future[list[Hit]] = asyncio.get_running_loop().create_future()
            self._queue.append((request, hits))
            if self._answering is None or self._answering.done():
                self._answering = asyncio.create_task(self._answer_queue())
            return await hits

    async def _with_models(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _is_cached(self, request: SearchRequest) -> bool:
        """Return True if the cache has a query, from now on the last to be dropped."""
        encoder = request.index.encoders.get("concepts")
        if encoder is None or encoder.cache is None:
            return False
        cached = encoder.cache.get(request.query.text) is not None
        CACHE.labels("hit" if cached else "miss").inc()
        return cached

    @contextmanager
    def _place_in_line(self) -> Iterator[None]:
        if self._in_line >= MOST_WAITING:
            raise BusyError
        self._in_line += 1
        try:
            yield
        finally:
            self._in_line -= 1

    async def _answer_queue(self) -> None:
        while self._queue:
            # The future of a request whose client is gone was cancelled.
            queue = [queued for queued in self._queue if not queued[1].done()]
            batch, self._queue = queue[:BATCH], queue[BATCH:]
            if not batch:
                return
            BATCHES.observe(len(batch))
            requests = [request for request, _ in batch]
            answers: Sequence[list[Hit] | Exception]
            try:
                answers = await self._with_models(partial(answer_together, requests))
            except Exception as error:  # each request has to know
                answers = [error] * len(batch)
            for (_, hits), answer in zip(batch, answers, strict=True):
                if hits.done():
                    continue
                if isinstance(answer, Exception):
                    hits.set_exception(answer)
                else:
                    hits.set_result(answer)
            await self._gather(len(batch))

    async def _gather(self, answered: int) -> None:
        """Wait after a batch until the clients ask again, for another batch. Otherwise the first
        query would be encoded alone, while the rest waits."""
        loop = asyncio.get_running_loop()
        end = loop.time() + GATHER_SECONDS
        while 1 < answered > len(self._queue) and loop.time() < end:
            await asyncio.sleep(GATHER_SECONDS / 10)

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(FOLLOW_SECONDS)
            try:
                await self.check()
            except Exception as error:  # as when no thread can be started
                self._become(State("stale", self.reason(error)))

    async def check(self) -> None:
        """Serve the newest generation, or report why the generation can't be opened."""
        manifest = await asyncio.to_thread(manifest_identity, self.path)
        lost = await asyncio.to_thread(truncated, self.served.index)
        if lost is not None:
            self._become(State("damaged", lost))
        elif manifest == self._seen and self.state.status != "damaged":
            self._become(State("ok"))
            return
        now = asyncio.get_running_loop().time()
        if manifest == self._tried and now < self._retry_at:
            return
        self._tried = manifest
        try:
            self.served = await self._load()
        except Exception as error:  # the next update must be followed too
            self._retry_at = now + RETRY_SECONDS
            if self.state.status != "damaged":
                self._become(State("stale", self.reason(error)))
        else:
            self._seen = manifest
            self._become(State("ok"))

    async def _load(self) -> Generation:
        """Return the newest generation, with all loaded models that are unchanged."""
        newest = await asyncio.to_thread(self._open)
        newest.index.adopt(self.served.index)
        await self._with_models(partial(warm, newest.index))
        return newest

    def _become(self, state: State) -> None:
        """Change the state and log the change, once."""
        if state != self.state:
            if state.status == "stale":
                logger.warning("still serving the index as it was: %s", state.reason)
            elif state.status == "damaged":
                logger.error("refusing requests, the index is damaged: %s", state.reason)
            else:
                logger.info("serving generation %s", self.served.index.folder.name)
        self.state = state


def truncated(index: IndexReader) -> str | None:
    """Return a message about a file of an open index that has become shorter, or None. The
    system ends a process that reads a mapped file beyond the end. Mapped files stay readable
    after removal."""
    for name, entry in index.manifest["files"].items():
        try:
            size = os.stat(index.path / name).st_size
        except OSError:
            continue
        if size < entry["size"]:
            return f"{name} has {size} bytes instead of {entry['size']}"
    return None


def answer_together(requests: Sequence[SearchRequest]) -> list[list[Hit] | Exception]:
    """Return the results of each search, or the search's own error."""
    try:
        return [*search_together(requests)]
    except Exception as error:
        if len(requests) == 1:
            return [error]
        # Only alone does a query show whether the error is its own.
        return [answer for request in requests for answer in answer_together([request])]


def search_together(requests: Sequence[SearchRequest]) -> list[list[Hit]]:
    """Return the results of searches; queries of equal settings are encoded together."""
    groups: dict[object, list[int]] = {}
    for position, request in enumerate(requests):
        settings = (id(request.index), request.vocabulary, request.top_k, request.rescore)
        groups.setdefault(settings, []).append(position)
    answers: list[list[Hit]] = [[]] * len(requests)
    for positions in groups.values():
        together = [requests[position] for position in positions]
        first = together[0]
        queries = [request.query for request in together]
        weighted = first.index.weigh(queries, first.vocabulary, rescore=first.rescore)
        masks = [request.mask for request in together]
        hits = first.index.rank(weighted, first.top_k, queries, masks)
        for position, hits_of_query in zip(positions, hits, strict=True):
            answers[position] = hits_of_query
    return answers


def warm(index: IndexReader) -> None:
    """Load models, compile code and read the ids before the first request."""
    call_kernels()
    for document in islice(index.documents(), 1):
        text = ParsedQuery(document.content[:200])
        for vocabulary in index.vocabularies:
            index.search([text], 1, vocabulary.name)
        matches_badly(index, text, index.search([text])[0])
        index.explain(text, document.id)
        index.masks.counts(list(index.fields.types)[:1], index.matching(text), 1)
