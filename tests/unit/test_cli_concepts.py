"""Concepts on the command line."""

import pytest

from lexicept.index.updates import relabel
from support.commands import assert_error
from support.indexes import build_described
from support.vowels import AY

pytestmark = pytest.mark.usefixtures("_vowels")


@pytest.fixture
def path(tmp_path):
    return build_described(tmp_path / "index")


def test_the_list(path, run):
    output = run("index", "concepts", path, "--json").json
    assert [concept["number"] for concept in output["concepts"]] == [3, 2, 0, 1]
    assert output["concepts"][2] == AY.to_json()
    assert output["found"] == 4
    lines = run("index", "concepts", path, "--top-k", 1).out.splitlines()
    assert lines[1].split() == ["3", "33.3%", "oh", "1.00"]
    assert lines[2] == "3 more (--top-k)"
    assert (
        run("index", "concepts", path, "--find", "bee", "--json").json["concepts"][0]["number"] == 1
    )
    assert run("index", "concepts", path, "--find", "nothing", "--json").json["found"] == 0


def test_one(path, run):
    output = run("index", "concepts", path, 0, "--json").json
    assert {document["id"] for document in output.pop("top_documents")} == {"d/0", "d/2"}
    expected = AY.to_json()
    del expected["top_documents"]
    assert output == expected
    printed = run("index", "concepts", path, 0).out
    for fragment in (
        "0: Ay",
        "explanations",
        "2 of 3",
        "25.000%",
        "a 4.0, cat 2.0",
        "0.50  oh (3)",
        "not tested",
    ):
        assert fragment in printed
    assert "5.00  cat a  d/0" in printed


def test_what_is_refused(path, run, tmp_path):
    assert_error(run("index", "concepts", path, 5), "has no concept 5, only 0 to 4")
    assert_error(run("index", "concepts", path, 1, "--find", "x"), "can't be combined")
    corpus, words = tmp_path / "corpus", tmp_path / "words"
    corpus.mkdir()
    (corpus / "a.txt").write_text("cat")
    assert run("build", corpus, "--vocabulary", "words", "--out", words).code == 0
    assert_error(run("index", "concepts", words), "has no vocabulary 'concepts', only: words")


def test_labels_are_no_markup(path, run):
    relabel(path, {0: "[red]<script>"}, "llm")
    for arguments in ((), (0,)):
        assert "[red]<script>" in run("index", "concepts", path, *arguments).out
