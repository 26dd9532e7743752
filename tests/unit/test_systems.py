"""Evaluations of several systems: kinds, intervals, paired tests, files."""

import csv
import gzip
import json
from math import isnan, log2

import ir_measures
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_1samp, ttest_rel

import lexicept
from lexicept.corpora import Qrel
from lexicept.errors import InputError
from lexicept.evaluation.effectiveness import JudgedQueries, evaluate_run
from lexicept.evaluation.runs import read_run
from lexicept.evaluation.significance import compare, intervals
from lexicept.index.impacts import VocabularySettings
from lexicept.index.reader import IndexReader
from lexicept.pipelines.systems import resolve_systems
from lexicept.weighting import BM25, Splade
from support.collections import write_beir
from support.indexes import build, build_of
from support.vowels import Vowels

DOCUMENTS = {
    "d1": "apple apple apple apple owl",
    "d2": "apple emu",
    "d3": "cherry fig",
    "d4": "owl emu fig apple",
}
QUERIES = {"q1": "apple", "q2": "cherry owl", "q3": "fig emu", "q4": "owl"}
JUDGED = "q1 0 d1 1\nq2 0 d3 2\nq2 0 d1 1\nq3 0 d4 1\nq4 0 d4 1\n"


@pytest.fixture
def beir(tmp_path):
    return write_beir(tmp_path / "beir", DOCUMENTS, QUERIES, {"test": JUDGED})


@pytest.fixture
def both(tmp_path, _vowels):
    """An index of words and of vowels as concepts."""
    return build(tmp_path / "both.index", DOCUMENTS, concepts=VocabularySettings(Splade())).path


# Statistics

VALUES = st.lists(st.tuples(*[st.integers(0, 8)] * 3), min_size=3, max_size=12)


@given(VALUES)
def test_intervals_and_tests_are_scipys(systems_measured):
    columns = [np.array(column) / 8 for column in zip(*systems_measured, strict=True)]
    systems = {
        name: {"P@8": {str(n): float(v) for n, v in enumerate(column)}}
        for name, column in zip("abc", columns, strict=True)
    }
    for name, column in zip("abc", columns, strict=True):
        result = intervals(systems[name])["P@8"]
        if np.ptp(column):
            expected = ttest_1samp(column, 0).confidence_interval(0.95)
            assert result == pytest.approx(tuple(expected), abs=1e-12)
        else:
            assert result == (column[0], column[0])
    for comparison, column in zip(compare(systems), columns[1:], strict=True):
        if np.ptp(column - columns[0]):
            expected = ttest_rel(column, columns[0])
            assert (comparison.t, comparison.p) == pytest.approx(
                (expected.statistic, expected.pvalue)
            )
            assert comparison.interval == pytest.approx(tuple(expected.confidence_interval(0.95)))
        assert comparison.difference == pytest.approx(float((column - columns[0]).mean()))


def test_holm_corrects_for_the_systems_of_a_measure():
    base = {"M": {"1": 0.0, "2": 0.0, "3": 0.0}, "N": {"1": 0.5, "2": 0.5, "3": 0.5}}
    near = {"M": {"1": 0.1, "2": 0.2, "3": 0.3}, "N": base["N"]}
    far = {"M": {"1": 0.3, "2": 0.3, "3": 0.4}, "N": base["N"]}
    comparisons = compare({"base": base, "near": near, "far": far})
    assert [(comparison.measure, comparison.system) for comparison in comparisons] == [
        *(("M", "near"), ("M", "far"), ("N", "near"), ("N", "far"))
    ]
    first, second = comparisons[:2]
    assert first.p == pytest.approx(0.0741799)
    assert second.p_holm == pytest.approx(2 * second.p)  # the smaller one
    assert first.p_holm == first.p
    assert [(comparison.p, comparison.p_holm) for comparison in comparisons[2:]] == [(1, 1), (1, 1)]


def test_one_query_has_neither_interval_nor_test():
    (comparison,) = compare({"a": {"M": {"1": 0.5}}, "b": {"M": {"1": 0.75}}})
    assert comparison.difference == 0.25
    assert all(
        isnan(value)
        for value in (*comparison.interval, comparison.t, comparison.p, comparison.p_holm)
    )
    assert all(isnan(value) for value in intervals({"M": {"1": 0.5}})["M"])


def test_a_run_is_measured_as_ir_measures_does():
    run = {"q1": {"d1": 2.0, "d2": 3.0}, "q2": {"d3": 1.0}, "other": {"d1": 1.0}}
    qrels = [Qrel("q1", "d1", 1), Qrel("q2", "d3", 2), Qrel("q3", "d1", 1)]
    result = evaluate_run(run, JudgedQueries([], qrels, ["AP"]))
    assert result.per_query["nDCG@10"] == pytest.approx({"q1": 1 / log2(3), "q2": 1, "q3": 0})
    judged = {"q1": {"d1": 1}, "q2": {"d3": 2}, "q3": {"d1": 1}}
    full = {**run, "q3": {"none": 1.0}}
    expected = ir_measures.calc_aggregate([ir_measures.AP], judged, full)
    assert result.values["AP"] == pytest.approx(expected[ir_measures.AP])
    assert result.without_results == 1


# Systems


def test_every_kind_of_system(both, beir, tmp_path):
    index = lexicept.open(both)
    index.reweight(1.0, out=tmp_path / "my.rra")
    lexicept.evaluate(index, beir, systems=["concepts"], out=tmp_path / "out")
    run = tmp_path / "out" / "runs" / "concepts.run.gz"
    names = ["words", "concepts", "all", "sparse", "bm25", "bm25:k1=0,b=0"]
    scores = lexicept.evaluate(index, beir, systems=[*names, tmp_path / "my.rra", run])
    assert list(scores.systems) == [*names, "my.rra", "concepts.run.gz"]
    values = {name: results.values for name, results in scores.systems.items()}
    # The words of this index are weighed by BM25 with the usual constants.
    assert values["words"] == pytest.approx(values["bm25"])
    assert values["bm25"]["delta_e2"] == 0
    # With k1 = 0 a word counts once, so that d1 loses its lead for "apple": ties are by id.
    assert scores.systems["bm25"].run["q1"]["d1"] > scores.systems["bm25"].run["q1"]["d2"]
    assert len(set(scores.systems["bm25:k1=0,b=0"].run["q1"].values())) == 1
    assert values["all"]["qd_flops"] == pytest.approx(
        values["words"]["qd_flops"] + values["concepts"]["qd_flops"]
    )
    assert values["sparse"] == values["all"]  # an index without vectors
    assert "qd_flops_with_offset" in values["my.rra"]
    assert "qd_flops" not in values["concepts.run.gz"]
    assert scores.systems["concepts.run.gz"].per_query == scores.systems["concepts"].per_query


def test_systems_have_names(both, beir, tmp_path):
    run = {"q1": {"d2": 1.0}}
    named = lexicept.evaluate(both, beir, systems={"mine": run, "theirs": "words"})
    assert list(named.systems) == ["mine", "theirs"]
    assert named.systems["mine"].without_results == 3
    assert named.values["RR@10"] == 0
    copy = lexicept.open(both).reweight(1.0, out=tmp_path / "other" / both.name)
    reader = IndexReader.open(both)
    # Equal names are told apart by their paths.
    assert list(resolve_systems([both, copy], reader)) == [str(reader.path), str(copy.path)]
    assert list(resolve_systems([], reader)) == list(resolve_systems({}, reader)) == ["all"]
    words = lexicept.build([{"text": "cats"}], tmp_path / "words", vocabulary="words")
    assert list(resolve_systems(["all", "sparse"], words.reader)) == ["all", "sparse"]


@given(st.text("bm25:k=1,.e- x", max_size=14).map("bm25:{}".format))
def test_any_text_is_a_bm25_or_refused(text):
    refused = ""
    try:
        (system,) = resolve_systems([text], None).values()  # type: ignore[arg-type]
    except InputError as error:
        refused = str(error)
    assert isinstance(system, BM25) if not refused else text in refused or "k1 must" in refused


def test_names_of_systems():
    result = resolve_systems(["bm25", "bm25:b=0.4", "bm25: k1=0.9, b=4e-1"], None)  # type: ignore[arg-type]
    assert list(result.values()) == [BM25(), BM25(b=0.4), BM25(0.9, 0.4)]


@pytest.mark.usefixtures("_vowels")
def test_the_command_compares_bm25_where_there_are_concepts_alone(tmp_path, beir, run):
    concepts = Vowels(), VocabularySettings(Splade())
    index = build_of(tmp_path / "concepts.index", DOCUMENTS, concepts)
    done = run("evaluate", index.path, beir, "--system", "bm25", "--json")
    assert list(done.json["systems"]) == ["bm25"]


def test_an_index_of_other_documents_is_refused(both, beir, tmp_path):
    other = lexicept.build(["apple"], tmp_path / "other", vocabulary="words")
    with pytest.raises(InputError, match=r"other: none of the 3 documents .* is in this index"):
        lexicept.evaluate(both, beir, systems=["words", other])


# Files


def test_what_is_written(both, beir, tmp_path):
    run = {"q1": {"d2": 1.0}, "q2": {"d3": 0.5}}
    systems = {"words": "words", "a/b": run, "a b": run}
    scores = lexicept.evaluate(both, beir, systems=systems, out=tmp_path / "out")
    with (tmp_path / "out" / "queries.csv").open(newline="") as file:
        records = list(csv.DictReader(file))
    assert [(record["system"], record["query"]) for record in records[:5]] == [
        *(("words", name) for name in QUERIES),
        ("a/b", "q1"),
    ]
    assert [record["text"] for record in records[:4]] == list(QUERIES.values())
    for record in records:
        for measure, values in scores.systems[record["system"]].per_query.items():
            assert float(record[measure]) == values[record["query"]]
    names = {path.name for path in (tmp_path / "out" / "runs").iterdir()}
    assert names == {"words.run.gz", "a_b.run.gz", "a_b-2.run.gz"}
    assert read_run(tmp_path / "out" / "runs" / "a_b-2.run.gz") == run
    data = gzip.decompress((tmp_path / "out" / "runs" / "a_b-2.run.gz").read_bytes())
    assert data.splitlines()[0] == b"q1 Q0 d2 1 1 a_b"
    report = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    assert report == json.loads(json.dumps(scores.to_json()))


def test_queries_have_conditions_of_their_own(tmp_path):
    texts = {"d1": "cats sleep", "d2": "cats bark, dogs bark", "d3": "dogs sleep and cats bark"}
    pets = [{"id": n, "text": t, "year": 2020 + i} for i, (n, t) in enumerate(texts.items())]
    queries = {"q1": 'cats "dogs bark"', "q2": "cats -bark", "q3": "cats year:>=2021", "q4": "cats"}
    judged = "".join(f"{name} 0 d1 1\n" for name in queries)
    folder = write_beir(tmp_path / "judged", {}, queries, {"test": judged})
    with lexicept.build(pets, tmp_path / "index", vocabulary="words") as index:
        scores = lexicept.evaluate(index, folder, systems=["words", "bm25"], syntax=True)
        assert lexicept.evaluate(index, folder, systems=["words", "bm25"], syntax=True) == scores
        plain = lexicept.evaluate(index, folder)
    for results in scores.systems.values():
        documents = {name: set(results.run.get(name, {})) for name in queries}
        assert documents == {"q1": {"d2"}, "q2": {"d1"}, "q3": {"d2", "d3"}, "q4": set(texts)}
    assert set(plain.run["q1"]) == set(texts)
