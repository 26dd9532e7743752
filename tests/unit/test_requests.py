"""Requests to engines with an export: their scores are lexicept's, their conditions too."""

import json
from dataclasses import replace

import numpy as np
import pytest

from lexicept.corpora import Document
from lexicept.errors import InputError
from lexicept.exports import Elasticsearch, OpenSearch, Qdrant, export_index
from lexicept.exports.requests import query_body
from lexicept.fields.filters import parse
from lexicept.index.reader import IndexReader
from lexicept.queries.syntax import ParsedQuery
from support.indexes import build
from support.similar_texts import DOCUMENTS, tiny_concepts
from support.similar_texts import build as build_similar

QUERY = "bade kilo"


@pytest.fixture
def index(tmp_path) -> IndexReader:
    return build_similar(tmp_path / "index", DOCUMENTS, tiny_concepts(tmp_path))


@pytest.mark.parametrize("form", [OpenSearch(), Elasticsearch()], ids=lambda form: form.name)
def test_weights_and_rescored_cosines_add_up(index, tmp_path, form):
    export_index(index, form, tmp_path / "out")
    lines = (tmp_path / "out" / "documents" / "000000.ndjson").read_text().splitlines()
    documents = [json.loads(line) for line in lines[1::2]]
    body = query_body(index, ParsedQuery(QUERY), form.name, 5)
    assert body["size"] == 5
    (sparse,) = body["query"]["bool"]["must"]
    if form.name == "opensearch":
        weights = sparse["neural_sparse"]["vector"]["query_tokens"]
    else:
        weights = sparse["sparse_vector"]["query_vector"]
    rescore = body["rescore"]["query"]
    script = rescore["rescore_query"]["script_score"]["script"]
    assert "cosineSimilarity(params.vector" in script["source"]
    for hit in index.search([QUERY], 40)[0]:
        document = documents[hit.number]
        found = document.get("vector", {})
        score = sum(weight * found.get(dimension, 0) for dimension, weight in weights.items())
        cosine = np.dot(document.get("similarity", [0] * 32), script["params"]["vector"])
        total = rescore["query_weight"] * score + script["params"]["scale"] * max(cosine, 0)
        assert total == pytest.approx(hit.score, abs=0.02)


def test_qdrant_ranks_as_the_index(index, tmp_path):
    qdrant = pytest.importorskip("qdrant_client", reason="needs qdrant-client")
    export_index(index, Qdrant(), tmp_path / "out")
    server, models = qdrant.QdrantClient(":memory:"), qdrant.models
    settings = json.loads((tmp_path / "out" / "collection.json").read_text())
    server.create_collection(
        "c",
        vectors_config={k: models.VectorParams(**v) for k, v in settings["vectors"].items()},
        sparse_vectors_config={k: models.SparseVectorParams() for k in settings["sparse_vectors"]},
    )
    for path in (tmp_path / "out" / "points").iterdir():
        points = json.loads(path.read_text())["points"]
        server.upsert("c", [models.PointStruct(**point) for point in points])
    request = models.QueryRequest(**query_body(index, ParsedQuery(QUERY), "qdrant", 5))
    points = server.query_points(
        "c",
        prefetch=request.prefetch,
        query=request.query,
        limit=request.limit,
        with_payload=request.with_payload,
    ).points
    assert request.prefetch[1].prefetch == [request.prefetch[0]]  # all that words find get a cosine
    hits = index.search([QUERY], 5)[0]
    assert [point.payload["id"] for point in points] == [hit.id for hit in hits]
    scores = [hit.score for hit in hits]
    assert [point.score for point in points] == pytest.approx(scores, abs=0.02)


def conditions(index: IndexReader, text: str, filter_: str, engine: str) -> dict:
    return query_body(index, replace(index.parse(text), filter=parse(filter_)), engine)


def test_conditions(tmp_path):
    fields = {"year": 2020, "tag": ["a"], "seen": "2024-02-15"}
    index = build(tmp_path / "index", [Document("a", "cats sleep", "", fields)])
    filter_ = "year >= 2020 and not (tag in ['ａ', 'b'] or year exists)"
    found = conditions(index, '"cats sleep" -dog', filter_, "opensearch")["query"]["bool"]
    phrase = {"query": "cats sleep", "type": "phrase", "fields": ["title", "text"]}
    excluded = {
        "should": [{"terms": {"fields.tag": ["a"]}}, {"exists": {"field": "fields.year"}}],
        "minimum_should_match": 1,
    }
    assert found["filter"] == [
        {"multi_match": phrase},
        {
            "bool": {
                "filter": [
                    {"range": {"fields.year": {"gte": 2020}}},
                    {"bool": {"must_not": [{"bool": excluded}]}},
                ]
            }
        },
    ]
    assert found["must_not"] == [{"multi_match": phrase | {"query": "dog"}}]
    assert conditions(index, "cats", "year = 1.5", "qdrant")["filter"] == {
        "must": [{"should": [{"key": 'fields."year"', "range": {"gte": 1.5, "lte": 1.5}}]}]
    }
    assert conditions(index, "cats", "tag exists and year < 3", "qdrant")["filter"] == {
        "must": [
            {
                "must": [
                    {"must_not": [{"is_empty": {"key": 'fields."tag"'}}]},
                    {"key": 'fields."year"', "range": {"lt": 3}},
                ]
            }
        ]
    }
    for engine in ("opensearch", "qdrant"):
        filters = "seen > 2023", "seen = 2024-02"
        later, month = (str(conditions(index, "cats", text, engine)) for text in filters)
        assert "'gt': '2023-12-31T23:59:59.999999Z'" in later
        assert "'gte': '2024-02-01T00:00:00Z'" in month
        assert "'lte': '2024-02-29T23:59:59.999999Z'" in month
    with pytest.raises(InputError, match="no field 'nofield'"):
        conditions(index, "cats", "nofield = 1", "qdrant")


def test_passages_of_hidden_documents_are_hidden(tmp_path):
    index = build(tmp_path / "index", [Document("a", "cats " * 300), Document("b", "cats")])
    body = query_body(index, replace(index.parse("cats"), hidden=("a",)), "qdrant")
    assert body["filter"]["must_not"][0]["match"]["any"] == [*index.ids[:-1]]


def test_queries_that_are_refused(tmp_path):
    index = build(tmp_path / "index", {"a": "cats sleep"})
    with pytest.raises(InputError, match="no engine 'lucene'"):
        query_body(index, ParsedQuery("cats"), "lucene")
    with pytest.raises(InputError, match="no word or concept of the index"):
        query_body(index, ParsedQuery("zebra"), "qdrant")
    with pytest.raises(InputError, match="no phrases"):
        query_body(index, index.parse('"cats sleep"'), "qdrant")
    with pytest.raises(InputError, match="top_k must be at least 1, not 0"):
        query_body(index, ParsedQuery("cats"), "qdrant", 0)
