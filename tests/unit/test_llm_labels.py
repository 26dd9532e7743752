"""Labels from an endpoint that answers, refuses, is busy, talks nonsense or dies half-way."""

import json
import re
from collections.abc import Callable
from typing import Any

import httpx2
import numpy as np
import pytest
from openai import AsyncOpenAI

from lexicept.concepts import llm_labels
from lexicept.concepts.llm_labels import Endpoint, label_concepts, label_index, prompt, read_reply
from lexicept.errors import InputError
from lexicept.index.atlas import SOURCES
from lexicept.index.reader import IndexReader
from lexicept.storage.workspace import GrowingFile
from support.commands import assert_error
from support.indexes import build_described

pytestmark = pytest.mark.usefixtures("_vowels")


@pytest.fixture
def path(tmp_path):
    return build_described(tmp_path / "index")


Answer = Callable[[str], tuple[int, dict[str, str], bytes]]
"""Status, headers and body for what a concept was asked with."""


def chat(text: Any) -> bytes:
    return json.dumps({"choices": [{"message": {"role": "assistant", "content": text}}]}).encode()


class Stub:
    """An endpoint; ``asked`` records its requests."""

    endpoint = Endpoint("http://127.0.0.1/v1", "tiny")

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.answer: Answer = lambda said: (200, {}, chat(f"about {words(said)}"))

    def client(self, **settings: Any) -> AsyncOpenAI:
        transport = httpx2.MockTransport(self.respond)
        return AsyncOpenAI(**settings, http_client=httpx2.AsyncClient(transport=transport))

    def respond(self, request: httpx2.Request) -> httpx2.Response:
        assert request.url.path == "/v1/chat/completions"
        self.asked.append(json.loads(request.content))
        self.keys.append(request.headers.get("Authorization"))
        status, headers, data = self.answer(self.asked[-1]["messages"][-1]["content"])
        return httpx2.Response(status, headers=headers, content=data)


def words(said: str) -> str:
    hits = re.search(r"Words: (.*)", said)
    assert hits is not None
    return hits[1]


@pytest.fixture
def stub(monkeypatch):
    stub = Stub()
    monkeypatch.setattr(llm_labels, "AsyncOpenAI", stub.client)
    return stub


@pytest.fixture
def store(tmp_path):
    return GrowingFile(tmp_path / "labels.jsonl")


def test_what_is_asked(path, stub, store, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    labels = label_concepts(IndexReader.open(path), 10, stub.endpoint, store)
    # Concept 0 has an explanation, 4 fires nowhere.
    assert labels == ({1: "about bee", 2: "about", 3: "about"}, {})
    assert {body["model"] for body in stub.asked} == {"tiny"}
    assert stub.keys == ["Bearer none"] * 3  # whatever OPENAI_API_KEY holds
    (request,) = (said for b in stub.asked if "Words: bee" in (said := b["messages"][1]["content"]))
    assert request == "Words: bee\nPassages:\n- a b[[ee]]"
    assert prompt(IndexReader.open(path), 3)[1]["content"].endswith("- A title: d[[o]]g")


def test_the_most_frequent_first(path, stub, store):
    assert label_concepts(IndexReader.open(path), 2, stub.endpoint, store).labels == {
        1: "about bee"
    }


def test_words_that_name_themselves_are_not_sent(path, stub, run):
    sources = path / "generation-000001" / "concepts" / "atlas" / "sources.npy"
    np.save(sources, np.full(5, SOURCES.index("vocabulary"), np.uint8))
    output = run("index", "label", path, "--endpoint", stub.endpoint.url, "--model", "tiny")
    assert_error(output, "its dimensions are words and need no labels")
    assert not stub.asked


def test_an_endpoint_that_is_busy_at_first(path, stub, store):
    recorded: set[str] = set()

    def answer(said):
        if said not in recorded:
            recorded.add(said)
            return 429, {"retry-after-ms": "1"}, b"slow down"
        return 200, {}, chat("fine")

    stub.answer = answer
    labels = label_concepts(IndexReader.open(path), 10, stub.endpoint, store)
    assert labels.labels == {1: "fine", 2: "fine", 3: "fine"}
    assert len(stub.asked) == 6


def test_endpoints_that_fail(path, stub, store, monkeypatch):
    stub.answer = lambda _: (401, {}, b'{"error": "no such key"}')
    with pytest.raises(InputError, match=r'/v1 answered 401 {"error": "no such k'):
        label_concepts(IndexReader.open(path), 2, stub.endpoint, store)
    assert len(stub.asked) == 1
    stub.answer = lambda _: (503, {"retry-after-ms": "1"}, b"over\x1bload")
    with pytest.raises(InputError, match=r"/v1 answered 503 over load"):
        label_concepts(IndexReader.open(path), 2, stub.endpoint, store)
    assert len(stub.asked) == 1 + llm_labels.ATTEMPTS
    monkeypatch.setattr(llm_labels, "ATTEMPTS", 1)

    def refuse(_):
        raise httpx2.ConnectError("Connection refused")

    stub.answer = refuse
    with pytest.raises(InputError, match=r"/v1 does not answer: ConnectError: Connection refused"):
        label_concepts(IndexReader.open(path), 2, stub.endpoint, store)


def test_nonsense_is_left_out(path, stub, store):
    def answer(said):
        return 200, {}, chat("bees") if "bee" in said else b"<html>"

    stub.answer = nonsense = lambda _: (200, {}, chat("many words that are really no label"))
    with pytest.raises(InputError, match="no reply was a label; the first: no label of 1 to 5 wor"):
        label_concepts(IndexReader.open(path), 10, stub.endpoint, store)
    stub.answer = answer
    labels = label_concepts(IndexReader.open(path), 10, stub.endpoint, store)
    assert labels.labels == {1: "bees"}
    assert labels.refused.keys() == {2, 3}
    assert labels.refused[2] == "no chat completion: b'<html>'"
    stub.answer = nonsense  # the stored label is kept
    assert label_concepts(IndexReader.open(path), 10, stub.endpoint, store).labels == {1: "bees"}


def test_an_interrupted_command_is_resumed_with_the_same_model(path, stub, tmp_path):
    def answer(said):
        return (200, {}, chat("bees")) if "bee" in said else (400, {}, b"no money")

    stub.answer = answer
    with pytest.raises(InputError, match="400 no money"):
        label_index(path, 10, stub.endpoint)
    assert sorted(item.name for item in tmp_path.iterdir()) == ["index", "index.labels.partial"]
    stub.answer = lambda _: (200, {}, chat("late"))
    other = Endpoint(stub.endpoint.url, "other")
    with pytest.raises(InputError, match='model was "tiny" and is now "other"; --restart'):
        label_index(path, 10, other)
    stub.asked.clear()
    assert label_index(path, 10, stub.endpoint).labels == {1: "bees", 2: "late", 3: "late"}
    assert len(stub.asked) == 2
    assert [item.name for item in tmp_path.iterdir()] == ["index"]


@pytest.mark.parametrize(
    ("reply", "label"),
    [
        ("heart failure", "heart failure"),
        (' **Label: "Heart failure."**\n\nBecause', "Heart failure"),
        ("<think>\nhm\n</think>\n\njoins of paths", "joins of paths"),
        ("<script>alert(1)</script>", "<script>alert(1)</script>"),
        ("a\x1b[31m\u202eb", "a [31m b"),
        ("one two three four five six", None),
        ("x" * 61, None),
        (' "" ', None),
        ("", None),
        (None, None),
    ],
)
def test_replies(reply, label):
    if label is not None:
        assert read_reply(chat(reply)) == label
        return
    with pytest.raises(llm_labels._ReplyError):
        read_reply(chat(reply))


@pytest.mark.parametrize("body", [b"", b"[]", b'{"choices": []}', b"\xff", b"[" * 10_000])
def test_replies_that_are_no_chats(body):
    with pytest.raises(llm_labels._ReplyError, match="no chat completion"):
        read_reply(body)


@pytest.mark.parametrize("url", ["", "localhost:8000", "ftp://x/v1", "http://", "http://[::x/"])
def test_endpoints_that_are_none(url):
    with pytest.raises(InputError, match="the endpoint "):
        Endpoint(url, "tiny")


def test_addresses():
    for url in ("http://x/v1", "http://x/v1/", "http://x/v1/chat/completions"):
        assert Endpoint(url, "m").base == "http://x/v1"
    assert "secret" not in repr(Endpoint("http://x/v1", "m", "secret"))


def test_the_command(path, stub, run, monkeypatch, tmp_path):
    arguments = ("index", "label", path, "--endpoint", stub.endpoint.url, "--model", "tiny")
    assert_error(run(*arguments, "--api-key-env", "NO_SUCH_KEY"), "NO_SUCH_KEY is not set")
    monkeypatch.setenv("SOME_KEY", "secret")
    output = run(*arguments, "--api-key-env", "SOME_KEY", "--json")
    assert output.json == {"labelled": 3, "without": 0}
    assert stub.keys == ["Bearer secret"] * 3
    atlas = IndexReader.open(path, checksums=True).atlas
    assert atlas is not None
    assert [atlas.source(n) for n in range(5)] == ["explanations", *["llm"] * 3, "words"]
    assert atlas.labels[1] == "about bee"
    assert sorted(item.name for item in tmp_path.iterdir()) == ["index"]
    stub.asked.clear()
    assert run(*arguments, "--json").json == {"labelled": 0, "without": 0}
    assert not stub.asked
