"""Whole texts: weights of exemplars, and an index that has them beside words and concepts."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest
import torch

import lexicept
from lexicept.corpora import Document
from lexicept.errors import IndexFormatError, InputError
from lexicept.index import no_match, updates
from lexicept.index.builder import Contents, IndexBuilder
from lexicept.index.impacts import RRASettings, VocabularySettings
from lexicept.index.query_encoders import QueryCache
from lexicept.index.reader import IndexReader
from lexicept.index.verification import verify
from lexicept.integrations.agents import AgentTools
from lexicept.models import exemplars
from lexicept.models.backbone import Backbone
from lexicept.models.encoder import Encoder
from lexicept.models.exemplars import Exemplars
from lexicept.models.heads.sae import SAEHead
from lexicept.models.heads.settings import HeadSettings
from lexicept.queries.syntax import ParsedQuery
from lexicept.server.questions import SearchParameters
from lexicept.server.reader import Reader, SearchRequest
from lexicept.training.sae.settings import SAESettings
from lexicept.training.sae.trainer import initial_sae
from lexicept.vectorizers.concepts import ConceptVectorizer
from lexicept.vectorizers.texts import TextVectorizer, named
from lexicept.vectorizers.words import WordVectorizer
from lexicept.weighting import BM25, Unchanged
from support.tiny import text, tiny_backbone

DOCUMENTS = [
    Document(f"d{n}", text(*(n * i + i * i for i in range(1, 3 + n % 9)))) for n in range(40)
]
DOCUMENTS[7] = Document("d7", "")
DOCUMENTS[9] = DOCUMENTS[8]._replace(id="d9")
DOCUMENTS[11] = Document("d11", " ".join(text(*range(k, k + 9)) for k in range(20)))
QUERIES = ["bade kilo", "mu ba delo", "", "lomu " * 90]


def vectorizer(folder: Path) -> TextVectorizer:
    """One over the first 30 documents, of a tiny model."""
    backbone = tiny_backbone(folder / "bert")
    contents = [document.content for document in DOCUMENTS]
    states = [found for _, found in backbone.token_states(backbone.windows(contents))]
    sae = initial_sae(torch.cat(states).clone(), SAESettings(num_latents=64, k=4)).eval()
    head = SAEHead(sae.requires_grad_(False), HeadSettings(query_k=3, document_k=2))
    concepts = ConceptVectorizer(Encoder.of(backbone, head))
    _, means = concepts.encoder.encode_with_means(contents, "document")
    titles = ["A title", *[""] * 39]
    return TextVectorizer(concepts, Exemplars.of(means, 30), named(titles, contents, range(30)))


def build(folder: Path, documents: list[Document], texts: TextVectorizer) -> IndexReader:
    with IndexBuilder(folder) as builder:
        builder.add_documents(documents, {})
        builder.add_vocabulary(WordVectorizer("en"), VocabularySettings(BM25()))
        of_concepts, of_texts = VocabularySettings(BM25(k3=1.0)), VocabularySettings(Unchanged(5.0))
        builder.add_vocabulary(texts.joint, of_concepts, of_texts)
        return builder.commit()


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    return vectorizer(tmp_path_factory.mktemp("texts"))


@pytest.fixture(scope="module")
def index(texts, tmp_path_factory):
    return build(tmp_path_factory.mktemp("index") / "index", DOCUMENTS, texts)


def copied(texts: TextVectorizer, folder: Path) -> Path:
    return build(folder / "copy", DOCUMENTS, texts).path


def test_a_weight_is_a_cosine_from_the_centre_less_most_of_the_largest_that_is_not_kept(
    monkeypatch,
):
    monkeypatch.setattr(exemplars, "KEPT", {"query": 1, "document": 2})
    corners = Exemplars(np.eye(3, dtype=np.float32), np.zeros(3, np.float32))
    asked = np.array([[6, 0, 8], [3, 2, 6], [-1, -1, -1], [0, 0, 0]], np.float32)
    queries = corners.vectors(asked, "query")
    assert queries.indices.tolist() == [2, 2]  # .8 − .9 · .6, 6/7 − .9 · 3/7; of unit length
    assert queries.data.tolist() == [1, 1]
    assert np.diff(queries.indptr).tolist() == [1, 1, 0, 0]
    documents = corners.vectors(asked, "document").toarray()
    assert documents[0] == pytest.approx([0.6, 0, 0.8])
    parts = np.array([3 - 0.9 * 2, 0, 6 - 0.9 * 2])
    assert documents[1] == pytest.approx(parts / np.linalg.norm(parts))
    assert not documents[2:].any()


def test_exemplars_are_equal_when_they_are_loaded(tmp_path):
    means = np.random.default_rng(0).normal(size=(50, 8)).astype(np.float32)
    made = Exemplars.of(means, 40)
    made.save(tmp_path)
    found, expected = Exemplars.load(tmp_path).vectors(means, "query"), made.vectors(means, "query")
    assert len(Exemplars.load(tmp_path)) == 40
    assert (found.toarray() == expected.toarray()).all()
    # An exemplar is the one that it is most like.
    assert expected[:40].argmax(axis=1).tolist() == list(range(40))
    np.save(tmp_path / "centre.npy", np.zeros(9, np.float32))
    with pytest.raises(IndexFormatError, match="exemplars of 8 for 9"):
        Exemplars.load(tmp_path)


def test_a_text_is_the_mean_of_its_tokens_also_of_several_windows(texts):
    encoder = texts.concepts.encoder
    contents = [document.content for document in DOCUMENTS]
    _, means = encoder.encode_with_means(contents, "document")
    for number in (0, 7, 11):
        windows = encoder.backbone.windows([contents[number]])
        states = [found for _, found in encoder.backbone.token_states(windows)]
        alone = torch.cat(states).mean(0) if windows and len(states[0]) else torch.zeros(32)
        assert means[number] == pytest.approx(alone.numpy(), abs=1e-4)
    assert not means[7].any()
    assert len(encoder.backbone.windows([contents[11]])) > 1


def test_one_pass_gives_what_each_vectorizer_gives(texts, monkeypatch):
    contents = [document.content for document in DOCUMENTS]
    both = texts.joint.documents(contents).toarray()
    size = texts.concepts.size
    assert both[:, :size] == pytest.approx(texts.concepts.documents(contents).toarray(), abs=1e-4)
    assert both[:, size:] == pytest.approx(texts.documents(contents).toarray(), abs=1e-3)
    read: list[int] = []
    states = Backbone.states

    def counted(self, ids, mask):
        read.append(len(ids))
        return states(self, ids, mask)

    monkeypatch.setattr(Backbone, "states", counted)
    texts.joint.queries(["bade kilo", "mu ba delo"])
    texts.joint.documents(["kilo bade"])
    texts.joint.encode_parts("bade")
    assert sum(read) == 4


def test_an_index_has_the_rows_of_both_and_of_equal_documents_equal_ones(index, texts):
    assert [v.name for v in index.vocabularies] == ["words", "concepts", "texts"]
    _, concepts, whole = index.tf()
    contents = [document.content for document in DOCUMENTS]
    assert concepts.shape == (40, 64)
    assert whole.toarray() == pytest.approx(texts.documents(contents).toarray(), abs=1e-3)
    assert (whole[[8]].toarray() == whole[[9]].toarray()).all()
    assert whole[[7]].nnz == 0
    assert np.linalg.norm(whole[[8]].toarray()) == pytest.approx(1)
    assert list(index.vocabularies[2].terms or ())[3] == contents[3]
    assert verify(index.path).problems == []


def test_a_score_is_the_sum_of_its_parts_and_an_exemplar_has_no_place(index):
    vectors = index.query_vectors(QUERIES)
    scores = vectors @ index.engine.matrix().T
    for row, query in enumerate(QUERIES):
        hits = index.search([query], 40, explain=True)[0]
        assert len(hits) == np.count_nonzero(scores[[row]].toarray())
        for hit in hits:
            assert hit.score == pytest.approx(scores[row, hit.number], rel=1e-5)
            assert hit.explanation is not None
            parts = hit.explanation.contributions
            assert sum(part.score for part in parts) == pytest.approx(hit.score, rel=1e-4)
            of_texts = [part for part in parts if part.vocabulary == "texts"]
            assert all(not part.query_spans and not part.document_spans for part in of_texts)
    parts = index.explain("bade kilo", "d0").contributions
    assert {part.vocabulary for part in parts} == {"words", "concepts", "texts"}
    assert index.search([""], 10)[0] == []
    span = index.span("texts")
    expected = (vectors[[0]][:, span] @ index.engine.matrix()[:, span].T).toarray()[0]
    alone = index.search(["bade kilo"], 3, "texts")[0]
    assert [hit.score for hit in alone] == pytest.approx(np.sort(expected)[:-4:-1], rel=1e-5)


def test_the_fast_model_the_vectorizer_and_the_cache_give_the_same(index, texts):
    first = IndexReader.open(index.path)
    fast = first.query_vectors(QUERIES[:2])
    assert not first.vectorizers._loaded.keys() & {"concepts", "texts"}
    slow = IndexReader.open(index.path)
    slow.vectorizer("texts")
    assert slow.query_vectors(QUERIES[:2]).toarray() == pytest.approx(fast.toarray(), abs=1e-3)
    # A query that does not fit the window needs the vectorizer.
    long = first.query_vectors(QUERIES)
    assert long[[3], first.span("texts")].nnz > 0
    first.vectorizers.cache = QueryCache(2**20)
    for _ in range(2):
        again = first.query_vectors(QUERIES)
        assert again.toarray() == pytest.approx(long.toarray(), abs=1e-3)


def test_a_server_of_texts_answers_the_first_search(index):
    async def answered():
        reader = Reader(index.path)
        async with reader.running():
            served = reader.generation.index
            return await reader.search(
                SearchRequest(served, ParsedQuery("bade kilo"), 3, None, None)
            )

    assert len(asyncio.run(answered())) == 3


def test_an_updated_index_equals_a_new_one_and_keeps_its_exemplars(texts, tmp_path):
    path = build(tmp_path / "index", DOCUMENTS[:35], texts).path
    updates.update(path, DOCUMENTS[35:])
    updates.delete(path, ["d0"])
    updates.update(path, [DOCUMENTS[1]])
    updated, new = IndexReader.open(path), build(tmp_path / "new", DOCUMENTS[1:], texts)
    assert list(updated.vocabularies[2].terms or ()) == list(texts.terms)
    assert updated.tf()[2].toarray() == pytest.approx(new.tf()[2].toarray(), abs=1e-3)
    hits = [
        [(hit.id, round(hit.score, 3)) for hit in i.search(["mu ba"], 5)[0]] for i in (updated, new)
    ]
    assert hits[0] == hits[1]
    assert verify(path).problems == []
    updates.reweight_in_place(path, RRASettings(1.0))
    assert IndexReader.open(path).search(["mu ba"], 5)[0]
    assert len(Contents(IndexReader.open(path).folder)) == 39


@pytest.mark.parametrize(
    ("query", "chance", "vocabulary", "weak"),
    [
        ("zzaxqv", 1.0, None, True),
        ("zzaxqv", -1.0, None, False),
        ("zzaxqv", 1.0, "texts", True),
        ("zzaxqv", 1.0, "words", False),  # no results
        ("bade", 1.0, None, False),
        ("bade aa bb cc dd ee ff gg hh ii", 1.0, None, True),  # a tenth of the words
        ("", 1.0, None, False),
    ],
)
def test_nothing_matches_well(index, query, chance, vocabulary, weak):
    index.vectorizers.chance = chance  # what no text exceeds, or any
    hits = lexicept.Index(index).search(query, vocabulary=vocabulary)
    assert hits.weak is weak
    assert hits.note.startswith("nothing matches well") is weak
    agent = AgentTools(lexicept.Index(index)).search(query, vocabulary=vocabulary)
    assert ("nothing matches well" in agent) is weak


def test_a_match_by_chance(index, texts):
    likeness = index.vectorizers.similarities([DOCUMENTS[3].content, ""])
    assert likeness == pytest.approx([1, 0], abs=1e-2)  # an exemplar, and no tokens
    index.vectorizers.chance = None
    no_match.is_by_chance(index, "")
    assert index.vectorizers.chance == pytest.approx(no_match.chance_similarity(index.vectorizers))
    for chance, expected in ((0.5, False), (0.9, True)):  # 1 against 1.15 times chance
        index.vectorizers.chance = chance
        assert no_match.is_by_chance(index, DOCUMENTS[3].content) is expected


def test_boosts_and_steering_reach_whole_texts(index):
    span = index.span("texts")
    (best,) = index.query_vectors(["bade kilo"])[:, span].argmax(axis=1)
    steered = index.query_vectors([ParsedQuery("bade kilo", steering={("texts", int(best)): 0.0})])
    assert steered[0, span.start + int(best)] == 0
    parsed = index.parse("bade kilo")
    boosted = index.query_vectors([type(parsed)(parsed.text, boosts={"texts": 2})])
    plain = index.query_vectors(["bade kilo"])
    assert boosted[:, span].toarray() == pytest.approx(2 * plain[:, span].toarray())
    assert (boosted[:, : span.start] != plain[:, : span.start]).nnz == 0


def test_an_agent_searches_and_steers_whole_texts(index):
    opened = lexicept.open(index.path)
    opened.reader.vectorizers.chance = -1.0  # exceeded by any text
    tools = AgentTools(opened)
    span = index.span("texts")
    weights = index.query_vectors(["bade kilo"])[:, span].toarray()[0]
    heaviest = f"text:{weights.argmax()}"
    (best, *_) = index.search(["bade kilo"], 1, vocabulary="texts")[0]
    assert tools.search("bade kilo", 1, vocabulary="texts").startswith(f"1. [{best.id}]")
    assert "text:" in tools.explain("bade kilo", best.id)
    assert f" {heaviest} " in tools.steer("", add={heaviest: 1}).splitlines()[0]
    assert f" {heaviest} " in tools.steer("bade kilo").splitlines()[0]
    assert f" {heaviest} " not in tools.steer("bade kilo", {heaviest: 0}).splitlines()[0]
    for name in ("999", "bade"):
        with pytest.raises(InputError, match=f"no text '{name}': an explanation has its number"):
            tools.steer("bade", {f"text:{name}": 0})


def test_a_request_steers_boosts_and_searches_whole_texts():
    asked = SearchParameters.model_validate(
        {
            "query": "a",
            "vocabulary": "texts",
            "steer": ["texts:3:0"],
            "add": ["texts:3:0.5"],
            "boost": ["words:1", "concepts:1", "texts:0.5"],
        }
    )
    assert (asked.vocabulary, asked.steer, asked.boost[2]) == ("texts", ["texts:3:0"], "texts:0.5")
