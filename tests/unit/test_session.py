"""``lexicept search INDEX``: queries typed one after another."""

import io

import pytest

import lexicept
from support.commands import assert_error

TEXTS = ["cats sleep all day", "dogs bark at night", "a cat naps"]


@pytest.fixture
def index(tmp_path):
    lexicept.build(TEXTS, tmp_path / "index", vocabulary="words")
    return tmp_path / "index"


@pytest.fixture
def type_in(monkeypatch):
    def type_lines(*lines):
        monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))

    return type_lines


def test_queries_and_an_explanation(index, run, type_in):
    type_in("bark", "", "cats", ":explain 2", ":help", ":quit", "night")
    code, out, err = run("search", index)
    assert (code, err) == (0, "")
    contributions = [
        out.index(text) for text in ("dogs bark", "naps", "cats sleep", "word", ":explain N")
    ]
    assert contributions == sorted(contributions)
    assert "100.0%" in out
    assert "night" not in out[out.index("naps") :]


def test_errors_do_not_end_it(index, run, type_in):
    type_in(":explain 1", ":jump", "cats", ":explain 3", ":explain 0", "bark")
    code, out, err = run("search", index, "--top-k", "1")
    assert code == 0
    assert err.splitlines() == [
        "error: :explain 1: the last query has 0 results",
        "error: :jump: no such command; :help lists them",
        "error: :explain 3: the last query has 1 results",
        "error: :explain 0: the last query has 1 results",
    ]
    assert "dogs bark" in out


def test_options_that_need_a_query(index, run):
    for options in (["--json"], ["--facet", "year"], ["--relevant", "1"]):
        assert_error(run("search", index, *options), "need a query")
