"""Points equal indexes with their settings; fronts, and going on after a kill."""

import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from lexicept.corpora import Qrel, Query
from lexicept.errors import InputError
from lexicept.evaluation.effectiveness import JudgedQueries, evaluate_index
from lexicept.evaluation.sweep import Point, Setting, SweepGrid, pareto_front, read_points, sweep
from lexicept.index.impacts import RRASettings, VocabularySettings
from lexicept.index.reader import IndexReader
from lexicept.measures import e2
from lexicept.weighting import BM25, Splade
from support.indexes import build

WORDS = ["cat", "dog", "owl", "yak", "elk", "emu", "ibis", "orca", "gaur", "koala", "bee", "ape"]


def make_texts(count: int, most: int, seed: int) -> list[str]:
    random = np.random.default_rng(seed)
    return [" ".join(random.choice(WORDS, random.integers(0, most))) for _ in range(count)]


# Short texts of few words: many documents tie, also around the tenth place.
TEXTS = {f"d{i}": text for i, text in enumerate(make_texts(60, 8, 0))}
QUERIES = [Query(f"q{i}", text) for i, text in enumerate(make_texts(12, 6, 1))]
QRELS = [
    Qrel(query.id, f"d{document}", int(relevance))
    for i, query in enumerate(QUERIES)
    for document, relevance in enumerate(np.random.default_rng(i).integers(0, 3, 60))
    if relevance
]
QRELS += [Qrel("never asked", "d0", 1)]
JUDGED = JudgedQueries(QUERIES, QRELS)

WORD_SETTINGS = VocabularySettings(BM25(k1=0.9), 3, 4)
CONCEPT_SETTINGS = VocabularySettings(Splade(0.5), 2, 3, pruning="impact")
GRID = SweepGrid((1, None), (2, None), alpha=(None, 1.25))


@pytest.fixture
def index(tmp_path, _vowels):
    """Words and vowels with limits, replaced by a sweep, and with RRA."""
    rra = RRASettings(3.0, 2, "exp(x)")
    settings = {"words": WORD_SETTINGS, "concepts": CONCEPT_SETTINGS}
    return build(tmp_path / "index", TEXTS, **settings, rra=rra)


def assert_equal(
    point: Point,
    index: IndexReader,
    vocabulary: str | None = None,
    queries: Sequence[Query] = QUERIES,
    qrels: Sequence[Qrel] = QRELS,
    **arguments: bool,
) -> None:
    """A point has the very numbers of an index's evaluation."""
    values = evaluate_index(index, JudgedQueries(queries, qrels, **arguments), vocabulary).values
    assert point.values == {name: values[name] for name in point.values}, point.setting
    assert [*point.values] == [
        *("nDCG@10", "RR@10", "qd_flops", "query_length", "document_length", "e2")
    ]


@pytest.mark.parametrize("vocabulary", [None, "words", "concepts"])
def test_points_are_those_of_indexes(index, vocabulary, tmp_path):
    points = sweep(index, JUDGED, GRID, tmp_path / "out", vocabulary)
    assert [point.setting for point in points] == GRID.settings()
    assert len({tuple(point.values.values()) for point in points}) == 8
    for i, point in enumerate(points):
        query, document, alpha, *_ = point.setting
        words, concepts = WORD_SETTINGS, CONCEPT_SETTINGS
        if vocabulary == "words":
            words = VocabularySettings(words.weighting, query, document)
        else:
            concepts = replace(
                concepts, query_max_active_dims=query, document_max_active_dims=document
            )
        rra = None if alpha is None else RRASettings(alpha, 2, "exp(x)")
        path = tmp_path / str(i)
        built = build(path, TEXTS, words=words, concepts=concepts, rra=rra)
        assert_equal(point, built, vocabulary)


def test_queries_that_are_documents(tmp_path):
    index = build(tmp_path / "index", TEXTS)
    queries = [Query(f"d{i}", TEXTS[f"d{i}"]) for i in range(20)]
    qrels = [qrel._replace(query_id="d" + qrel.query_id[1:]) for qrel in QRELS[:-1]]
    grid, points = SweepGrid(), {}
    for ignore in (False, True):
        out, flag = tmp_path / str(ignore), {"ignore_identical_ids": ignore}
        (points[ignore],) = sweep(index, JudgedQueries(queries, qrels, **flag), grid, out)
        assert_equal(points[ignore], index, None, queries, qrels, **flag)
    assert points[True].values["RR@10"] != points[False].values["RR@10"]
    assert points[True].qd_flops == points[False].qd_flops
    with pytest.raises(InputError, match="ignore_identical_ids was true and is now false"):
        sweep(index, JudgedQueries(queries, qrels), grid, tmp_path / "True")


@pytest.mark.parametrize("scale", [1.0, 0.25])
def test_a_scale_is_that_of_the_concepts(index, tmp_path, scale):
    grid = SweepGrid((2,), (3,), query_scale=(scale,))
    (point,) = sweep(index, JUDGED, grid, tmp_path / "out")
    settings = VocabularySettings(Splade(0.5 * scale), 2, 3, pruning="impact")
    assert_equal(point, build(tmp_path / "x", TEXTS, words=WORD_SETTINGS, concepts=settings))


def test_finished_points_are_not_computed_again(index, tmp_path):
    calls: list[tuple[str, int, int]] = []
    first = sweep(index, JUDGED, SweepGrid((2,), (1, 2)), tmp_path / "out")
    written = (tmp_path / "out" / "points.jsonl").read_text()
    assert read_points(tmp_path / "out" / "points.jsonl") == first
    setting = {"query_max_active_dims": 2, "document_max_active_dims": 2, "alpha": None}
    values = first[1].values
    setting |= {"query_scale": 1.0}
    assert json.loads(written.splitlines()[1]) == setting | values
    grid = SweepGrid((2,), (2, 1))
    again = sweep(index, JUDGED, grid, tmp_path / "out", progress=lambda *c: calls.append(c))
    assert (again, calls) == (first[::-1], [])
    assert (tmp_path / "out" / "points.jsonl").read_text() == written
    grid = SweepGrid((2, 1), (2,))
    larger = sweep(index, JUDGED, grid, tmp_path / "out", progress=lambda *c: calls.append(c))
    assert larger[0] == first[1]
    assert larger[1] not in first
    assert calls == [("sweep", 2, 2)]
    assert read_points(tmp_path / "out" / "points.jsonl") == [*first, larger[1]]


def test_a_folder_of_something_else_is_refused(index, tmp_path):
    out, grid = tmp_path / "out", SweepGrid()
    points = sweep(index, JUDGED, grid, out)
    other = build(tmp_path / "other", TEXTS, concepts=CONCEPT_SETTINGS)
    with pytest.raises(
        InputError, match=r"out: made with other settings: index was .* and is now .*--restart"
    ):
        sweep(other, JUDGED, grid, out)
    for queries, qrels in ((QUERIES[1:], QRELS), (QUERIES, QRELS[1:])):
        with pytest.raises(InputError, match="dataset was"):
            sweep(index, JudgedQueries(queries, qrels), grid, out)
    with pytest.raises(
        InputError, match=r"vocabulary was \[\"words\", \"concepts\"\] and is now \[\"concepts\"\]"
    ):
        sweep(index, JUDGED, grid, out, "concepts")
    assert sweep(index, JUDGED, grid, out) == points
    with pytest.raises(
        InputError, match="index: not unfinished work of lexicept; name another folder"
    ):
        sweep(index, JUDGED, grid, index.path)
    written = (out / "points.jsonl").read_bytes()
    for damage in (b'{"k": null}\n', b"[]\n", b'{"\xff": 1}\n', written[:-9]):
        (out / "points.jsonl").write_bytes(written + damage)
        with pytest.raises(InputError, match=r"points\.jsonl, line 2: not a point of a sweep"):
            read_points(out / "points.jsonl")
        assert sweep(index, JUDGED, grid, out) == points
        assert (out / "points.jsonl").read_bytes() == written
    sweep(index, JudgedQueries(QUERIES[1:], QRELS), grid, out, restart=True)
    with pytest.raises(InputError, match="dataset was"):
        sweep(index, JUDGED, grid, out)


def test_bad_arguments(index, tmp_path):
    out = tmp_path / "out"
    with pytest.raises(InputError, match="no judgements"):
        sweep(index, JudgedQueries(QUERIES, []), SweepGrid(), out)
    assert not out.exists()


def test_a_grid_has_every_combination_once():
    settings = SweepGrid((1, 2), (3, None), (None, 1.0, 2.0)).settings()
    assert len(settings) == len(set(settings)) == 12
    assert Setting(2, None, 1.0) in settings
    assert SweepGrid().settings() == [(None, None, None, 1.0)]


# The front


def point(qd_flops: float, ndcg: float, mrr: float = 0.5) -> Point:
    values = {"nDCG@10": ndcg, "RR@10": mrr, "qd_flops": qd_flops, "e2": e2(mrr, qd_flops)}
    return Point(Setting(1, 1, None), values)


def test_a_front_by_hand():
    best, cheap = point(4, 0.8), point(1, 0.3)
    assert pareto_front([point(2, 0.2), best, point(5, 0.8), cheap]) == [cheap, best]
    assert pareto_front([]) == []
    first, second = point(1, 0.3, mrr=0.1), point(1, 0.3, mrr=0.9)
    assert pareto_front([first, point(2, 0.3), second]) == [first, second]
