"""Scored lists of texts, {query, pos, neg, pos_scores, neg_scores}: literal, damaged, random."""

import gzip
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lexicept.candidates.lists import CandidateList, Lists
from lexicept.candidates.text_datasets import TextRow, import_texts, to_row, write_texts_dataset
from lexicept.corpora import Qrel, read_documents, read_qrels, read_queries
from lexicept.corpora.records import Location
from lexicept.errors import InputError
from support.commands import assert_error

PLACE = Location("rows", 3)
SCORED = {
    "query": "who wrote it?",
    "pos": ["she did", "he did"],
    "neg": ["nobody", "rain", "he did"],
    "pos_scores": [9.5, 3],
    "neg_scores": [0.25, -7, 1],
    "prompt": "Given a question, retrieve passages.",
    "type": "normal",
}
PLAIN = {"query": "when?", "pos": ["today"], "neg": ["rain"]}


def test_a_row_of_bge():
    texts = ["she did", "he did", "nobody", "rain", "he did"]
    assert to_row(PLACE, SCORED) == TextRow("who wrote it?", texts, 2, [9.5, 3.0, 0.25, -7.0, 1.0])
    assert to_row(PLACE, PLAIN) == TextRow("when?", ["today", "rain"], 1, None)
    nothing = {**PLAIN, "pos_scores": None, "neg_scores": None}
    assert to_row(PLACE, nothing).scores is None
    alone = {"query": "q", "pos": ["a"], "neg": [], "pos_scores": [2]}
    assert to_row(PLACE, alone) == TextRow("q", ["a"], 1, [2.0])


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"query": None}, "the column query must hold a text; columns: query, pos"),
        ({"query": "\ud800"}, "the column query: surrogates not allowed"),
        ({"pos": "she did"}, "pos must be a list of texts"),
        ({"neg": None}, "neg must be a list of texts"),
        ({"neg": ["a", 2]}, "the column neg must hold a text"),
        ({"pos_scores": None}, "pos_scores must be a list of numbers"),
        ({"neg_scores": None}, "neg_scores must be a list of numbers"),
        ({"neg_scores": 1.0}, "neg_scores must be a list of numbers"),
        ({"pos_scores": [1]}, "1 pos_scores for 2 texts"),
        ({"neg_scores": [1, 2, 3, 4]}, "4 neg_scores for 3 texts"),
        ({"neg_scores": [1, 2, "3"]}, "a score must be a finite number, not '3'"),
        ({"neg_scores": [1, 2, math.nan]}, "a score must be a finite number, not nan"),
        ({"neg_scores": [1, 2, True]}, "a score must be a finite number, not True"),
        ({"pos": [], "neg": [], "pos_scores": [], "neg_scores": []}, "pos and neg are empty"),
    ],
)
def test_rows_that_are_refused(changes, problem):
    with pytest.raises(InputError) as caught:
        to_row(PLACE, {**SCORED, **changes})
    assert str(caught.value).startswith(f"rows, line 3: {problem}")


def test_rows_become_lists_of_ids(tmp_path):
    """Both positives are judged; a text that comes again keeps its first score."""
    lists = write_texts_dataset([SCORED, PLAIN, SCORED], tmp_path / "out")
    ids = {document.text: document.id for document in read_documents(tmp_path / "out")}
    assert list(ids) == ["she did", "he did", "nobody", "rain", "today"]
    asked = {query.text: query.id for query in read_queries(tmp_path / "out", "train")}
    names = tuple(ids[text] for text in ("she did", "he did", "nobody", "rain"))
    first = CandidateList(asked["who wrote it?"], names, 2, (9.5, 3.0, 0.25, -7.0))
    second = CandidateList(asked["when?"], (ids["today"], ids["rain"]), 1)
    assert list(lists) == [first, second, first]
    assert list(read_qrels(tmp_path / "out", "train")) == [
        Qrel(asked["who wrote it?"], ids["she did"], 1),
        Qrel(asked["who wrote it?"], ids["he did"], 1),
        Qrel(asked["when?"], ids["today"], 1),
    ]


def test_unscored_rows_are_left_out(tmp_path):
    """SPLARE, Appendix A: only samples that the reranker annotated."""
    (one,) = write_texts_dataset([PLAIN, SCORED], tmp_path / "out", scored_only=True)
    assert one.scores == (9.5, 3.0, 0.25, -7.0)
    assert "today" not in [document.text for document in read_documents(tmp_path / "out")]
    with pytest.raises(InputError, match="no lists to write"):
        write_texts_dataset([PLAIN], tmp_path / "none", scored_only=True)
    assert not (tmp_path / "none").exists()


def test_the_command_reads_a_folder_of_files(run, tmp_path):
    folder, out = tmp_path / "bge", tmp_path / "out"
    (folder / "zh").mkdir(parents=True)
    (folder / "en.jsonl").write_text(json.dumps(SCORED) + "\n")
    (folder / "README.md").write_text("not data")
    with gzip.open(folder / "zh" / "one.jsonl.gz", "wt", encoding="utf-8") as file:
        file.write(json.dumps(PLAIN, ensure_ascii=False) + "\n")
    arguments = ("data", "import", folder, "--out", out)
    assert run(*arguments, "--json").json == {"lists": 2, "folder": str(out)}
    assert [len(one.documents) for one in Lists.open(out / "lists.jsonl")] == [4, 2]
    assert_error(run(*arguments), "out exists already")
    one = ("data", "import", folder / "en.jsonl", "--out", tmp_path / "one", "--scored-only")
    assert run(*one, "--json").json["lists"] == 1
    (folder / "en.jsonl").write_text(json.dumps(SCORED) + '\n{"query": "q", "pos": 3}\n')
    failed = run("data", "import", folder, "--out", tmp_path / "bad")
    assert_error(failed, f"{folder / 'en.jsonl'}, line 2: pos must be a list of texts")
    assert not (tmp_path / "bad").exists()
    (tmp_path / "empty").mkdir()
    empty = run("data", "import", tmp_path / "empty", "--out", tmp_path / "bad")
    assert_error(empty, "empty: no JSON Lines files")


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
NUMBERS = st.floats(-1e6, 1e6)


@given(st.data())
def test_any_rows_come_back(tmp_path_factory, data):
    rows = []
    for _ in range(data.draw(st.integers(1, 4))):
        row: dict[str, Any] = {"query": data.draw(TEXTS)}
        row["pos"] = data.draw(st.lists(TEXTS, min_size=1, max_size=3))
        row["neg"] = data.draw(st.lists(TEXTS, max_size=3))
        if data.draw(st.booleans()):
            for name in ("pos", "neg"):
                size = len(row[name])
                row[f"{name}_scores"] = data.draw(st.lists(NUMBERS, min_size=size, max_size=size))
        rows.append(row)
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    lists = import_texts(str(path), path.with_name("out"))
    texts = {document.id: document.text for document in read_documents(path.with_name("out"))}
    for row, found in zip(rows, lists, strict=True):
        listed = dict.fromkeys(row["pos"] + row["neg"])
        assert [texts[name] for name in found.documents] == list(listed)
        assert found.relevant == len(set(row["pos"]))
        if "pos_scores" in row:
            values = row["pos_scores"] + row["neg_scores"]
            first = dict(reversed(list(zip(row["pos"] + row["neg"], values, strict=True))))
            assert found.scores == tuple(float(first[text]) for text in listed)
        else:
            assert found.scores is None


KEYS = st.sampled_from(["query", "pos", "neg", "pos_scores", "neg_scores", "positive", "score"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.floats() | TEXTS, lambda inner: st.lists(inner, max_size=3)
)


@given(st.lists(st.dictionaries(KEYS, VALUES), max_size=3), st.binary(max_size=8))
def test_any_lines_are_rows_or_refused(tmp_path_factory, rows, rest):
    path = tmp_path_factory.mktemp("any") / "rows.jsonl"
    path.write_bytes("".join(json.dumps(row) + "\n" for row in rows).encode() + rest)
    out = path.with_name("out")
    try:
        lists = import_texts(str(path), out)
    except InputError as error:
        problem = str(error)
    else:
        assert len(lists) == len(list(lists)) > 0
        return
    assert str(path.parent) in problem
    assert not out.exists()
