"""Teachers: scored lists, work that goes on, cross-encoders and embeddings as in their library."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lexicept.candidates import teachers
from lexicept.candidates.lists import CandidateList, write_lists
from lexicept.candidates.teachers import score_lists
from lexicept.errors import InputError
from lexicept.progress import silent
from lexicept.training.ranking import neural_teachers
from lexicept.training.ranking.neural_teachers import CrossEncoderTeacher, embeddings
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
    """A teacher by hand: a document's score, or the number of letters of both texts."""

    scores: tuple[tuple[str, float], ...] = ()

    def settings(self) -> dict[str, Any]:
        return {"fixed": self.scores}

    def prepare(self, queries: Any, documents: Any, folder: Path, progress: Any = silent) -> Any:
        assert folder.is_dir()
        known = dict(self.scores)

        def score(query_ids: Any, document_ids: Any) -> list[np.ndarray]:
            return [
                np.array([known.get(d, len(queries[query] + documents[d])) for d in ids], float)
                for query, ids in zip(query_ids, document_ids, strict=True)
            ]

        return score


def test_scores_replace_those_of_the_lists(tmp_path):
    lists = score_lists(LISTS, QUERIES, DOCUMENTS, Fixed(), tmp_path / "out")
    assert [item._replace(scores=None) for item in lists] == [
        item._replace(scores=None) for item in LISTS
    ]
    # sleeping cat: 12, money from a bank: 17, nothing known: 13 letters.
    assert [item.scores for item in lists] == [
        (31.0, 43.0, 12.0), (36.0, 54.0), (49.0, 31.0), (13.0,), (48.0, 54.0, 36.0, 36.0),
    ]  # fmt: skip


def test_texts_that_are_missing(tmp_path):
    for items, message in (
        ([LISTS[0], CandidateList("x", ("d1",), 1)], "list 2: no text for the query 'x'"),
        ([LISTS[0], CandidateList("q1", ("d1", "y"), 1)], "list 2: no text for the document 'y'"),
        ([], "no lists"),
    ):
        with pytest.raises(InputError, match=message):
            score_lists(items, QUERIES, DOCUMENTS, Fixed(), tmp_path / "out")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("score", [float("nan"), float("inf")])
def test_scores_that_are_not_finite(tmp_path, score):
    items = [CandidateList("q1", ("d1", "d2"), 1)]
    with pytest.raises(InputError, match=f"query 'q1': score {score} of 'd2' is not finite"):
        score_lists(items, QUERIES, DOCUMENTS, Fixed((("d1", 1), ("d2", score))), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_scores_as_lists_and_of_another_shape(tmp_path):
    items = [CandidateList("q1", ("d1", "d2"), 1)]

    def score_with(scores, out):
        teacher = SimpleNamespace(settings=dict, prepare=lambda *_: lambda *_: [scores])
        return score_lists(items, QUERIES, DOCUMENTS, teacher, out)

    assert score_with([1, 2], tmp_path / "out")[0].scores == (1.0, 2.0)
    with pytest.raises(InputError, match=r"query 'q1' scores of shape \(2, 1\) for 2 documents"):
        score_with(np.ones((2, 1)), tmp_path / "other")


def test_killed_scoring_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(teachers, "BATCH", 2)
    lists = write_lists(tmp_path / "lists", LISTS)
    whole = score_lists(lists, QUERIES, DOCUMENTS, Fixed(), tmp_path / "whole")

    def kill(stage, done, total, detail=""):
        if (stage, done) == ("scoring", 4):
            raise KilledError

    out = tmp_path / "out"
    with pytest.raises(KilledError):
        score_lists(lists, QUERIES, DOCUMENTS, Fixed(), out, progress=kill)
    with (tmp_path / "out.partial" / "lists.jsonl").open("ab") as file:
        file.write(b"torn")
    done: list[tuple[str, int]] = []
    score_lists(lists, QUERIES, DOCUMENTS, Fixed(), out, progress=lambda *r: done.append(r[:2]))
    assert done == [("scoring", 5)]
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
        score_lists(LISTS, QUERIES, DOCUMENTS, Fixed(), out, progress=kill)
    lists, queries, documents, teacher = list(LISTS), dict(QUERIES), dict(DOCUMENTS), Fixed()
    match change:
        case "teacher":
            teacher = Fixed((("d1", 1.0),))
        case "query":
            queries["q1"] += " dogs"
        case "document":
            documents["d5"] += " cats"
        case "list":
            lists[4] = CandidateList("q1", ("d2", "d4"), 1)
        case "relevant":
            lists[0] = lists[0]._replace(relevant=2)
    name = {"query": "queries", "document": "documents", "list": "lists", "relevant": "lists"}
    told = rf"made with other settings: {name.get(change, 'teacher.fixed')} was .*--restart"
    with pytest.raises(InputError, match=told):
        score_lists(lists, queries, documents, teacher, out)
    restarted = score_lists(lists, queries, documents, teacher, out, restart=True)
    fresh = score_lists(lists, queries, documents, teacher, tmp_path / "fresh")
    assert list(restarted) == list(fresh)
    assert [item.relevant for item in restarted] == [item.relevant for item in lists]


# Networks


def count_texts(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """Texts embedded from now on."""
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
    counted, name = count_texts(monkeypatch), str(dense_encoder)
    queries, documents = list(QUERIES.values()), list(DOCUMENTS.values())
    embeddings(name, queries, documents, tmp_path)
    embeddings(name, queries, documents, tmp_path)
    assert counted == {"encode_query": queries, "encode_document": documents}
    assert len(os.listdir(tmp_path)) == 4  # each with its checksums
    embeddings(name, ["other"], documents, tmp_path)
    assert counted == {"encode_query": [*queries, "other"], "encode_document": documents}


def test_embeddings_are_unit_vectors_for_the_cosine_alone(dense_encoder, tmp_path):
    from sentence_transformers import SentenceTransformer

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
    monkeypatch.setattr(neural_teachers, "SHARD", 2)
    texts = (str(dense_encoder), list(QUERIES.values()), list(DOCUMENTS.values()))
    whole = embeddings(*texts, tmp_path / "whole")

    def kill(stage, done, total, detail=""):
        if (stage, done) == ("embed documents", 4):
            raise KilledError

    with pytest.raises(KilledError):
        embeddings(*texts, tmp_path / "cache", kill)
    counted = count_texts(monkeypatch)
    resumed = embeddings(*texts, tmp_path / "cache")
    assert counted == {"encode_query": [], "encode_document": [DOCUMENTS["d5"]]}
    for ours, theirs in zip(resumed, whole, strict=True):
        assert np.array_equal(ours, theirs)


def test_cross_encoder_scores_are_the_networks_logits(cross_encoder, tmp_path):
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    teacher = CrossEncoderTeacher(str(cross_encoder))
    lists = score_lists(LISTS, QUERIES, DOCUMENTS, teacher, tmp_path / "out")
    scores = [item.scores or () for item in lists]
    tokenizer = AutoTokenizer.from_pretrained(cross_encoder)
    model = AutoModelForSequenceClassification.from_pretrained(cross_encoder).eval()
    for item, ours in zip(LISTS, scores, strict=True):
        for document, score in zip(item.documents, ours, strict=True):
            texts = ([QUERIES[item.query_id]], [DOCUMENTS[document]])
            pair = tokenizer(*texts, return_tensors="pt", truncation=True)
            with torch.inference_mode():
                assert score == pytest.approx(float(model(**pair).logits[0, 0]), abs=1e-4)
    assert np.ptp(np.concatenate(scores)) > 0.01
    assert min(map(min, scores)) < 0 or max(map(max, scores)) > 1  # no sigmoid


def test_models_that_are_refused(cross_encoder, tmp_path):
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    from lexicept.neural.backbones.loading import quiet_transformers

    empty, two = tmp_path / "empty", tmp_path / "two"
    empty.mkdir()
    with pytest.raises(InputError, match=r"teacher '.*empty' can't be loaded"):
        embeddings(str(empty), ["x"], ["y"], tmp_path / "cache")
    with pytest.raises(InputError, match=r"teacher '.*empty' can't be loaded"):
        score_lists(LISTS, QUERIES, DOCUMENTS, CrossEncoderTeacher(str(empty)), tmp_path / "out")
    with quiet_transformers():
        model = AutoModelForSequenceClassification.from_pretrained(
            cross_encoder, num_labels=2, ignore_mismatched_sizes=True
        )
        model.save_pretrained(two)
    AutoTokenizer.from_pretrained(cross_encoder).save_pretrained(two)
    with pytest.raises(InputError, match="gives 2 scores for a pair"):
        score_lists(LISTS, QUERIES, DOCUMENTS, CrossEncoderTeacher(str(two)), tmp_path / "out")


def test_networks_of_other_weights_are_told_apart(cross_encoder, tmp_path):
    copy = tmp_path / "copy"
    copytree(cross_encoder, copy)
    before = CrossEncoderTeacher(str(cross_encoder)).settings()
    assert CrossEncoderTeacher(str(copy)).settings() == before
    assert CrossEncoderTeacher(str(copy), "bfloat16").settings() != before
    weights = copy / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
    assert CrossEncoderTeacher(str(copy)).settings() != before
    assert CrossEncoderTeacher("org/a").settings() != CrossEncoderTeacher("org/b").settings()
