"""Tools for language models: their answers, their limits, and the protocol."""

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import lexicept
from lexicept.errors import InputError
from support.commands import assert_error

mcp = pytest.importorskip("mcp", reason="needs the extra mcp")

import anyio  # noqa: E402
import httpx  # noqa: E402
from starlette.testclient import TestClient  # noqa: E402

from lexicept.integrations.agents import LONGEST, AgentTools  # noqa: E402
from lexicept.integrations.mcp import ABSOLUTE, mcp_server  # noqa: E402
from lexicept.integrations.mcp import serve as serve_tools  # noqa: E402

PETS = [
    {"id": "cats", "title": "Cats", "text": "Cats sleep all day.", "legs": 4},
    {"id": "dogs", "title": "Dogs", "text": "Dogs bark at night.", "legs": 4},
    {"id": "parrots", "text": "Parrots talk, sleep and fly at night.", "legs": 2},
]


@pytest.fixture
def pets(tmp_path):
    return lexicept.build(PETS, tmp_path / "pets", vocabulary="words")


@pytest.fixture(scope="module")
def concepts(served_index):
    """An index of words and concepts, with an atlas and a hostile document."""
    return lexicept.open(served_index)


# The tools


def test_search(pets):
    answer = AgentTools(pets).search("sleeping cats", top_k=1)
    score = pets.search("sleeping cats", 1)[0].score
    assert answer == f"1. [cats] Cats (score {score:.4g})\nlegs: 4\nCats sleep all day."
    assert "[parrots]" in AgentTools(pets).search("sleep", filter="legs == 2")
    assert "[cats]" not in AgentTools(pets).search("sleep", filter="legs == 2")
    assert AgentTools(pets).search("axolotl").splitlines() == [
        *("no document contains: axolotl", 'no document for "axolotl"')
    ]
    assert "[cats]" not in AgentTools(pets).search("sleep -cats")
    assert "did you mean: sleep\n" in AgentTools(pets).search("sleeep")
    with pytest.raises(InputError, match="no field 'arms'"):
        AgentTools(pets).search("sleep", filter="arms == 2")


def test_explain(pets):
    explanation = AgentTools(pets).explain("sleeping cats", "cats").splitlines()
    assert explanation[0].startswith('[cats] for "sleeping cats": score ')
    assert sorted(line.split(maxsplit=1)[1] for line in explanation[1:]) == [
        "word:cat: cats → Cats",
        "word:sleep: sleeping → sleep",
    ]
    shares = [float(line.split("%")[0]) for line in explanation[1:]]
    assert sum(shares) == pytest.approx(100, abs=0.2)
    assert "share no word" in AgentTools(pets).explain("sleep", "dogs")
    with pytest.raises(InputError, match="no document 'cow'"):
        AgentTools(pets).explain("sleep", "cow")


def test_a_long_document_comes_in_pages(tmp_path):
    text = " ".join(f"word{n}" for n in range(2_000))
    index = lexicept.build([{"id": "a", "text": text}], tmp_path / "x", vocabulary="words")
    tools, read, start = AgentTools(index), "", 0
    while True:
        heading, location, page = tools.get_document("a", start).split("\n", 2)
        assert heading == "[a]"
        read += page
        following = re.search(r"start=(\d+)$", location)
        if following is None:
            break
        start = int(following[1])
    assert read == text
    with pytest.raises(InputError, match="has 16,889 characters; start was 20,000"):
        tools.get_document("a", 20_000)


def test_a_document_in_passages(tmp_path):
    book = {"id": "book", "title": "Book", "passages": ["One owl.", "Two cats and a dog."]}
    tools = AgentTools(lexicept.build([book], tmp_path / "x", vocabulary="words"))
    lines = tools.search("dog").splitlines()
    assert lines[0].startswith("1. [book] Book")
    assert lines[1:] == ["Two cats and a dog."]  # the best passage
    assert "word:dog: dog → dog" in tools.explain("dog", "book")
    assert all(text in tools.get_document("book") for text in ("One owl.", "Two cats and a dog."))


def test_similar_documents(pets):
    # Parrots sleep as cats do, and dogs share no word with them.
    result = AgentTools(pets).similar_documents("cats")
    assert result.startswith("1. [parrots]")
    assert "[cats]" not in result
    with pytest.raises(InputError, match="no document 'cow'"):
        AgentTools(pets).similar_documents("cow")


def test_steering_weighs_removes_and_adds(pets):
    tools = AgentTools(pets)
    plain = tools.steer("sleep cats").splitlines()
    assert plain[0] == "weights: 1 word:cat; 1 word:sleep" or plain[0].endswith("1 word:cat")
    assert plain[1].startswith("1. [cats]")
    changed = tools.steer("sleep cats", {"word:cats": 0}, {"word:talking": 2}).splitlines()
    assert changed[0] == "weights: 2 word:talk; 1 word:sleep"
    assert changed[1].startswith("1. [parrots]")
    # Without a query of its own, what is added is searched alone.
    assert "1. [dogs]" in tools.steer("", add={"word:bark": 1})
    assert tools.steer("axolotl").startswith("weights: nothing that is searched")


@pytest.mark.parametrize(
    ("factors", "add", "message"),
    [
        ({"sleep": 0}, {}, "'sleep' is not word:TEXT or concept:NUMBER"),
        ({"word:axolotl": 0}, {}, "no document has the word 'axolotl'"),
        ({"word:the": 0}, {}, "'word:the' is not one word that is searched"),
        ({"word:cats sleep": 0}, {}, "'word:cats sleep' is not one word"),
        ({"word:cat": -1}, {}, "factors: the number of 'word:cat' must be from 0 to 1,000,000"),
        ({}, {"word:cat": float("nan")}, "add: the number of 'word:cat' must be from 0"),
        ({"word:cat": 1, "words:cats": 2}, {}, "factors: 'words:cats' is there twice"),
        ({"concept:1": 0}, {}, "has no vocabulary 'concepts'"),
    ],
)
def test_what_is_no_steering(pets, factors, add, message):
    with pytest.raises(InputError, match=re.escape(message)):
        AgentTools(pets).steer("cats", factors, add)


def test_concepts(concepts):
    tools = AgentTools(concepts)
    listed = tools.list_concepts(top_k=3).splitlines()
    assert re.fullmatch(r"\d+ concepts in 31 documents", listed[0])
    assert re.fullmatch(r"\(\d+ more concepts left out\)", listed[-1])
    assert len(listed) == 5
    match = re.match(r"concept:(\d+) (.*), (\d+) documents", listed[1])
    assert match is not None
    concept_id, name, documents = int(match[1]), match[2], match[3]
    output = tools.get_concept(concept_id).splitlines()
    assert output[0] == f"concept:{concept_id} {name}, in {documents} documents"
    assert any(line.startswith("words: ") for line in output)
    assert any(line.startswith("most of it: ") for line in output)
    (word,) = re.findall(r"(?m)^words: (\w+)", "\n".join(output))
    assert f"concept:{concept_id} " in tools.list_concepts(find=word, top_k=100)
    # Added by number or by name, a concept is the heaviest dimension of a query without others.
    assert tools.steer("", add={f"concept:{concept_id}": 1}).startswith(
        f"weights: 1 concept:{concept_id} {name}\n"
    )
    assert tools.steer("", add={f"concept:{name}": 1}) == tools.steer(
        "", add={f"concept:{concept_id}": 1}
    )
    with pytest.raises(InputError, match="no concept 64: the numbers are 0 to 63"):
        tools.get_concept(64)
    with pytest.raises(InputError, match="no concept '64': a list of concepts has its number"):
        tools.steer("x", {"concept:64": 1})


def test_answers_are_short_and_safe(tmp_path):
    hostile = "\x1b[2J\u202e long " + "y" * 20_000
    documents = [
        {"id": f"{n}{'i' * 3_000}", "title": hostile, "text": hostile, "field": hostile}
        for n in range(20)
    ]
    index = lexicept.build(documents, tmp_path / "x", vocabulary="words")
    tools, first = AgentTools(index), documents[0]["id"]
    answers = [
        tools.search("long " * 500, 20),
        tools.explain(" ".join(f"w{n}" for n in range(800)) + " long", first),
        tools.get_document(first),
        tools.steer("long " * 500, top_k=20),
    ]
    for answer in answers:
        assert len(answer) <= LONGEST
        assert not set(answer) & {"\x1b", "\u202e"}
    assert answers[0].endswith(" more results left out)")


def test_changes_on_disk_are_seen(pets):
    tools = AgentTools(pets)
    assert "no document for" in tools.search("axolotl")
    lexicept.open(pets.path).add([{"id": "new", "text": "An axolotl swims."}])
    assert "[new]" in tools.search("axolotl")


# The protocol


def call(server: object, use: Callable[[Any], Awaitable[None]], mode: str = "auto") -> None:
    """Connect the SDK's client to a server and use it."""

    async def connected() -> None:
        async with mcp.Client(server, mode=mode, read_timeout_seconds=120) as client:
            await use(client)

    anyio.run(connected)


async def use_pets(client: Any) -> None:
    """Call every tool of an index of words, well and badly."""
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert set(tools) == {*("search", "explain", "get_document", "similar_documents", "steer")}
    for tool in tools.values():
        assert len(tool.description) > 60
        assert tool.annotations.read_only_hint
        described = tool.input_schema["properties"].values()
        assert all(parameter["description"] for parameter in described)
    assert "legs (number)" in tools["search"].description

    async def text(name: str, **arguments: object) -> tuple[bool, str]:
        result = await client.call_tool(name, arguments)
        (item,) = result.content
        return result.is_error, item.text

    failed, actual = await text("search", query="sleep", top_k=2, filter="legs == 4")
    assert (failed, "[cats]" in actual) == (False, True)
    assert (await text("explain", query="sleep", document_id="cats"))[1].startswith("[cats] for")
    assert (await text("get_document", document_id="dogs"))[1].endswith("Dogs bark at night.")
    changed = await text("steer", query="cats", add={"word:bark": 5})
    assert "1. [dogs]" in changed[1]
    for name, arguments, message in (
        ("get_document", {"document_id": "cow"}, "no document 'cow'"),
        ("search", {"query": "sleep", "filter": "legs >"}, "filter at character 7"),
        ("search", {"query": "sleep", "top_k": 21}, "top_k"),
        ("search", {"query": "sleep", "topk": 2}, "search: no argument 'topk'; perhaps top_k?"),
        (
            "explain",
            {"query": "sleep", "id": "cats"},
            "no argument 'id'; there are query, document",
        ),
        ("steer", {"query": "cats", "factors": {"word:cow": 1}}, "no document has the word 'cow'"),
    ):
        failed, problem_told = await text(name, **arguments)
        assert failed
        assert message in problem_told


COMMAND = "from lexicept.cli import main; main()"


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_over_standard_input_and_output(pets, mode):
    arguments = ["-c", COMMAND, "mcp", str(pets.path)]
    # The client passes few variables on by itself, and no PYTHONPATH.
    parameters = mcp.StdioServerParameters(
        command=sys.executable, args=arguments, env=dict(os.environ)
    )
    call(parameters, use_pets, mode)


ABOUT = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "a", "version": "1"},
}


def request(n: Any, method: str, **params: Any) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": n, "method": method, "params": params})


def tool(n: Any, name: str, **arguments: Any) -> str:
    return request(n, "tools/call", name=name, arguments=arguments)


def conversation(
    index: lexicept.Index, *lines: str | bytes, end: bytes = b"\n"
) -> list[dict[str, Any]]:
    """The answers to lines on standard input, closed after the last line."""
    sent = b"\n".join(line if isinstance(line, bytes) else line.encode() for line in lines) + end
    arguments = [sys.executable, "-c", COMMAND, "mcp", index.path]
    done = subprocess.run(arguments, input=sent, capture_output=True, timeout=120)
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False)
    assert str(index.path.parent).encode() not in done.stdout
    return [json.loads(line) for line in done.stdout.splitlines()]


def told(index: lexicept.Index, *lines: str | bytes, end: bytes = b"\n") -> list[Any]:
    """Of each answer after the initialisation, its id with the error's code or the tool's text."""
    answers = conversation(index, request("hello", "initialize", **ABOUT), *lines, end=end)
    summaries = []
    for answer in answers:
        if answer["id"] == "hello":
            continue
        result = answer.get("result") or {}
        text = result["content"][0]["text"] if "content" in result else result
        summaries.append((answer["id"], answer["error"]["code"] if "error" in answer else text))
    return sorted(summaries, key=str)


DEEP = "[" * 100_000 + "]" * 100_000


UNREADABLE: list[str] = [
    *("not JSON", '{"jsonrpc":"2.0","id":1,"method":"pi', "\0", "{" + "a" * 2_000_000),
    request(1, "ping").replace("{}", DEEP),
]
INVALID: list[str] = [
    *("[]", f"[{request(1, 'ping')}]", "5", "null", '"text"', "{}", '{"jsonrpc":"2.0","id":1}'),
    *(request(value, "ping") for value in (None, 1.5, True, [1], {})),
    '{"jsonrpc":"2.0","method":"notifications/a","params":3}',
]


@pytest.mark.parametrize(("lines", "code"), [(UNREADABLE, -32700), (INVALID, -32600)])
def test_lines_that_are_no_requests_are_answered(pets, lines, code):
    answers = told(pets, *lines, request("z", "ping"))
    assert answers == sorted([*((None, code) for _ in lines), ("z", {})], key=str)


def test_every_request_is_answered(pets):
    search = '{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":%s}'
    lines: list[tuple[str | bytes, Any]] = [
        ('{"jsonrpc":"2.0","id":0,"method":5}', -32601),
        ('{"jsonrpc":"2.0","id":1,"method":null}', -32601),
        (request(2, "no/such"), -32601),
        (request(3, "resources/read", uri="file:///etc/passwd"), -32602),
        (request(4, "tools/call"), -32602),
        (request(5, "tools/call", name=5), -32602),
        (request(6, "tools/call", name="search", arguments=[1]), -32602),
        (request(7, "tools/call", name="search", arguments="x"), -32602),
        (search % (8, "[1]"), -32602),
        (search % (9, '"query"'), -32602),
        (tool(10, "no_such"), "Unknown tool: no_such"),
        (b"\xef\xbb\xbf" + request(11, "ping").encode(), {}),
        (request(12, "ping") + "\r", {}),
        (request(13, "ping", a=["\u2028"]), {}),
        (tool(14, "search", query=0).replace("0}", DEEP[99_700:100_300] + "}"), -32602),
    ]
    answers = dict(told(pets, *(line for line, _ in lines)))
    assert answers == dict(enumerate(expected for _, expected in lines))


def test_lines_that_ask_nothing_have_no_answer(pets):
    lines = [
        *("", "  ", '{"jsonrpc":"2.0","method":"no/such"}', '{"jsonrpc":"2.0","id":1,"result":{}}'),
        '{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x"}}',
        '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99}}',
        '{"jsonrpc":"2.0","method":"notifications/cancelled"}',
    ]
    assert told(pets, *lines, request(2, "ping")) == [(2, {})]


def test_a_request_with_a_lone_surrogate_is_read(pets):
    line = tool(1, "search", query="sleep\ud800")
    ((id_, text),) = told(pets, line)
    assert (id_, text[:9]) == (1, "1. [cats]")


def test_requests_before_the_initialisation_are_answered(pets):
    lines = [tool(1, "search", query="cats"), request(2, "tools/list"), request(3, "ping")]
    answers = conversation(
        pets, *lines, request(4, "initialize"), request(5, "initialize", **ABOUT)
    )
    by_id = {answer["id"]: answer for answer in answers}
    assert [by_id[id_]["error"]["code"] for id_ in (1, 2, 4)] == [-32602] * 3
    assert by_id[3]["result"] == {}
    assert by_id[5]["result"]["serverInfo"]["name"] == "lexicept"


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_requests_are_answered_although_the_input_has_ended(pets, end):
    lines = [tool(i, "search", query="cats") for i in range(50)]
    answers = dict(told(pets, *lines, end=end))
    assert sorted(answers) == list(range(50))
    assert all(text.startswith("1. [cats]") for text in answers.values())


def test_a_half_line_at_the_end_is_answered(pets):
    assert told(pets, '{"jsonrpc":"2.0","id":1,"met', end=b"") == [(None, -32700)]
    assert conversation(pets, end=b"") == []


@pytest.mark.parametrize("given", [7, "7"])
def test_a_cancelled_request_does_not_keep_the_server(pets, given):
    """The protocol forbids an answer; one on its way may still come."""
    cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled"}
    cancelled["params"] = {"requestId": given}
    lines = [tool(7, "search", query="cats"), json.dumps(cancelled), request(8, "ping")]
    assert (8, {}) in told(pets, *lines)


def test_a_client_that_leaves_ends_the_server(pets):
    reading, writing = os.pipe()
    arguments = [sys.executable, "-c", COMMAND, "mcp", pets.path]
    with subprocess.Popen(
        arguments, stdin=subprocess.PIPE, stdout=writing, stderr=subprocess.PIPE
    ) as server:
        os.close(writing)
        os.close(reading)
        _, errors = server.communicate(request(1, "initialize", **ABOUT).encode(), timeout=120)
    assert (server.returncode, errors) == (0, b"")


# What models fill in


@pytest.fixture
def numbered(tmp_path):
    records = [
        {"id": "7", "text": "Otters swim.", "year": 2020},
        {"id": "2.5", "text": "Badgers dig."},
        {"id": "a/b", "text": "Owls hoot."},
    ]
    return lexicept.build(records, tmp_path / "the index" / "numbered", vocabulary="words")


def test_a_blank_optional_argument_is_left_out(numbered):
    lines = [tool(1, "search", query="otters"), tool(2, "steer", query="otters")]
    for i, blank in enumerate(("", "  ", None), 1):
        optional = {"top_k": blank, "filter": blank}
        lines += [
            tool(10 * i, "search", query="otters", vocabulary=blank, **optional),
            tool(10 * i + 1, "steer", query="otters", factors=blank, add=blank, **optional),
            tool(10 * i + 2, "get_document", document_id="7", start=blank),
            tool(10 * i + 3, "similar_documents", document_id="7", top_k=blank),
        ]
    texts = dict(told(numbered, *lines))
    assert texts[1].startswith("1. [7]")
    for i in (10, 20, 30):
        assert [texts[i], texts[i + 1]] == [texts[1], texts[2]]
        assert texts[i + 2] == "[7]\nyear: 2020\nOtters swim."
        assert texts[i + 3] == "no document"


def test_a_blank_query_is_a_query(numbered):
    texts = dict(told(numbered, tool(1, "search", query=""), tool(2, "search", query=None)))
    assert texts[1] == "no document"
    assert "should be a valid string" in texts[2]


def test_a_number_is_an_id_by_its_digits(numbered):
    expected: list[tuple[Any, str]] = [
        *((7, "Otters swim."), (7.0, "Otters swim."), ("7", "Otters swim.")),
        *((2.5, "Badgers dig."), ("a/b", "Owls hoot."), (8, "no document '8'")),
        *((-7, "no document '-7'"), (10**30, f"no document '{10**30}'")),
        *((True, "should be a valid string"), (["7"], "should be a valid string")),
    ]
    lines = [tool(n, "get_document", document_id=given) for n, (given, _) in enumerate(expected)]
    texts = dict(told(numbered, *lines))
    assert [text in texts[i] for i, (_, text) in enumerate(expected)] == [True] * 10


def test_numbers_are_texts_where_a_text_is_asked_for(numbered):
    lines = [tool(1, "search", query=2020), tool(2, "search", query="otters", top_k="1")]
    lines += [tool(3, "explain", query="otters", document_id=7)]
    texts = dict(told(numbered, *lines))
    assert "no document contains: 2020" in texts[1]
    assert texts[2].startswith("1. [7]")
    assert texts[3].startswith('[7] for "otters": score')


def test_errors_name_no_folder_of_the_server(numbered, tmp_path):
    """``conversation`` looks for the index's folder in all output of the server."""
    ids = ["8", "/etc/passwd", "../x", "C:\\x\\y"]
    lines = [tool(i, "get_document", document_id=id_) for i, id_ in enumerate(ids)]
    lines += [tool(4, "steer", query="x", factors={"concept:1": 0})]
    texts = dict(told(numbered, *lines))
    assert texts[0] == "Error executing tool get_document: no document '8' in numbered"
    assert "numbered has no vocabulary 'concepts'" in texts[4]
    # What the client wrote stays as it is.
    assert "no document '/etc/passwd'" in texts[1]
    assert "no document '../x'" in texts[2]


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("/srv/my.index: damaged", "my.index: damaged"),
        ("no '/a/b/c.json', only '/a/d'", "no 'c.json', only 'd'"),
        (
            "[Errno 2] No such file or directory: '/x/y/z'",
            "[Errno 2] No such file or directory: 'z'",
        ),
        ("C:\\data\\my.index: damaged", "my.index: damaged"),
        (
            "and/or 1/2 of a/b at https://example.org/a",
            "and/or 1/2 of a/b at https://example.org/a",
        ),
        ("at /srv", "at srv"),
    ],
)
def test_absolute_paths_are_told_by_their_names(message, told):
    assert ABSOLUTE.sub("", message) == told


def test_over_http(pets):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    arguments = [sys.executable, "-c", COMMAND, "mcp", pets.path, "--http", "--port", str(port)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as server:
        try:
            address = f"http://127.0.0.1:{port}/mcp"
            for _ in range(1_000):
                try:
                    foreign = httpx.post(address, headers={"Host": "evil.example"}, json={})
                    break
                except httpx.TransportError:
                    assert server.poll() is None
                    time.sleep(0.1)
            # Another site's page can't reach it through a name of its own for this machine.
            assert foreign.status_code == 421
            call(address, use_pets)
        finally:
            server.terminate()


def test_a_key_is_required_over_http(pets, tmp_path, monkeypatch):
    key, apps = tmp_path / "key", []
    key.write_text("0123456789abcdef\n")
    monkeypatch.setattr("uvicorn.run", lambda app, **_: apps.append(app))
    serve_tools(pets, http=True, port=0, api_key_file=key)
    serve_tools(pets, http=True, port=0)
    first = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    accept = {"Accept": "application/json, text/event-stream"}
    statuses = []
    for app in apps:
        with TestClient(app, base_url="http://127.0.0.1:8000") as client:
            for given in ({}, {"Authorization": "Bearer 0123456789abcdef"}):
                answer = client.post("/mcp", json=first, headers=accept | given)
                statuses.append(answer.status_code == 401)
    assert statuses == [True, False, False, False]
    with pytest.raises(InputError, match="api_key_file requires http"):
        serve_tools(pets, api_key_file=key)


def test_an_index_of_concepts_has_their_tools(concepts):
    async def use(client):
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert {"list_concepts", "get_concept"} < names
        result = await client.call_tool("list_concepts", {"top_k": 1})
        assert "concepts in 31 documents" in result.content[0].text
        result = await client.call_tool("list_concepts", {"search": "cats"})
        assert result.is_error
        told = "list_concepts: no argument 'search'; there are find, top_k"
        assert result.content[0].text == told

    call(mcp_server(concepts), use)


def test_what_serve_refuses(pets, tmp_path, run):
    with pytest.raises(InputError, match="index must be a text, a path or Index, not 5"):
        serve_tools(5)
    assert_error(run("mcp", tmp_path / "none"), "there is no index here")
