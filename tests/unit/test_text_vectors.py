"""Vectors of whole texts: in files, in scores and in explanations."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from fastapi.testclient import TestClient

import lexicept
from lexicept.corpora import Document, Qrel, Query
from lexicept.corpora.records import Passage
from lexicept.errors import IndexFormatError
from lexicept.evaluation.effectiveness import JudgedQueries, evaluate_index
from lexicept.index import text_vectors, updates
from lexicept.index.hits import Hit
from lexicept.index.impacts import RRASettings
from lexicept.index.parts import TEXTS, Parts, part_name
from lexicept.index.query_encoders import QueryCache
from lexicept.index.reader import IndexReader
from lexicept.index.text_vectors import (
    LEAST_SIMILAR,
    QUERY_STEPS,
    SIMILARITY,
    STEPS,
    TextVectors,
    VectorSettings,
    VectorWriter,
    rounded,
)
from lexicept.index.verification import verify
from lexicept.neural.backbones.backbone import Backbone
from lexicept.pipelines.systems import resolve_systems
from lexicept.queries.syntax import ParsedQuery
from lexicept.server.app import create_app
from lexicept.server.reader import Reader, SearchRequest, search_together
from lexicept.storage.texts import TextStore
from lexicept.vectors import unit_rows
from support.indexes import redescribe
from support.similar_texts import DOCUMENTS, QUERIES, build, tiny_concepts
from support.tiny import count_read, text


@pytest.fixture(scope="module")
def concepts(tmp_path_factory):
    return tiny_concepts(tmp_path_factory.mktemp("concepts"))


@pytest.fixture(scope="module")
def index(concepts, tmp_path_factory):
    return build(tmp_path_factory.mktemp("index") / "index", DOCUMENTS, concepts)


def all_records(index: IndexReader) -> np.ndarray:
    assert index.vectors is not None
    return index.vectors.records(np.arange(len(index)))


def records_by_id(index: IndexReader) -> dict[str, bytes]:
    records = (record.tobytes() for record in all_records(index))
    return dict(zip(index.ids, records, strict=True))


def ids_and_scores(hits: list[Hit]) -> list[tuple[str, float]]:
    return [(hit.id, hit.score) for hit in hits]


def dense_cosines(index: IndexReader, vectors: np.ndarray) -> np.ndarray:
    """The cosines of queries' vectors [n, d] with every document's steps [n, N], at least 0."""
    steps = all_records(index)["steps"].astype(np.float64)
    largest = np.abs(vectors).max(axis=1, keepdims=True)
    queries = np.rint(vectors * (QUERY_STEPS / np.where(largest > 0, largest, 1)))
    return np.maximum(unit_rows(queries) @ unit_rows(steps).T, 0)


def expected_scores(index: IndexReader, queries: list[str]) -> np.ndarray:
    """The scores of all documents [n, N], 0 for those that neither a word nor a concept finds, nor
    a similarity of 6."""
    weighted = index.weigh(queries)
    assert weighted.text_vectors is not None
    weights = weighted.weights.toarray()
    weights[:, index.span("concepts")] *= 2
    sparse = (weights @ index.engine.matrix().T.toarray()).astype(np.float64)
    similarities = SIMILARITY * dense_cosines(index, weighted.text_vectors)
    return np.where((sparse > 0) | (similarities >= LEAST_SIMILAR), sparse + similarities, 0)


def opened_vectors(folder: Path, vectors: np.ndarray) -> TextVectors:
    """Vectors of a part of its own, as they are read."""
    part_folder = folder / "parts" / part_name(1)
    part_folder.mkdir(parents=True)
    for name in TEXTS:
        TextStore.write(part_folder / name, map(str, range(len(vectors))))
    with VectorWriter(part_folder, vectors.shape[1]) as writer:
        writer.append(sp.csr_array(vectors))
    return TextVectors(Parts.open(folder), VectorSettings(vectors.shape[1]))


def test_a_cosine_is_that_of_the_vectors_up_to_their_rounding(tmp_path):
    vectors = np.random.default_rng(0).normal(size=(300, 48)).astype(np.float32)
    vectors[5], vectors[6] = 0, -vectors[7]
    units = unit_rows(vectors)
    stored = opened_vectors(tmp_path, units)
    records = stored.records(np.arange(300))
    assert (records == rounded(sp.csr_array(units))).all()
    largest = np.abs(units).max(axis=1)
    restored = records["steps"] * (largest / STEPS)[:, None]
    assert (np.abs(restored - units) <= (largest / (2 * STEPS))[:, None] * 1.0001).all()
    for query in (units[7], units[200], np.zeros(48, np.float32)):
        result = stored.similarities(query, np.arange(300)) / SIMILARITY
        # An error of length e turns a unit vector by arcsin(e) at most.
        turned = np.arcsin(np.sqrt(48) * largest / (2 * STEPS)) + 1e-6
        turned += np.arcsin(np.sqrt(48) * np.abs(query).max() / (2 * QUERY_STEPS))
        assert (np.abs(result - np.maximum(units @ query, 0)) <= turned).all()
    result = stored.similarities(units[7], np.array([7, 5, 6]))
    assert result == pytest.approx([20, 0, 0], abs=1e-2)
    assert (stored.similarities(np.zeros(48, np.float32), np.arange(300)) == 0).all()
    assert stored.records(np.array([5, 7]))["length"].tolist() == [0, records["length"][7]]


def test_a_vector_is_the_mean_of_the_states_of_tokens_also_of_several_windows(concepts):
    encoder = concepts.concepts.encoder
    texts = [document.content for document in DOCUMENTS]
    vectors = concepts.documents(texts).toarray()[:, concepts.concepts.size :]
    for i in (0, 7, 11):
        windows = encoder.backbone.windows([texts[i]])
        states = [actual for _, actual in encoder.backbone.token_states(windows)]
        mean = torch.cat(states).mean(0) if windows and len(states[0]) else torch.zeros(32)
        assert vectors[i] == pytest.approx(unit_rows(mean.numpy()[None])[0], abs=1e-4)
    assert not vectors[7].any()
    assert len(encoder.backbone.windows([texts[11]])) > 1


def test_concepts_and_vectors_come_from_one_pass(concepts, monkeypatch):
    read = count_read(monkeypatch, Backbone)
    both, vectors = concepts.queries(["bade kilo", "mu ba delo"])
    encoded, vector = concepts.encode_query("bade kilo")
    assert sum(read) == 3
    monkeypatch.undo()
    tf = concepts.concepts.queries(["bade kilo", "mu ba delo"]).toarray()
    assert both.toarray() == pytest.approx(tf, abs=1e-4)
    assert encoded.tf.toarray() == pytest.approx(tf[:1], abs=1e-4)
    assert vector[0] == pytest.approx(vectors[0], abs=1e-4)


def test_an_index_stores_a_vector_of_each_document(index, concepts):
    vectors = concepts.documents([document.content for document in DOCUMENTS])
    expected = rounded(vectors[:, concepts.concepts.size :])
    records = all_records(index)
    assert np.abs(records["steps"].astype(int) - expected["steps"]).max() <= 1
    assert records[8] == records[9]
    assert not records[7]["steps"].any()
    assert records[7]["length"] == 0
    assert [vocabulary.name for vocabulary in index.vocabularies] == ["words", "concepts"]
    assert verify(index.path).problems == []


def test_a_ranking_is_that_of_all_documents_by_words_concepts_and_cosine(index):
    expected = expected_scores(index, QUERIES)
    assert (expected > 0).sum(axis=1).tolist()[2] == 0
    for query, scores in zip(QUERIES, expected, strict=True):
        (hits,) = index.search([query], 40)
        order = np.argsort(-scores, kind="stable")[: np.count_nonzero(scores)]
        assert [hit.score for hit in hits] == pytest.approx(scores[order], rel=1e-5)
        assert [scores[hit.number] for hit in hits] == pytest.approx(scores[order], rel=1e-5)


@pytest.mark.parametrize("rra", [None, RRASettings(1.25)])
def test_an_explanation_adds_up_to_the_score(concepts, tmp_path, rra):
    index = build(tmp_path / "index", DOCUMENTS, concepts, rra)
    vectors = index.weigh(QUERIES).text_vectors
    assert vectors is not None
    cosines = dense_cosines(index, vectors)
    for i in (0, 1, 3):
        (hits,) = index.search([QUERIES[i]], 40, explain=True)
        assert hits
        for hit in hits:
            result = hit.explanation
            assert result is not None
            contributions = [contribution.score for contribution in result.contributions]
            assert sum(contributions) + result.prior + result.similarity == pytest.approx(hit.score)
            cosine = cosines[i, hit.number]
            assert result.similarity == pytest.approx(SIMILARITY * cosine, abs=1e-4)
            alone = index.explain(QUERIES[i], hit.id)
            assert alone.similarity == pytest.approx(result.similarity)
            assert alone.score == pytest.approx(hit.score)


def test_without_rescore_a_score_is_the_sparse_product(index):
    products = (index.query_vectors(QUERIES) @ index.engine.matrix().T).toarray()
    opened = lexicept.Index(index)
    for query, scores in zip(QUERIES, products, strict=True):
        hits = opened.search(ParsedQuery(query), 40, rescore=False, explain=True)
        (batch,) = opened.search_many([ParsedQuery(query)], 40, rescore=False)
        assert ids_and_scores(hits) == ids_and_scores(batch)
        assert len(hits) == np.count_nonzero(scores)
        for hit in hits:
            assert hit.score == pytest.approx(scores[hit.number], rel=1e-5)
            assert hit.explanation is not None
            assert hit.explanation.similarity == 0
            explained = opened.explain(ParsedQuery(query), hit.id, rescore=False)
            assert explained.similarity == 0
            assert explained.score == pytest.approx(hit.score)
    for vocabulary in ("words", "concepts"):
        assert index.weigh(QUERIES, vocabulary).text_vectors is None
        assert index.explain("bade kilo", "d0", vocabulary).similarity == 0


def test_feedback_takes_the_first_results_of_its_own_search(index):
    opened = lexicept.Index(index)
    for rescore in (True, False):
        top = opened.search("mu ba delo", 1, rescore=rescore)[0].id
        hits = opened.search("mu ba delo", 5, feedback=1, rescore=rescore)
        expected = opened.search("mu ba delo", 5, feedback=[top], rescore=rescore)
        assert hits.added == expected.added
        assert ids_and_scores(hits) == ids_and_scores(expected)


def test_added_dimensions_without_a_text_have_no_similarity(index):
    query = ParsedQuery("", added={("concepts", n): 1.0 for n in range(64)})
    (alone,) = index.search([query], 40, explain=True)
    assert len(alone) > 10
    for hit in alone:
        assert hit.explanation is not None
        assert hit.explanation.similarity == 0
    assert ids_and_scores(index.search(["bade", query], 40)[1]) == ids_and_scores(alone)
    assert ids_and_scores(index.search([query], 40)[0]) == ids_and_scores(alone)
    liked = lexicept.Index(index)
    assert liked.explain(liked.like("d3"), "d4").similarity == 0


def test_steering_and_boosts_leave_the_similarity(index):
    plain = index.explain("bade kilo", "d0")
    parsed = ParsedQuery("bade kilo", boosts={"words": 2.0, "concepts": 0.5})
    boosted = index.explain(parsed, "d0")
    assert boosted.similarity == plain.similarity > 0
    assert boosted.score != plain.score


def test_a_batch_is_ranked_as_each_query_alone(index):
    weighted = index.weigh([*QUERIES, "mu", "kilo de", "ba ba lo"])
    together = index.rank(weighted, 40)
    for i, hits in enumerate(together):
        (alone,) = index.rank(weighted.select([i]), 40)
        assert ids_and_scores(hits) == ids_and_scores(alone)


def test_the_fast_model_the_vectorizer_and_the_cache_give_the_same(index):
    fast = IndexReader.open(index.path)
    expected = fast.weigh(QUERIES)
    assert expected.text_vectors is not None
    assert np.linalg.norm(expected.text_vectors, axis=1) == pytest.approx([1, 1, 0, 1], abs=1e-5)
    slow = IndexReader.open(index.path)
    slow.vectorizer("concepts")
    fast.encoders["concepts"].cache = QueryCache(2**20)
    for weighted in (slow.weigh(QUERIES), fast.weigh(QUERIES), fast.weigh(QUERIES)):
        assert weighted.weights.toarray() == pytest.approx(expected.weights.toarray(), abs=1e-3)
        assert weighted.text_vectors == pytest.approx(expected.text_vectors, abs=1e-3)
    assert len(fast.encoders["concepts"].cache) == 4


def test_of_a_large_index_the_best_by_words_and_concepts_are_compared(index, monkeypatch):
    expected = expected_scores(index, ["mu ba delo"])[0]
    doubled = ParsedQuery("mu ba delo", boosts={"concepts": 2.0})
    sparse = [hit.number for hit in index.search([doubled], 40, rescore=False)[0]]
    assert len(sparse) > 8
    monkeypatch.setattr(text_vectors, "ALL_COMPARED", 10)
    monkeypatch.setattr(text_vectors, "COMPARED", 6)
    compared = sorted(sparse[:6], key=lambda number: (-expected[number], number))
    for top_k in (1, 4):
        (hits,) = index.search(["mu ba delo"], top_k)
        assert [hit.number for hit in hits] == compared[:top_k]
    (hits,) = index.search(["mu ba delo"], 8)
    assert {hit.number for hit in hits} == set(sparse[:8])


def test_a_changed_index_has_the_vectors_of_a_new_one(concepts, tmp_path):
    path = build(tmp_path / "index", DOCUMENTS[:35], concepts).path
    updates.update(path, DOCUMENTS[35:])
    updates.delete(path, ["d0"])
    updates.update(path, [DOCUMENTS[1]])
    updated, new = IndexReader.open(path), build(tmp_path / "new", DOCUMENTS[1:], concepts)
    assert len(updated.parts.folders) > 1
    of_new = dict(zip(new.ids, all_records(new), strict=True))
    for name, record in zip(updated.ids, all_records(updated), strict=True):
        assert np.abs(record["steps"].astype(int) - of_new[name]["steps"]).max() <= 1
    hits = [
        {hit.id: hit.score for hit in index.search(["mu ba"], 40)[0]} for index in (updated, new)
    ]
    assert hits[0] == pytest.approx(hits[1], abs=0.2)
    assert verify(path).problems == []
    before = records_by_id(updated)
    for i in range(12):  # parts of few documents are merged
        updates.update(path, [Document(f"new{i}", text(i, i + 1))])
    grown = IndexReader.open(path)
    assert len(grown.parts.folders) < 12
    assert records_by_id(grown).items() >= before.items()
    updates.reweight_in_place(path, RRASettings(1.0))
    assert records_by_id(IndexReader.open(path)) == records_by_id(grown)
    assert verify(path).problems == []


def test_damaged_vectors_are_named(concepts, tmp_path):
    path = build(tmp_path / "index", DOCUMENTS, concepts).path
    (file,) = path.rglob("vectors.npy")
    whole = np.load(file)
    for damaged, message in (
        (whole[:-1], "39 vectors of 40 documents"),
        (whole["length"], "vectors.npy"),
        (None, "vectors.npy"),
    ):
        file.unlink()
        if damaged is None:
            file.write_bytes(b"no array")
        else:
            np.save(file, damaged)
        redescribe(path)
        with pytest.raises(IndexFormatError, match=message):
            IndexReader.open(path).search(["mu ba"])
        (result,) = verify(path).problems
        assert message in result
    whole["length"] += 1
    file.unlink()
    np.save(file, whole)
    redescribe(path)
    (result,) = verify(path).problems
    assert "vectors.npy: lengths that are not the vectors'" in result


def passages_of(number: int) -> Document:
    marks = tuple(Passage(text(*range(number + k, number + 2 * k + 3))) for k in range(4))
    return Document(f"p{number}", "", passages=marks)


@pytest.fixture(scope="module")
def divided(concepts, tmp_path_factory):
    documents = [*map(passages_of, range(12)), *DOCUMENTS[:5]]
    return build(tmp_path_factory.mktemp("divided") / "index", documents, concepts)


def scores_by_hand(index: IndexReader, query: str) -> tuple[np.ndarray, np.ndarray]:
    """The scores of all documents [documents] and of their passages [N], from term frequencies."""
    weighted = index.weigh([query])
    assert weighted.text_vectors is not None
    weights, words = weighted.weights.toarray()[0], index.span("words")
    weights[index.span("concepts")] *= 2
    products = index.engine.matrix().toarray() * weights
    similarities = SIMILARITY * dense_cosines(index, weighted.text_vectors)[0]
    passages = products.sum(1) - 0.75 * products[:, words].sum(1) + similarities
    bm25, tf = index.settings["words"].weighting, index.tf()[0].toarray()
    lengths = tf.sum(1, keepdims=True)
    relative = tf / (bm25.k1 * (1 - bm25.b + bm25.b * lengths / lengths.mean()))
    spans = [list(span) for _, span in index.passages.spans()]
    frequencies = np.array([relative[span].sum(0) for span in spans])
    counts = np.array([[len(span)] for span in spans])
    df = (frequencies > 0).sum(0)
    idf = np.log(1 + (len(spans) - df + 0.5) / (df + 0.5))
    whole = (idf * frequencies / (frequencies + counts / counts.mean())) @ weights[words]
    by_document = []
    for span, of_words in zip(spans, whole, strict=True):
        best, second = np.sort([0, *passages[span]])[::-1][:2]
        by_document.append(0.75 * of_words + best + 0.2 * second)
    return np.array(by_document), passages


@pytest.mark.parametrize("query", ["mu ba delo", "bade kilo", "de de mu"])
def test_a_document_counts_by_all_its_words_and_by_its_two_best_passages(divided, query):
    expected, passages = scores_by_hand(divided, query)
    changed = 0
    (hits,) = divided.search([query], 20, explain=True)
    assert len(hits) == len(expected)
    sparse = {hit.id: hit.number for hit in divided.search([query], 20, rescore=False)[0]}
    documents = [divided.passages.document_numbers[hit.number] for hit in hits]
    assert [hit.score for hit in hits] == pytest.approx(expected[documents], rel=1e-5)
    assert documents == np.argsort(-expected, kind="stable").tolist()
    for hit in hits:
        records = divided.entries_of(hit.id)
        assert passages[hit.number] == pytest.approx(passages[list(records)].max(), rel=1e-6)
        changed += sparse.get(hit.id) != hit.number
        alone = divided.explain(query, hit.id)
        assert alone.score == pytest.approx(hit.score)
        assert alone.passage == hit.passage
        assert alone.further == hit.explanation.further
        assert len(alone.further) == (len(records) > 1)
        assert alone.contributions == hit.explanation.contributions
    assert changed


def test_a_passage_by_itself_is_explained_by_its_weights_alone(divided):
    weights = divided.query_vectors(["mu ba delo"]).toarray()[0]
    weights[divided.span("concepts")] *= 2
    product = weights @ divided.engine.matrix().toarray()[1]
    explained = divided.explain("mu ba delo", divided.ids[1])
    assert explained.score - explained.similarity == pytest.approx(product, rel=1e-5)
    assert explained.further == ()


def test_a_large_index_of_passages_has_as_many_results_as_are_wanted(divided, monkeypatch):
    monkeypatch.setattr(text_vectors, "ALL_COMPARED", 4)
    monkeypatch.setattr(text_vectors, "COMPARED", 4)
    for top_k in (3, 10, 17):
        (sparse,) = divided.search(["mu ba delo"], top_k, rescore=False)
        (hits,) = divided.search(["mu ba delo"], top_k)
        assert len(hits) == len(sparse)
    # Documents that may not be results are not compared.
    query = ParsedQuery("mu ba delo", boosts={"concepts": 0.01})
    (best,) = divided.search([query], 6, "words")
    query = replace(query, hidden=tuple(hit.id for hit in best))
    for explain in (False, True):
        (hits,) = divided.search([query], 4, explain=explain)
        assert len(hits) == 4
        (alone,) = divided.search([replace(query, text="", without=("kilo",))], 4, explain=explain)
        assert {hit.score for hit in alone} == {0}


def test_a_server_adds_the_similarity_unless_it_is_told_not_to(index):
    query = ParsedQuery("bade kilo")
    requests = [
        SearchRequest(index, query, 3, None, None),
        SearchRequest(index, query, 3, None, None, rescore=False),
        SearchRequest(index, query, 2, "words", None),
    ]
    found = search_together(requests)
    for request, hits in zip(requests, found, strict=True):
        options = {"rescore": request.rescore}
        (alone,) = index.search([query], request.top_k, request.vocabulary, **options)
        assert ids_and_scores(hits) == ids_and_scores(alone)

    async def answered():
        served = Reader(index.path)
        async with served.running():
            request = SearchRequest(served.generation.index, query, 3, None, None)
            return await served.search(request)

    assert [hit.id for hit in asyncio.run(answered())] == [hit.id for hit in found[0]]


def test_a_request_leaves_the_similarity_out(index):
    with TestClient(create_app(index.path), base_url="http://localhost") as client:

        def get(path: str, **parameters: object) -> Any:
            answer = client.get(path, params={"query": "bade kilo", **parameters})
            assert answer.status_code == 200
            return answer.json()

        for rescore in (True, False):
            (hits,) = index.search(["bade kilo"], 5, rescore=rescore)
            found = get("/search", top_k=5, rescore=rescore)["results"]
            assert [(hit["id"], hit["score"]) for hit in found] == [
                (hit.id, pytest.approx(hit.score, rel=1e-6)) for hit in hits
            ]
            why = get("/explain", document_id=hits[0].id, rescore=rescore)
            assert (why["similarity"] > 0) is rescore
            contributions = sum(contribution["score"] for contribution in why["contributions"])
            assert contributions + why["similarity"] == pytest.approx(hits[0].score)
        assert (
            get("/search", top_k=5)["results"] == get("/search", top_k=5, rescore=True)["results"]
        )
        assert get("/explain", document_id="d0", vocabulary="words")["similarity"] == 0


def test_evaluations_tell_the_similarity_apart(index):
    queries = [Query(f"q{n}", query) for n, query in enumerate(QUERIES[:2])]
    judged = JudgedQueries(queries, [Qrel("q0", "d0", 1), Qrel("q1", "d4", 1)])
    scores = {rescore: evaluate_index(index, judged, rescore=rescore) for rescore in (True, False)}
    assert scores[True].run != scores[False].run
    for cost in ("qd_flops", "query_length", "document_length"):
        assert scores[True].values[cost] == scores[False].values[cost]
    resolved = resolve_systems(["all", "sparse"], index)
    assert {name: system.rescore for name, system in resolved.items()} == {
        "all": True,
        "sparse": False,
    }


def test_an_idea_is_a_word_of_the_query_that_fires_a_concept(index):
    (hits,) = index.search(["bade kilo"], 5, explain=True)
    ideas = {contribution.idea for hit in hits for contribution in hit.explanation.contributions}
    assert ideas
    assert ideas <= set(index.weigher.stems("bade kilo"))
    for hit in hits:
        assert len({idea.name for idea in hit.explanation.ideas}) == len(hit.explanation.ideas)
