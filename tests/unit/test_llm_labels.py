"""Labels from an endpoint that answers, refuses, is busy, talks nonsense or dies half-way."""

import json
import re
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest
from openai.types.chat import ChatCompletion
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming
from pydantic import TypeAdapter

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


class Stub(ThreadingHTTPServer):
    """An endpoint on this machine; ``asked`` records its requests."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.answer: Answer = lambda said: (200, {}, chat(f"about {words(said)}"))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(self.url, "tiny")


class Handler(BaseHTTPRequestHandler):
    server: Stub

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert self.path == "/v1/chat/completions"
        self.server.asked.append(body)
        self.server.keys.append(self.headers.get("Authorization"))
        status, headers, data = self.server.answer(body["messages"][-1]["content"])
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


def words(said: str) -> str:
    hits = re.search(r"Words: (.*)", said)
    assert hits is not None
    return hits[1]


@pytest.fixture
def stub():
    with Stub() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


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
    title = prompt(IndexReader.open(path), 3)[1]["content"]
    assert title.endswith("- A title: d[[o]]g")


def test_the_most_frequent_first(path, stub, store):
    assert label_concepts(IndexReader.open(path), 2, stub.endpoint, store).labels == {
        1: "about bee"
    }


def test_words_that_name_themselves_are_not_sent(path, stub, run):
    sources = path / "generation-000001" / "concepts" / "atlas" / "sources.npy"
    np.save(sources, np.full(5, SOURCES.index("vocabulary"), np.uint8))
    output = run("index", "label", path, "--endpoint", stub.url, "--model", "tiny")
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
    gone = Endpoint("http://127.0.0.1:9/v1", "tiny")
    with pytest.raises(InputError, match=r"127.0.0.1:9/v1 does not answer: .*Connect"):
        label_concepts(IndexReader.open(path), 2, gone, store)


def test_nonsense_is_left_out(path, stub, store):
    def answer(said):
        return 200, {}, chat("bees") if "bee" in said else b"<html>"

    stub.answer = answer
    labels = label_concepts(IndexReader.open(path), 10, stub.endpoint, store)
    assert labels.labels == {1: "bees"}
    assert labels.refused.keys() == {2, 3}
    assert labels.refused[2] == "no chat completion: b'<html>'"
    stub.answer = lambda _: (200, {}, chat("many words that are really no label"))
    with pytest.raises(InputError, match="no reply was a label; the first: no label of 1 to 5 wor"):
        label_concepts(IndexReader.open(path), 10, stub.endpoint, store)


def test_a_run_that_is_cut_off_goes_on(path, stub, store):
    def answer(said):
        return (200, {}, chat("bees")) if "bee" in said else (400, {}, b"no more money")

    stub.answer = answer
    index = IndexReader.open(path)
    label_concepts(index, 2, stub.endpoint, store)
    with pytest.raises(InputError, match="400 no more money"):
        label_concepts(index, 10, stub.endpoint, store)
    with store.path.open("ab") as file:
        file.write(b'{"concept": 3, "lab')  # killed while it wrote
    store = GrowingFile(store.path)
    stub.asked.clear()
    stub.answer = lambda _: (200, {}, chat("late"))
    assert label_concepts(index, 10, stub.endpoint, store).labels == {
        1: "bees",
        2: "late",
        3: "late",
    }
    assert len(stub.asked) == 2
    assert json.loads(store.lines()[0]) == {"concept": 1, "label": "bees"}


def test_an_interrupted_command_is_resumed_with_the_same_model(path, stub, tmp_path):
    requested = threading.Event()

    def answer(said):
        if "bee" in said:
            requested.set()
            return 200, {}, chat("bees")
        assert requested.wait(60)  # refused once the other reply is on its way
        return 400, {}, b"no money"

    stub.answer = answer
    with pytest.raises(InputError, match="400 no money"):
        label_index(path, 10, stub.endpoint)
    assert sorted(item.name for item in tmp_path.iterdir()) == ["index", "index.labels.partial"]
    stub.answer = lambda _: (200, {}, chat("late"))
    other = Endpoint(stub.endpoint.url, "other")
    with pytest.raises(InputError, match='model was "tiny" and is now "other"; --restart'):
        label_index(path, 10, other)
    assert label_index(path, 10, stub.endpoint).labels == {1: "bees", 2: "late", 3: "late"}
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
    arguments = ("index", "label", path, "--endpoint", stub.url, "--model", "tiny")
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


def test_the_types_of_openais_client(path, stub, store):
    """Requests and replies follow the ``openai`` package, as vLLM does."""
    request_type = TypeAdapter(CompletionCreateParamsNonStreaming)

    def answer(said):
        message = {"role": "assistant", "content": f"about {words(said)}", "refusal": None}
        completion = ChatCompletion(
            id="chatcmpl-1",
            object="chat.completion",
            created=1,
            model="tiny",
            choices=[{"index": 0, "finish_reason": "stop", "logprobs": None, "message": message}],
            usage={"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11},
        )
        return 200, {"Content-Type": "application/json"}, completion.model_dump_json().encode()

    stub.answer = answer
    labels = label_concepts(IndexReader.open(path), 10, stub.endpoint, store)
    assert labels == ({1: "about bee", 2: "about", 3: "about"}, {})
    for body in stub.asked:
        assert set(request_type.validate_python(body, strict=True)) == {"model", "messages"}
