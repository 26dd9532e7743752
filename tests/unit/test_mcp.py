"""Tools for language models: their answers, their limits, and the protocol."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import lexicept
from lexicept.errors import InputError
from support.commands import assert_error

mcp = pytest.importorskip("mcp", reason="needs the extra mcp")

import anyio  # noqa: E402
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
    with_syntax = AgentTools(pets).explain('-zebra "cats" sleeping', "cats").splitlines()
    assert "word:sleep: sleeping → sleep" in [line.split(maxsplit=1)[1] for line in with_syntax]
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
        ({"word:cats sleep": 0}, {}, "'word:cats sleep' is not one word"),
        ({"word:cat": -1}, {}, "factors: the number of 'word:cat' must be from 0 to 1,000,000"),
        ({}, {"word:cat": float("nan")}, "add: the number of 'word:cat' must be from 0"),
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


def test_ids_as_shown_are_ids(tmp_path):
    names = (f"{'folder/' * 40}long.md", "می\u200cخواهم.md")
    documents = [{"id": name, "text": f"giraffe {name}"} for name in names]
    tools = AgentTools(lexicept.build(documents, tmp_path / "x", vocabulary="words"))
    shown = re.findall(r"(?m)^\d\. \[(.+?)\]", tools.search("giraffe"))
    assert {*shown} == {*names}
    assert all("giraffe" in tools.get_document(name) for name in shown)


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
    """List the tools of an index of words, and call some, well and badly."""
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
    for name, arguments, message in (
        ("get_document", {"document_id": "cow"}, "no document 'cow'"),
        ("search", {"query": "sleep", "topk": 2}, "search: no argument 'topk'; perhaps top_k?"),
    ):
        failed, problem_told = await text(name, **arguments)
        assert failed
        assert message in problem_told


COMMAND = "from lexicept.cli import main; main()"


def test_over_standard_input_and_output(pets):
    arguments = ["-c", COMMAND, "mcp", str(pets.path)]
    # The client passes few variables on by itself, and no PYTHONPATH.
    parameters = mcp.StdioServerParameters(
        command=sys.executable, args=arguments, env=dict(os.environ)
    )
    call(parameters, use_pets, mode="legacy")


ABOUT = {"protocolVersion": "2025-06-18", "capabilities": {}}
ABOUT |= {"clientInfo": {"name": "a", "version": "1"}}
INITIALIZE = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": ABOUT}


def test_a_client_that_leaves_ends_the_server(pets):
    reading, writing = os.pipe()
    arguments = [sys.executable, "-c", COMMAND, "mcp", pets.path]
    with subprocess.Popen(
        arguments, stdin=subprocess.PIPE, stdout=writing, stderr=subprocess.PIPE
    ) as server:
        os.close(writing)
        os.close(reading)
        _, errors = server.communicate(json.dumps(INITIALIZE).encode(), timeout=120)
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


def answers(index: lexicept.Index, *calls: tuple[str, dict[str, Any]]) -> list[str]:
    """The texts that calls of tools return, none of which names the index's folder."""
    texts = []

    async def use(client: Any) -> None:
        for name, arguments in calls:
            (item,) = (await client.call_tool(name, arguments)).content
            texts.append(item.text)

    call(mcp_server(index), use)
    assert not any(str(index.path.parent) in text for text in texts)
    return texts


@pytest.mark.parametrize("blank", ["", "  ", None])
@pytest.mark.parametrize(
    ("name", "arguments", "optional"),
    [
        ("search", {"query": "otters"}, ["vocabulary", "top_k", "filter"]),
        ("steer", {"query": "otters"}, ["factors", "add", "top_k", "filter"]),
        ("get_document", {"document_id": "7"}, ["start"]),
    ],
)
def test_a_blank_optional_argument_is_left_out(numbered, name, arguments, optional, blank):
    blanks = dict.fromkeys(optional, blank)
    left_out, given = answers(numbered, (name, arguments), (name, arguments | blanks))
    assert left_out == given
    assert "Otters swim." in given


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        # A number is an id by its digits, and a text where a text is asked for.
        ("get_document", {"document_id": 7}, "[7]\nyear: 2020\nOtters swim."),
        ("get_document", {"document_id": 2.5}, "Badgers dig."),
        ("get_document", {"document_id": 10**30}, f"no document '{10**30}'"),
        ("get_document", {"document_id": True}, "should be a valid string"),
        ("search", {"query": 2020}, "no document contains: 2020"),
        ("search", {"query": "otters", "top_k": "1"}, "1. [7]"),
        ("search", {"query": None}, "should be a valid string"),
        # Errors name no folder of the server; what the client wrote stays as it is.
        ("get_document", {"document_id": "/etc/passwd"}, "no document '/etc/passwd'"),
        ("steer", {"query": "x", "factors": {"concept:1": 0}}, "numbered has no vocabulary"),
    ],
)
def test_arguments_as_models_write_them(numbered, name, arguments, expected):
    (told,) = answers(numbered, (name, arguments))
    assert expected in told


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("/srv/my.index: damaged", "my.index: damaged"),
        ("no '/a/b/c.json', only '/a/d'", "no 'c.json', only 'd'"),
        ("C:\\data\\my.index: damaged", "my.index: damaged"),
        ("and/or 1/2 of a/b at https://a.org/a", "and/or 1/2 of a/b at https://a.org/a"),
        ("at /srv", "at srv"),
    ],
)
def test_absolute_paths_are_told_by_their_names(message, told):
    assert ABSOLUTE.sub("", message) == told


def test_over_http(pets, tmp_path, monkeypatch):
    key, apps = tmp_path / "key", []
    key.write_text("0123456789abcdef\n")
    monkeypatch.setattr("uvicorn.run", lambda app, **_: apps.append(app))
    serve_tools(pets, http=True, port=0, api_key_file=key)
    serve_tools(pets, http=True, port=0)
    accept = {"Accept": "application/json, text/event-stream"}
    known = {"Authorization": "Bearer 0123456789abcdef"}
    statuses = []
    for app in apps:
        with TestClient(app, base_url="http://127.0.0.1:8000") as client:
            # Another site's page can't reach it through a name of its own for this machine.
            for given in ({}, known, known | {"Host": "evil.example"}):
                answer = client.post("/mcp", json=INITIALIZE, headers=accept | given)
                statuses.append(answer.status_code)
    assert statuses == [401, 200, 421, 200, 200, 421]
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
