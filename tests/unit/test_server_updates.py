"""The server and an index that changes, or breaks, below it."""

import asyncio
import errno
import gc
import math
import shutil
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from lexicept.corpora import Document
from lexicept.index import updates
from lexicept.server import reader
from lexicept.server.app import create_app
from lexicept.server.reader import Reader

BASE = "http://127.0.0.1"


@pytest.fixture(autouse=True)
def checked_by_hand(monkeypatch):
    """Tests call ``check`` themselves."""
    monkeypatch.setattr(reader, "FOLLOW_SECONDS", 3600.0)
    monkeypatch.setattr(reader, "warm", lambda _: None)


@pytest.fixture
def no_collector():
    """References are all that keeps an object: nothing finds cycles."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class Served:
    """A client of an index, with the application's reader."""

    def __init__(self, client: TestClient) -> None:
        self.client = client
        self.reader: Reader = client.app.state.reader  # type: ignore[attr-defined]

    def check(self) -> None:
        """Look at the index on disk, as the server does every second."""
        assert self.client.portal is not None
        self.client.portal.call(self.reader.check)

    def get(self, address: str, **parameters: Any) -> Any:
        response = self.client.get(address, params=parameters)
        assert response.status_code == 200, response.text
        return response.json()

    def state(self) -> tuple[str, str, Any]:
        """Return the generation, the status and its reason."""
        health = self.get("/health")
        return health["generation"], health["status"], health["reason"]

    def search(self, query: str) -> list[str]:
        return [hit["id"] for hit in self.get("/search", query=query)["results"]]


@pytest.fixture
def path(served_words, tmp_path):
    return Path(shutil.copytree(served_words, tmp_path / "index"))


@pytest.fixture
def served(path):
    with TestClient(create_app(path), base_url=BASE) as client:
        yield Served(client)


@pytest.mark.parametrize("name", ["served_words", "served_index"])
def test_a_generation_is_closed_when_the_next_one_is_served(request, tmp_path, no_collector, name):
    path = Path(shutil.copytree(request.getfixturevalue(name), tmp_path / "index"))
    opened, models = [], []
    with TestClient(create_app(path), base_url=BASE) as client:
        served = Served(client)
        for i in range(1, 4):
            assert served.state() == (f"generation-{i:06d}", "ok", None)
            index = served.reader.served.index
            opened.append(weakref.ref(index))
            models.append(weakref.ref(index.vectorizer(index.vocabularies[-1].name)))
            del index
            assert served.search("bade")
            assert served.get("/query", query="bade")["terms"]
            updates.update(path, [Document(f"new{i}", "bade kilo")])
            served.check()
            assert [index() is None for index in opened] == [True] * i
        if name == "served_index":  # an update keeps the loaded model
            assert models[0]() is served.reader.served.index.vectorizer("concepts")
        # The last update could not remove the generation that was served while it ran.
        folders = sorted(item.name for item in path.iterdir() if item.is_dir())
        assert folders == ["generation-000003", "generation-000004"]


def test_an_update_that_can_not_be_opened(served, path, monkeypatch):
    monkeypatch.setattr(reader, "RETRY_SECONDS", 0.0)
    manifest = path / "manifest.json"
    text = manifest.read_text()
    manifest.write_text("{")
    served.check()
    generation, status, reason = served.state()
    assert (generation, status) == ("generation-000001", "stale")
    assert "manifest.json" in reason
    assert str(path) not in reason
    assert served.search("bade")  # the last good generation is served
    manifest.write_text(text)
    served.check()
    assert served.state() == ("generation-000001", "ok", None)
    # A manifest that arrives before its files.
    newer = path.with_name("newer")
    shutil.copytree(path, newer)
    updates.update(newer, [Document("new", "A zebra.")])
    shutil.copy(newer / "manifest.json", path)
    for _ in range(2):
        served.check()
        generation, status, reason = served.state()
        assert (generation, status) == ("generation-000001", "stale")
        assert "generation-000002" in reason
    shutil.copytree(newer / "generation-000002", path / "generation-000002")
    served.check()
    assert served.state() == ("generation-000002", "ok", None)
    assert served.search("zebra") == ["new"]


def test_a_link_that_is_switched(path, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(path, other)
    updates.update(other, [Document("new", "A zebra.")])
    link = tmp_path / "link"
    link.symlink_to(path)
    with TestClient(create_app(link), base_url=BASE) as client:
        served = Served(client)
        link.unlink()
        served.check()
        assert served.state() == ("generation-000001", "stale", "there is no index here")
        assert served.search("bade")
        link.symlink_to(other)
        served.check()
        assert served.state() == ("generation-000002", "ok", None)
        assert served.search("zebra") == ["new"]


def test_what_can_not_be_opened_is_not_tried_every_second(served, path):
    tried = []

    def fail():
        tried.append(True)
        raise OSError(errno.EMFILE, "Too many open files", str(path / "manifest.json"))

    served.reader._open = fail  # type: ignore[method-assign]
    for changes, attempts in ((1, 1), (0, 1), (0, 1), (1, 2), (0, 2)):
        if changes:
            updates.update(path, [Document("new", f"A zebra {attempts}.")])
        served.check()
        assert len(tried) == attempts
    generation, status, reason = served.state()
    assert (generation, status) == ("generation-000001", "stale")
    assert "Too many open files" in reason


def test_an_error_of_the_check_itself_is_said(path, monkeypatch):
    monkeypatch.setattr(reader, "FOLLOW_SECONDS", 0.0)
    checks = []

    async def check(self):
        checks.append(True)
        if len(checks) == 2:
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Reader, "check", check)

    async def follow():
        served = Reader(path)
        async with served.running():
            while len(checks) < 4:
                await asyncio.sleep(0)
        assert served.state == reader.State("stale", "can't start new thread")

    asyncio.run(follow())


def test_a_truncated_file_stops_searches_before_the_system_stops_the_server(
    served, path, monkeypatch
):
    monkeypatch.setattr(reader, "RETRY_SECONDS", 0.0)
    texts = path / "generation-000001" / "parts" / "000001" / "texts.bin"
    data = texts.read_bytes()
    before = served.get("/search", query="bade kilo")
    with texts.open("r+b") as file:
        file.truncate(0)
    served.check()
    reason = f"generation-000001/parts/000001/texts.bin has 0 bytes instead of {len(data)}"
    assert served.state() == ("generation-000001", "damaged", reason)
    for address in ("/search?query=bade", "/query?query=bade", "/document?document_id=d1"):
        response = served.client.get(address)
        assert response.status_code == 503
        assert response.json() == {"detail": f"the index is damaged: {reason}"}
    with texts.open("r+b") as file:
        file.write(data)
    served.check()
    assert served.state() == ("generation-000001", "ok", None)
    assert served.get("/search", query="bade kilo") == before


@pytest.mark.parametrize("score", [math.inf, -math.inf, math.nan])
def test_scores_that_json_can_not_hold_are_no_answer(served, monkeypatch, score):
    hits = [replace(hit, score=score) for hit in served.reader.served.index.search(["bade"])[0]]

    async def search(*_):
        return hits

    monkeypatch.setattr(Reader, "search", search)
    response = served.client.get("/search?query=bade")
    assert response.status_code == 503
    detail = "the index is damaged: its weights give scores that are not finite"
    assert response.json() == {"detail": detail}


def test_numbers_that_json_can_not_hold_are_no_answer(served, monkeypatch):
    (term,) = served.reader.served.index.query_terms("bade")
    monkeypatch.setattr(
        "lexicept.index.explainer.Explainer.terms", lambda *_: [term._replace(weight=math.inf)]
    )
    response = served.client.get("/query?query=bade")
    assert response.status_code == 503
    assert "not finite" in response.json()["detail"]
