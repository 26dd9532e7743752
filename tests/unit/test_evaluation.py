"""Measures by hand and as ir_measures computes them, significance, and TREC runs."""

import gzip
import re
import shutil
from math import inf, log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lexicept.corpora import Qrel, Query
from lexicept.errors import InputError
from lexicept.evaluation import effectiveness
from lexicept.evaluation.effectiveness import (
    MEASURES,
    JudgedQueries,
    evaluate,
    evaluate_index,
    evaluate_queries,
)
from lexicept.evaluation.runs import read_run, without_identical_ids, write_run
from lexicept.evaluation.significance import holm, paired_t_test
from support.indexes import build

QRELS = [Qrel("1", "a", 2), Qrel("1", "b", 1), Qrel("1", "c", 0), Qrel("2", "a", 1)]
RUN = {"1": {"c": 3.0, "a": 2.0, "b": 1.0}, "2": {"b": 1.0, "a": 0.5}}


def test_by_hand():
    first = (2 / log2(3) + 1 / log2(4)) / (2 / log2(2) + 1 / log2(3))
    second = 1 / log2(3)
    values = evaluate_queries(QRELS, RUN, ["nDCG@10", "RR@10", "R@1", "Success@1", "P@2"])
    assert values["nDCG@10"] == pytest.approx({"1": first, "2": second}, rel=1e-6)
    assert values["RR@10"] == {"1": 0.5, "2": 0.5}
    assert values["R@1"] == {"1": 0, "2": 0}
    assert values["Success@1"] == {"1": 0, "2": 0}
    assert values["P@2"] == {"1": 0.5, "2": 0.5}
    assert evaluate(QRELS, RUN, ["nDCG@10"])["nDCG@10"] == pytest.approx(
        (first + second) / 2, rel=1e-6
    )


@pytest.mark.parametrize(
    ("name", "of_first"),
    [("P(rel=2)@2", 0.5), ("P(cutoff=2)", 0.5), ("IPrec@0.5", 2 / 3), ("MRR@10", 0.5),
     ("nDCG(gains={1: 0, 2: 5})@10", 1 / log2(3))],
)  # fmt: skip
def test_measures_with_parameters(name, of_first):
    assert evaluate_queries(QRELS, RUN, [name])[name]["1"] == pytest.approx(of_first, rel=1e-5)


# Equal scores

LEADING_AND_TRAILING = {
    "AP": (1, 1 / 15), "Compat": (1, 0.011514), "P@5": (0.2, 0), "R@14": (1, 0), "RR@10": (1, 0),
    "infAP": (1, 1 / 15), "nDCG": (1, 0.25), "ERR@10": (0.0625, 0),
    "nDCG(dcg='exp-log2')@10": (1, 0),
}  # fmt: skip
"""Values for 15 documents, the relevant one leading and trailing, of each provider."""

DOCUMENTS = [f"d{i:02}" for i in range(15)]


@pytest.mark.parametrize("relevant", ["d00", "d07", "d14"])
@pytest.mark.parametrize("score", [1.0, 0.0, -2.5, 1e30])
def test_equal_scores_rank_in_the_order_of_the_run_for_every_measure(relevant, score):
    others = [document for document in DOCUMENTS if document != relevant]
    qrels = [Qrel("a", relevant, 1)]
    for name, (leading, trailing) in LEADING_AND_TRAILING.items():
        if name == "ERR@10" or "exp" in name:
            continue  # by Perl: tested below
        run = {"a": dict.fromkeys([relevant, *others], score)}
        assert evaluate(qrels, run, [name])[name] == pytest.approx(leading, abs=1e-6), name
        run = {"a": dict.fromkeys([*others, relevant], score)}
        assert evaluate(qrels, run, [name])[name] == pytest.approx(trailing, abs=1e-6), name


@pytest.mark.skipif(shutil.which("perl") is None, reason="gdeval is a Perl script")
@pytest.mark.parametrize("query", ["12", "q-b", "a b"])
def test_gdeval_ranks_in_the_order_of_the_run_whatever_the_ids_of_queries(query):
    for name in ("ERR@10", "nDCG(dcg='exp-log2')@10"):
        values = [
            evaluate([Qrel(query, d, 1)], {query: dict.fromkeys(DOCUMENTS, 1.0)}, [name])[name]
            for d in ("d00", "d14")
        ]
        assert values == list(LEADING_AND_TRAILING[name])


def test_scores_that_single_precision_can_not_tell_apart_are_not_equal():
    """trec_eval keeps scores in single precision."""
    run = {"1": {"b": 1.0, "a": 1.0 + 1e-12}}
    assert evaluate([Qrel("1", "a", 1)], run, ["nDCG@10", "RR@1"]) == {"nDCG@10": 1, "RR@1": 1}


def test_the_lines_of_a_file_are_the_order_of_equal_scores(tmp_path):
    (tmp_path / "a.run").write_text("1 Q0 z 1 2 x\n1 Q0 m 3 1 x\n1 Q0 a 2 1 x\n")
    run = read_run(tmp_path / "a.run")
    assert evaluate([Qrel("1", "m", 1)], run, ["RR", "P@2"]) == {"RR": 0.5, "P@2": 0.5}
    write_run(tmp_path / "b.run", run)
    assert list(read_run(tmp_path / "b.run")["1"]) == ["z", "m", "a"]


def test_an_index_ranks_equal_documents_as_its_results_do(tmp_path):
    index = build(tmp_path / "index", dict.fromkeys(DOCUMENTS, "otter swims"))
    for rank, relevant in enumerate(DOCUMENTS, 1):
        judged = JudgedQueries([Query("q", "otter")], [Qrel("q", relevant, 1)], ["RR", "AP"])
        values = evaluate_index(index, judged).values
        assert values["RR"] == values["AP"] == pytest.approx(1 / rank)
        assert values["Success@5"] == (rank <= 5)
        assert values["RR@10"] == pytest.approx(1 / rank if rank <= 10 else 0)


def test_a_value_that_ir_measures_fails_to_compute_is_an_error():
    with pytest.raises(InputError, match=r"can't compute Accuracy of this run: .*division by zero"):
        evaluate([Qrel("1", "a", 1)], {"1": {"a": 1.0}}, ["Accuracy"])
    with pytest.raises(InputError, match=r"can't compute AP\(rel=0\) of this run: "):
        evaluate([Qrel("1", "a", 1)], {"1": {"a": 1.0}}, ["AP(rel=0)"])


@pytest.mark.parametrize("results", [{}, {"2": {}}])
@pytest.mark.parametrize("name", ["RR@10", "Judged@5", "NumRel", "Compat"])
def test_a_judged_query_without_results_scores_0_in_every_measure(results, name):
    assert evaluate_queries(QRELS, {"1": {"a": 1.0}, **results}, [name])[name]["2"] == 0


def test_what_runs_and_judgements_may_lack():
    assert evaluate(QRELS, {}) == dict.fromkeys(MEASURES, 0.0)
    assert evaluate(QRELS, {**RUN, "3": {"a": 1.0}}) == evaluate(QRELS, RUN)
    with pytest.raises(InputError, match="no judgements"):
        evaluate([], RUN)


@pytest.mark.parametrize(
    "name",
    ["nDGC@10", "", "nDCG@", "P", "P@0", "P@-1", "nDCG(dcg='x')@10", "RBP", "P@5 P@6", "P(2)@5",
     "P(a=1)@5", "P@5@6", "read_trec_run", "P@" + 9999 * "(", "P\0"],
)  # fmt: skip
@pytest.mark.parametrize("run", [RUN, {}])
def test_unknown_measures_are_refused(name, run):
    with pytest.raises(InputError) as caught:
        evaluate(QRELS, run, ["RR@10", name])
    assert str(caught.value).startswith(f"no measure {name!r}; examples: nDCG@10, RR@10,")


# Queries that are documents of the collection

SELF = {"a": "cat dog", "b": "cat dog bird", "c": "cat", "d": "bird"}
"""Documents, of which "a" and "b" are queries too; each is judged relevant for the other."""


def test_a_query_that_is_a_document_does_not_retrieve_itself(tmp_path):
    """BEIR's ``ignore_identical_ids``: the relevant document moves from the second place up."""
    index = build(tmp_path / "index", SELF)
    queries, qrels = [Query("a", SELF["a"])], [Qrel("a", "b", 1)]
    assert [hit.id for hit in index.search([SELF["a"]], 2)[0]] == ["a", "b"]
    plain = evaluate_index(index, JudgedQueries(queries, qrels))
    assert plain.values["nDCG@10"] == pytest.approx(1 / log2(3))
    assert plain.values["RR@10"] == 0.5
    ignoring = evaluate_index(index, JudgedQueries(queries, qrels, ignore_identical_ids=True))
    assert (ignoring.values["nDCG@10"], ignoring.values["RR@10"]) == (1.0, 1.0)
    expected = {"a": {name: score for name, score in plain.run["a"].items() if name != "a"}}
    assert ignoring.run == expected
    # BM25's own E², of the same queries, leaves the same hits out.
    assert ignoring.values["delta_e2"] == pytest.approx(0.0)
    assert plain.values["delta_e2"] == pytest.approx(0.0)


def test_a_run_without_identical_ids_is_as_deep_for_every_query(tmp_path, monkeypatch):
    run = {"a": {"b": 3.0, "a": 2.0, "c": 1.0}, "x": {"b": 3.0, "a": 2.0, "c": 1.0}}
    assert without_identical_ids(run, 2) == {"a": {"b": 3.0, "c": 1.0}, "x": {"b": 3.0, "a": 2.0}}
    monkeypatch.setattr(effectiveness, "RUN_DEPTH", 2)
    index = build(tmp_path / "index", SELF)
    queries = [Query("a", "cat"), Query("none", "cat")]
    report = evaluate_index(
        index, JudgedQueries(queries, [Qrel("a", "b", 1)], ignore_identical_ids=True)
    )
    assert {query: list(hits) for query, hits in report.run.items()} == {
        "a": ["c", "b"],
        "none": ["c", "a"],
    }


# Significance


@pytest.mark.parametrize(
    ("differences", "expected"),
    [([0.0, 0.0], (0.0, 1.0)), ([0.25, 0.25], (inf, 0.0)), ([-0.25, -0.25], (-inf, 0.0))],
)
def test_differences_that_are_the_same_everywhere(differences, expected):
    assert paired_t_test(differences) == expected


def test_holm_s_correction():
    # .005 · 4, .01 · 3, .03 · 2, and .04 · 1, which is raised to the one before.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.02]) == [0.02]
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []


# Runs


def test_runs_are_written_best_first_and_read(tmp_path):
    write_run(tmp_path / "run", {"q1": {"a": 0.5, "b": 2.0}, "q2": {"a": 1e-7}}, tag="t")
    assert (tmp_path / "run").read_text() == ("q1 Q0 b 1 2 t\nq1 Q0 a 2 0.5 t\nq2 Q0 a 1 1e-07 t\n")
    path = tmp_path / "x.run"
    path.write_bytes(b"q\tQ0\ta\t1\t2.5\tt\r\nq Q0 b 2 -1 t\r\n")
    assert read_run(path) == {"q": {"a": 2.5, "b": -1.0}}
    with pytest.raises(InputError, match="No such file"):
        read_run(tmp_path / "none")


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(
    lambda name: name.split() == [name]
)
SCORES = st.floats(allow_nan=False, allow_infinity=False, width=32)


@given(st.dictionaries(NAMES, st.dictionaries(NAMES, SCORES, min_size=1)))
def test_a_written_run_is_read_back(tmp_path_factory, run):
    path = tmp_path_factory.getbasetemp() / "run"
    write_run(path, run)
    read = read_run(path)
    assert read.keys() == run.keys()
    for query, documents in run.items():
        # Nine digits tell single-precision scores apart.
        assert read[query] == pytest.approx(documents, rel=1e-8, abs=0)
        ranked = list(read[query].values())
        assert ranked == sorted(ranked, reverse=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"q Q0 a 1 2.5 t\n\nq Q0 b 2 x t\n", "line 3: score 'x' is not a finite number"),
        (b"q Q0 a 1 nan t\n", "line 1: score 'nan' is not a finite number"),
        (b"q Q0 a 1 1e999 t\n", "line 1: score '1e999' is not a finite number"),
        (b"q Q0 a 1 2.5 t\nq Q0 b 2 2.0\n", "line 2: 5 columns, a run has 6"),
        (b"q Q0 a 1 2 t\nr Q0 a 1 2 t\nq Q0 a 2 1 t\n", "line 3: 'a' again for query 'q'"),
        (b"q Q0 \xff 1 2 t\n", "line 1: not UTF-8"),
    ],
)
def test_damaged_runs_name_the_line(tmp_path, text, message):
    path = tmp_path / "x.run"
    path.write_bytes(text)
    with pytest.raises(InputError) as caught:
        read_run(path)
    assert str(path) in str(caught.value)
    assert message in str(caught.value)


def test_gzipped_runs(tmp_path):
    run = {"q1": {"a": 2.0, "b": 0.5}}
    for name in ("x.run.gz", "y.RUN.GZ"):
        write_run(tmp_path / name, run, tag="my system")
        assert read_run(tmp_path / name) == run
    data = (tmp_path / "x.run.gz").read_bytes()
    assert data == (tmp_path / "y.RUN.GZ").read_bytes()
    assert gzip.decompress(data) == b"q1 Q0 a 1 2 my_system\nq1 Q0 b 2 0.5 my_system\n"
    path = tmp_path / "x2.run.gz"
    path.write_bytes(gzip.compress(b"q Q0 a 1 2 t\n")[:-4])
    with pytest.raises(InputError, match=re.escape(f"{path}: cannot be read")):
        read_run(path)
