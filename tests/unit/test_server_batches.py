"""Searches that wait for the model together, and searches with a query encoded before."""

import asyncio
import shutil
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from fastapi.testclient import TestClient

import lexicept
from lexicept.corpora import Document
from lexicept.index import updates
from lexicept.index.query_encoders import VocabularyEncoder
from lexicept.index.reader import IndexReader
from lexicept.queries.syntax import ParsedQuery
from lexicept.server import reader
from lexicept.server.app import create_app, from_environment
from lexicept.server.metrics import REGISTRY
from lexicept.server.reader import Reader, SearchRequest
from support.served import serving

BASE = "http://127.0.0.1"
QUERIES = ["bade kilo", "muki", "bade", "kilo muki bade"]


def wanted(index: IndexReader, query: str, **steering: float) -> SearchRequest:
    factors = {("words", int(name[1:])): factor for name, factor in steering.items()}
    return SearchRequest(index, ParsedQuery(query, steering=factors), 3, None, None)


class Model:
    """Requests to the model, which can be held up."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.batches: list[list[str]] = []
        self.free = threading.Event()
        self.free.set()
        self.fails_on = "\0"
        encode = VocabularyEncoder._encoded

        def watched(own: VocabularyEncoder, texts: list[str]) -> Any:
            assert self.free.wait(30)
            self.batches.append(list(texts))
            if self.fails_on in texts:
                raise ValueError("a bad query")
            return encode(own, texts)

        monkeypatch.setattr(VocabularyEncoder, "_encoded", watched)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Encode nothing in the block."""
        self.free.clear()
        try:
            yield
        finally:
            self.free.set()


@pytest.fixture
def model(monkeypatch):
    monkeypatch.setattr(reader, "warm", lambda _: None)
    return Model(monkeypatch)


@asynccontextmanager
async def one_at_work(path: Path, model: Model, **options: Any) -> AsyncIterator[Reader]:
    """Yield a reader whose model is at work on the query "first"."""
    served = Reader(path, **options)
    async with served.running():
        with model.held():
            top = asyncio.create_task(served.search(wanted(served.served.index, "first")))
            await asyncio.sleep(0.05)
            yield served
        await top


def asked(served: Reader, query: str, **steering: float) -> asyncio.Task[Any]:
    return asyncio.create_task(served.search(wanted(served.served.index, query, **steering)))


def test_what_arrives_while_the_model_works_is_one_batch(served_index, model):
    async def run():
        async with one_at_work(served_index, model, query_cache=0) as served:
            tasks = [asked(served, query, w1=0.5) for query in QUERIES]
            tasks.append(asked(served, "bade"))
            await asyncio.sleep(0)
        await asyncio.gather(*tasks)
        assert model.batches == [["first"], [*QUERIES, "bade"]]

    asyncio.run(run())


def test_an_error_is_that_of_its_query_alone(served_index, model):
    async def run():
        async with one_at_work(served_index, model) as served:
            model.fails_on = "muki"
            tasks = [asked(served, query) for query in QUERIES]
            await asyncio.sleep(0)
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(result) for result in results] == [list, ValueError, list, list]

    asyncio.run(run())


def test_a_query_that_nobody_waits_for_and_one_asked_twice(served_index, model):
    async def run():
        async with one_at_work(served_index, model) as served:
            kept, dropped, same = (asked(served, query) for query in ("bade", "kilo", "bade"))
            await asyncio.sleep(0)
            dropped.cancel()
            await asyncio.sleep(0)
        assert await kept == await same
        assert model.batches == [["first"], ["bade"]]

    asyncio.run(run())


def test_searches_that_wait_at_the_end_are_answered(served_index, model):
    async def run():
        served = Reader(served_index)
        async with served.running():
            with model.held():
                tasks = [asked(served, "first")]
                await asyncio.sleep(0.05)
                tasks += [asked(served, query) for query in QUERIES]
                await asyncio.sleep(0)
        assert all(task.done() and task.result() for task in tasks[1:])

    asyncio.run(run())


def test_a_known_query_needs_no_model(served_index, model):
    async def run():
        names = [("lexicept_query_cache_total", {"outcome": o}) for o in ("miss", "hit")]
        names.append(("lexicept_batch_queries_bucket", {"le": "1.0"}))
        before = [REGISTRY.get_sample_value(*name) or 0 for name in names]
        served = Reader(served_index)
        index = served.served.index
        async with served.running():
            top = await served.search(wanted(index, "bade kilo"))
            again = await served.search(wanted(index, "bade kilo"))
            steered = await served.search(wanted(index, "bade kilo", w1=0.0))
        assert model.batches == [["bade kilo"]]
        assert [(hit.id, hit.score) for hit in again] == [(hit.id, hit.score) for hit in top]
        search = wanted(IndexReader.open(served_index), "bade kilo", w1=0.0)
        (expected,) = reader.search_together([search])
        assert [hit.id for hit in steered] == [hit.id for hit in expected]
        counts = [REGISTRY.get_sample_value(*name) for name in names]
        assert counts == [before[0] + 1, before[1] + 2, before[2] + 1]

    asyncio.run(run())


def test_a_cache_of_no_memory_keeps_nothing(served_index, model):
    client = TestClient(create_app(served_index, query_cache_mb=0), base_url=BASE)
    for _ in range(2):
        assert client.get("/search", params={"query": "bade"}).json()["results"]
    assert model.batches == [["bade"], ["bade"]]


@pytest.mark.parametrize("changed", [False, True])
def test_an_update_is_searched_with_known_queries(
    served_index, tmp_path, model, monkeypatch, changed
):
    monkeypatch.setattr(reader, "FOLLOW_SECONDS", 3600.0)
    path = Path(shutil.copytree(served_index, tmp_path / "index"))
    if changed:  # another model, as far as the manifest says
        monkeypatch.setattr(VocabularyEncoder, "adopt", lambda *_: None)
    with TestClient(create_app(path), base_url=BASE) as client:

        def search():
            hits = client.get("/search", params={"query": "bade kilo", "top_k": 40}).json()
            return [hit["id"] for hit in hits["results"]]

        assert "new" not in search()
        updates.update(path, [Document("new", "bade kilo")])
        assert client.portal is not None
        client.portal.call(client.app.state.reader.check)  # type: ignore[attr-defined, call-arg]
        model.batches.clear()
        assert "new" in search()
        assert model.batches == ([["bade kilo"]] if changed else [])


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_client_that_leaves_takes_its_query_along(served_index, model):
    with serving(served_index) as address:
        url = urlsplit(address)
        assert url.port is not None

        def ask(query):
            client = socket.create_connection(("127.0.0.1", url.port), 30)
            client.sendall(
                f"GET /search?query={query} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
            )
            return client

        left = ("lexicept_requests_total", {"path": "/search", "status": "499"})
        before = REGISTRY.get_sample_value(*left)
        with model.held():
            with ask("first"), ask("kilo"):
                time.sleep(0.2)  # the model has begun with the first
            until(lambda: REGISTRY.get_sample_value(*left) == (before or 0) + 2)
        with ask("muki") as client:
            assert client.recv(65536).startswith(b"HTTP/1.1 200")
    assert model.batches == [["first"], ["muki"]]


def test_a_server_reads_queries_without_torch_models(served_index, monkeypatch):
    readers = []
    for_queries = VocabularyEncoder.for_queries

    def watched(self):
        readers.append(for_queries(self))
        return readers[-1]

    def run(*_, **settings):
        with TestClient(from_environment(), base_url=BASE) as client:
            assert client.get("/search", params={"query": "bade"}).status_code == 200

    monkeypatch.setattr(VocabularyEncoder, "for_queries", watched)
    monkeypatch.setattr("uvicorn.run", run)
    lexicept.serve(served_index, port=0)
    assert "ConceptVectorizer" not in [type(reader).__name__ for reader in readers]
