"""Judgements of documents outside the index: refused, or counted in a warning."""

import re
from pathlib import Path

import pytest

import lexicept
from lexicept.errors import InputError, LexiceptWarning
from support.collections import write_beir

DOCUMENTS = {"d1": "apple banana", "d2": "cherry"}
QUERIES = {"q1": "apple", "q2": "cherry"}


@pytest.fixture
def index(tmp_path):
    folder = write_beir(tmp_path / "own", DOCUMENTS, QUERIES, {"test": "q1 0 d1 1\nq2 0 d2 0\n"})
    return lexicept.build(folder, tmp_path / "index", vocabulary="words").path


@pytest.fixture
def foreign(tmp_path):
    """Judgements of another collection, and judgements with one of three documents in the index."""
    qrels = {"test": "q1 0 x1 1\nq2 0 x2 1\nq2 0 x1 0\n", "some": "q1 0 d1 1\nq2 0 x 1\nq2 0 y 0\n"}
    return write_beir(tmp_path / "foreign", {}, QUERIES, qrels)


def sweep(index: Path, dataset: Path, split: str) -> object:
    out = index.with_name("sweep")
    return lexicept.sweep(
        index,
        dataset,
        out,
        split=split,
        query_max_active_dims=[None],
        document_max_active_dims=[None],
        alpha=[None],
    )


def report(index: Path, dataset: Path, split: str) -> object:
    return lexicept.report(index, index.with_name("report"), queries=dataset, split=split)


@pytest.mark.parametrize("call", [lexicept.evaluate, sweep, report])
def test_another_collections_judgements_are_refused(call, index, foreign):
    message = f"{index}: none of the 2 documents that {foreign} (test) judges is in this index"
    with pytest.raises(InputError, match=f"^{re.escape(message)}"):
        call(index, foreign, "test")
    assert {path.name for path in index.parent.iterdir()} == {"own", "foreign", "index"}


@pytest.mark.parametrize("call", [lexicept.evaluate, sweep])
def test_missing_documents_are_counted(call, index, foreign):
    message = f"{index}: 2 of the 3 documents that {foreign} (some) judges are not in this index"
    with pytest.warns(LexiceptWarning, match=f"^{re.escape(message)}") as caught:
        call(index, foreign, "some")
    assert len(caught) == 1


def test_judged_queries_without_a_text_are_named(index):
    qrels = "q1 0 d1 1\nq1 0 d1 1\n" + "".join(f"x{n} 0 d2 1\n" for n in range(6)) + "e 0 d2 1\n"
    folder = write_beir(index.parent / "some", {}, {"q1": "apple", "e": " "}, {"test": qrels})
    message = f"{folder} (test): 7 of the 8 judged queries have no text, so that a search scores 0:"
    with pytest.warns(LexiceptWarning) as caught:
        evaluation = lexicept.evaluate(index, folder)
    assert [str(warning.message) for warning in caught] == [f"{message} x0, x1, x2, x3, x4, …"]
    assert evaluation.values["R@100"] == 1 / 8


def test_a_pair_with_two_grades_is_refused(index):
    folder = write_beir(index.parent / "two", {}, QUERIES, {"test": "q1 0 d1 1\nq1 0 d1 2\n"})
    message = "(test): query 'q1' and document 'd1' are judged twice, 1 and 2"
    with pytest.raises(InputError, match=re.escape(f"{folder} {message}")):
        lexicept.evaluate(index, folder)
