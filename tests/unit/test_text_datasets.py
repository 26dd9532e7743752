"""Scored lists of texts, {query, pos, neg, pos_scores, neg_scores}: literal, damaged, random."""

import gzip
import json
import math
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lexicept.candidates.lists import CandidateList, Lists
from lexicept.candidates.text_datasets import TextRow, import_texts, to_row
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


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def test_a_row_of_bge():
    texts = ["she did", "he did", "nobody", "rain", "he did"]
    assert to_row(PLACE, SCORED) == TextRow("who wrote it?", texts, 2, [9.5, 3.0, 0.25, -7.0, 1.0])
    assert to_row(PLACE, PLAIN) == TextRow("when?", ["today", "rain"], 1, None)
    assert to_row(PLACE, {**PLAIN, "pos_scores": None, "neg_scores": None}).scores is None
    alone = {"query": "q", "pos": ["a"], "neg": [], "pos_scores": [2]}
    assert to_row(PLACE, alone) == TextRow("q", ["a"], 1, [2.0])


@pytest.mark.parametrize(
    ("changes", "message"),
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
def test_rows_that_are_refused(changes, message):
    with pytest.raises(InputError) as caught:
        to_row(PLACE, {**SCORED, **changes})
    assert str(caught.value).startswith(f"rows, line 3: {message}")


def test_bad_rows(tmp_path):
    out = tmp_path / "out"
    rows = write(tmp_path / "rows.jsonl", [PLAIN, {"query": "x", "positive": "y"}])
    with pytest.raises(InputError, match="pos must be a list of texts; columns: query, positive"):
        import_texts(rows, out)
    assert not out.exists()
    assert len(import_texts(write(rows, [PLAIN]), out)) == 1
    with pytest.raises(InputError, match="exists already"):
        import_texts(rows, out)


def test_rows_become_lists_of_ids(tmp_path):
    """Ids are the first 20 digits of SHA-256; both positives are judged, and a repeated text keeps
    its first score."""
    lists = import_texts(write(tmp_path / "rows", [SCORED, PLAIN, SCORED]), tmp_path / "out")
    ids = {document.text: document.id for document in read_documents(tmp_path / "out")}
    assert list(ids) == ["she did", "he did", "nobody", "rain", "today"]
    assert ids["today"] == sha256(b"today").hexdigest()[:20]
    ids_of_queries = {query.text: query.id for query in read_queries(tmp_path / "out", "train")}
    names = tuple(ids[text] for text in ("she did", "he did", "nobody", "rain"))
    first = CandidateList(ids_of_queries["who wrote it?"], names, 2, (9.5, 3.0, 0.25, -7.0))
    second = CandidateList(ids_of_queries["when?"], (ids["today"], ids["rain"]), 1)
    assert list(lists) == [first, second, first]
    assert list(read_qrels(tmp_path / "out", "train")) == [
        Qrel(ids_of_queries["who wrote it?"], ids["she did"], 1),
        Qrel(ids_of_queries["who wrote it?"], ids["he did"], 1),
        Qrel(ids_of_queries["when?"], ids["today"], 1),
    ]


def test_unscored_rows_are_left_out(tmp_path):
    """SPLARE, Appendix A: only samples annotated by the reranker."""
    rows = write(tmp_path / "rows", [PLAIN, SCORED])
    (dataset,) = import_texts(rows, tmp_path / "out", scored_only=True)
    assert dataset.scores == (9.5, 3.0, 0.25, -7.0)
    assert "today" not in [document.text for document in read_documents(tmp_path / "out")]
    with pytest.raises(InputError, match="no lists to write"):
        import_texts(write(rows, [PLAIN]), tmp_path / "none", scored_only=True)
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
    assert [len(candidates.documents) for candidates in Lists.open(out / "lists.jsonl")] == [4, 2]
    assert_error(run(*arguments), "out exists already")
    command = ("data", "import", folder / "en.jsonl", "--out", tmp_path / "one", "--scored-only")
    assert run(*command, "--json").json["lists"] == 1
    (tmp_path / "empty").mkdir()
    empty = run("data", "import", tmp_path / "empty", "--out", tmp_path / "bad")
    assert_error(empty, "empty: no JSON Lines files")


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
NUMBERS = st.floats(-1e6, 1e6)


@given(st.data())
def test_any_rows_come_back(tmp_path_factory, data):
    records = []
    for _ in range(data.draw(st.integers(1, 4))):
        record: dict[str, Any] = {"query": data.draw(TEXTS)}
        record["pos"] = data.draw(st.lists(TEXTS, min_size=1, max_size=3))
        record["neg"] = data.draw(st.lists(TEXTS, max_size=3))
        if data.draw(st.booleans()):
            for name in ("pos", "neg"):
                size = len(record[name])
                record[f"{name}_scores"] = data.draw(
                    st.lists(NUMBERS, min_size=size, max_size=size)
                )
        records.append(record)
    path = write(tmp_path_factory.mktemp("rows") / "rows.jsonl", records)
    lists = import_texts(str(path), path.with_name("out"))
    texts = {document.id: document.text for document in read_documents(path.with_name("out"))}
    for record, result in zip(records, lists, strict=True):
        listed = dict.fromkeys(record["pos"] + record["neg"])
        assert [texts[name] for name in result.documents] == list(listed)
        assert result.relevant == len(set(record["pos"]))
        if "pos_scores" in record:
            values = record["pos_scores"] + record["neg_scores"]
            first = dict(reversed(list(zip(record["pos"] + record["neg"], values, strict=True))))
            assert result.scores == tuple(float(first[text]) for text in listed)
        else:
            assert result.scores is None
