"""Exports read back without the code that wrote them."""

import json
import struct
from collections import defaultdict
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lexicept.corpora import Document, Query
from lexicept.errors import InputError
from lexicept.exports import (
    CIFF,
    Anserini,
    Elasticsearch,
    ExportedIndex,
    ExportFormat,
    OpenSearch,
    Qdrant,
    export_index,
    folder,
    left_out,
)
from lexicept.exports.impacts import query_impacts
from lexicept.exports.requests import query_body
from lexicept.index.impacts import RRASettings
from lexicept.index.reader import IndexReader
from lexicept.queries.syntax import ParsedQuery
from lexicept.storage.workspace import Units
from lexicept.vectors import Vector
from support.commands import assert_error
from support.indexes import build, contents
from support.processes import stops_at
from support.similar_texts import DOCUMENTS as SIMILAR
from support.similar_texts import build as build_similar
from support.similar_texts import tiny_concepts

TEXTS = {
    "empty": "",
    **{f'"d{n}"': f"cat{n % 7} dog{n % 5} dog{n % 5} bird{n % 3}" for n in range(20)},
    "ä": "cat1",
    "last": "",
}
QUERIES = [Query("q1", "cat1 dog2"), Query("q2", "bird0"), Query("none", "unknown")]


@pytest.fixture(params=[None, RRASettings(1.25)], ids=["bm25", "rra"])
def index(request, tmp_path):
    return build(tmp_path / "index", TEXTS, rra=request.param)


def export(index: IndexReader, form: ExportFormat, **arguments: Any) -> Path:
    out = index.path.parent / form.name
    export_index(index, form, out, queries=QUERIES, **arguments)
    return out


def lines(folder: Path) -> list[str]:
    return [line for path in sorted(folder.iterdir()) for line in path.read_text().splitlines()]


def matrix(vectors: list[dict[str, float]], columns: int) -> Any:
    dense = np.zeros((len(vectors), columns), np.float32)
    for i, vector in enumerate(vectors):
        for dimension, weight in vector.items():
            dense[i, int(dimension)] = weight
    return dense


def assert_ranked_as(index: IndexReader, query: str, scores: Any, tolerance: float) -> None:
    """Scores of all documents equal those of the index, up to a factor."""
    expected = np.zeros(len(index))
    for hit in index.search([query], 100)[0]:
        expected[index.document_number(hit.id)] = hit.score
    np.testing.assert_allclose(scores * expected.max() / scores.max(), expected, atol=tolerance)


def impacts(index: IndexReader, bits: int = 8) -> Any:
    """Expected content of the exports of integers."""
    weights = weights_of(ExportedIndex(index))
    return np.rint(weights * ((2**bits - 1) / weights.max()))


def weights_of(source: ExportedIndex) -> np.ndarray:
    """The documents' weights as exports see them [N, num_dimensions]."""
    vectors = np.zeros((len(source.index), source.num_dimensions), np.float32)
    for i, vector in enumerate(vectors):
        dimensions, weights = source.document(i)
        vector[dimensions] = weights
    return vectors


@pytest.mark.parametrize("bits", [4, 8])
def test_anserini(index, bits):
    out = export(index, Anserini(), bits=bits)
    records = [json.loads(line) for line in lines(out / "documents")]
    assert [record["id"] for record in records] == list(TEXTS)
    assert [record["contents"] for record in records] == list(TEXTS.values())
    width = ExportedIndex(index).num_dimensions
    assert all(type(impact) is int for record in records for impact in record["vector"].values())
    documents = matrix([record["vector"] for record in records], width)
    assert documents.max() == 2**bits - 1
    assert (documents == impacts(index, bits)).all()
    # A query repeats the numbers of its dimensions, the largest 100 times.
    queries = dict(line.split("\t") for line in (out / "queries.tsv").read_text().splitlines())
    assert queries.keys() == {"q1", "q2"}
    counts = np.bincount([int(word) for word in queries["q1"].split()], minlength=width)
    assert counts.max() == 100
    if bits == 8:
        best = index.search(["cat1 dog2"], 1)[0][0].score
        assert_ranked_as(index, "cat1 dog2", documents @ counts, best * 0.02)


def varint(stream: BytesIO) -> int:
    value = shift = 0
    while True:
        octet = stream.read(1)[0]
        value |= (octet & 127) << shift
        shift += 7
        if octet < 128:
            return value


def fields_of(data: bytes) -> defaultdict[int, list[Any]]:
    """The values of a Protocol Buffers message by the field's number; 0 is left out."""
    stream, values = BytesIO(data), defaultdict(list)
    read = {
        0: varint,
        1: lambda stream: struct.unpack("<d", stream.read(8))[0],
        2: lambda stream: stream.read(varint(stream)),
    }
    while tag := stream.read(1):
        values[tag[0] >> 3].append(read[tag[0] & 7](stream))
    return values


def number(message: defaultdict[int, list[Any]], field: int) -> Any:
    return (message[field] or [0])[0]


def test_ciff(index):
    """The fields of CIFF's specification, by their numbers."""
    stream = BytesIO((export(index, CIFF()) / "index.ciff").read_bytes())

    def message() -> defaultdict[int, list[Any]]:
        return fields_of(stream.read(varint(stream)))

    header, expected = message(), impacts(index)
    version, lists, records, all_lists, all_records, total, mean = (
        number(header, field) for field in range(1, 8)
    )
    assert (version, all_lists, records, all_records) == (1, lists, len(TEXTS), len(TEXTS))
    assert (total, mean) == (expected.sum(), expected.sum() / len(TEXTS))
    documents, terms = np.zeros_like(expected), []
    for _ in range(lists):
        posting_list = message()
        postings = [fields_of(posting) for posting in posting_list[4]]
        frequencies = [number(posting, 2) for posting in postings]
        assert number(posting_list, 2) == len(postings)
        assert number(posting_list, 3) == sum(frequencies)
        terms.append(posting_list[1][0].decode())
        document_ids = np.cumsum([number(posting, 1) for posting in postings])
        documents[document_ids, int(terms[-1])] = frequencies
    assert (documents == expected).all()
    assert terms == sorted(terms)
    found = [message() for _ in range(records)]
    assert not stream.read()
    assert [number(record, 1) for record in found] == list(range(len(TEXTS)))
    assert [record[2][0].decode() for record in found] == list(TEXTS)
    assert [number(record, 3) for record in found] == expected.sum(axis=1).tolist()


@pytest.mark.parametrize("form", [OpenSearch(), Elasticsearch()], ids=lambda form: form.name)
def test_bulk_requests(index, form):
    out = export(index, form)
    lines_read = [json.loads(line) for line in lines(out / "documents")]
    actions, records = lines_read[::2], lines_read[1::2]
    assert actions == [{"index": {"_id": name}} for name in TEXTS]
    assert [record["text"] for record in records] == list(TEXTS.values())
    assert "vector" not in records[0]
    assert "vector" not in records[-1]
    source = ExportedIndex(index)
    documents = matrix([record.get("vector", {}) for record in records], source.num_dimensions)
    assert (documents == weights_of(source)).all()
    mapping = json.loads((out / "mapping.json").read_text())["mappings"]["properties"]
    field_type = "rank_features" if form.name == "opensearch" else "sparse_vector"
    assert mapping["vector"] == {"type": field_type}
    queries = [json.loads(line) for line in (out / "queries.jsonl").read_text().splitlines()]
    assert [query["id"] for query in queries] == ["q1", "q2"]
    ((clause, body),) = queries[0]["body"]["query"].items()
    if form.name == "opensearch":
        assert clause == "neural_sparse"
        tokens = body["vector"]["query_tokens"]
    else:
        assert (clause, body["field"], body["prune"]) == ("sparse_vector", "vector", False)
        tokens = body["query_vector"]
    assert [query["scale"] for query in queries] == [1.0, 1.0]
    scores = documents @ matrix([tokens], source.num_dimensions)[0]
    assert_ranked_as(index, "cat1 dog2", scores, 1e-5)


def test_query_weights_that_formats_take():
    # Lucene's FeatureField refuses a query weight above 64; a factor keeps the ranking.
    for weights, scale, written in (
        ([64.0, 0.5], 1.0, [64.0, 0.5]),
        ([65.0, 0.5], 0.5, [32.5, 0.25]),
        ([1000.0, 3.0], 2**-4, [62.5, 0.1875]),
        ([2.0**100, 2.0**-60], 2.0**-94, [64.0]),  # the other is too small for a float
        ([], 1.0, []),
    ):
        vector = Vector(np.arange(len(weights)), np.array(weights, np.float32))
        line = json.loads(Elasticsearch().query(Query("q", ""), vector, []))
        assert line["scale"] == scale
        tokens = line["body"]["query"]["sparse_vector"]["query_vector"]
        assert tokens == {str(i): weight for i, weight in enumerate(written)}
    vector = Vector(np.array([3, 5, 9]), np.array([0.5, 2.0, 0.001], np.float32))
    dimensions, levels = query_impacts(vector)
    assert (dimensions.tolist(), levels.tolist()) == ([3, 5], [25, 100])


def test_lucene_takes_normal_document_weights(tmp_path, monkeypatch):
    index = build(tmp_path / "index", {"one": "cat dog", "none": "cat"})
    vectors = [
        Vector(np.arange(2), np.array([1.5, 2**-126], np.float32)),
        Vector(np.array([0]), np.array([2**-127], np.float32)),
    ]
    monkeypatch.setattr(ExportedIndex, "document", lambda _, value: vectors[value])
    records = [json.loads(line) for line in lines(export(index, OpenSearch()) / "documents")][1::2]
    assert records[0]["vector"] == {"0": 1.5, "1": pytest.approx(2**-126)}
    assert "vector" not in records[1]


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (Document("x" * 513, "cat"), "elasticsearch takes ids of up to 512 bytes, not 'xxx"),
        (Document("d", "cat", "", {"tag": "x" * 32_767}), "texts of up to 32,766 bytes in fields"),
    ],
)
def test_documents_that_elasticsearch_refuses(tmp_path, document, message):
    index = build(tmp_path / "index", [document])
    with pytest.raises(InputError, match=message):
        export_index(index, Elasticsearch(), tmp_path / "out")
    with pytest.raises(InputError, match="bits must be at most 16, not 40"):
        export_index(index, Elasticsearch(), tmp_path / "out", 40)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("form", [OpenSearch(), Elasticsearch(), Qdrant()], ids=lambda f: f.name)
def test_documents_and_queries_have_vectors_of_their_texts(form, tmp_path):
    index = build_similar(tmp_path / "index", SIMILAR, tiny_concepts(tmp_path))
    export_index(index, form, tmp_path / "out", queries=[Query("q", "bade kilo")])
    written = json.loads((tmp_path / "out" / "queries.jsonl").read_text())
    body = query_body(index, ParsedQuery("bade kilo"), form.name)
    assert "20 times the cosine of the fields similarity" in left_out(index, form)
    if form.name == "qdrant":
        (file,) = (tmp_path / "out" / "points").iterdir()
        vectors = [point["vector"] for point in json.loads(file.read_text())["points"]]
        collection = json.loads((tmp_path / "out" / "collection.json").read_text())
        assert collection["vectors"] == {"similarity": {"size": 32, "distance": "Cosine"}}
        assert written["similarity"] == body["prefetch"][1]["query"]
    else:
        vectors = [json.loads(line) for line in lines(tmp_path / "out" / "documents")][1::2]
        mapping = json.loads((tmp_path / "out" / "mapping.json").read_text())
        field = mapping["mappings"]["properties"]["similarity"]
        if form.name == "opensearch":
            assert mapping["settings"] == {"index.knn": True}
            assert field == {"type": "knn_vector", "dimension": 32, "space_type": "cosinesimil"}
        else:
            assert field == {"type": "dense_vector", "dims": 32, "similarity": "cosine"}
        script = body["rescore"]["query"]["rescore_query"]["script_score"]["script"]
        assert written["similarity"] == script["params"]["vector"]
    assert len(vectors[0]["similarity"]) == 32
    assert "similarity" not in vectors[7]  # a text without tokens has no direction


def test_formats_without_vectors_say_so(tmp_path):
    index = build_similar(tmp_path / "index", SIMILAR, tiny_concepts(tmp_path))
    for form in (Anserini(), CIFF()):
        assert "20 times the cosine of vectors that are left out" in left_out(index, form)
    assert left_out(build(tmp_path / "words", TEXTS), CIFF()) == ""


FIELDS = [
    {"n": 2**53 + 1, "x": 0.5, "tag": ["a", "b"], "day": "2020-02-29T00:00:00Z"},
    {"n": 2**53, "x": 2, "tag": ["b"], "day": "2020-03-01T00:00:00Z", "my field": "c"},
    {"n": -5, "day": "2021-01-01T12:00:00Z"},
    {},
]


def with_fields(path: Path) -> IndexReader:
    documents = [Document(f"d{n}", "cat", "", fields) for n, fields in enumerate(FIELDS)]
    return build(path, documents)


def test_fields_are_written_with_their_types(tmp_path):
    index = with_fields(tmp_path / "index")
    export_index(index, Qdrant(), tmp_path / "points")
    points = json.loads((tmp_path / "points" / "points" / "000000.json").read_text())["points"]
    assert [point["payload"].get("fields", {}) for point in points] == FIELDS
    for form in (OpenSearch(), Elasticsearch()):
        export_index(index, form, tmp_path / form.name)
        records = [json.loads(line) for line in lines(tmp_path / form.name / "documents")][1::2]
        assert [record.get("fields", {}) for record in records] == FIELDS
        mapping = json.loads((tmp_path / form.name / "mapping.json").read_text())["mappings"]
        assert mapping["properties"]["fields"] == {
            "properties": {
                "n": {"type": "long"},
                "x": {"type": "double"},
                "tag": {"type": "keyword"},
                "day": {"type": "date"},
                "my field": {"type": "keyword"},
            }
        }


@pytest.mark.parametrize("count", [994, 995])
def test_many_fields_raise_the_limit_of_a_mapping(tmp_path, count):
    names = ["a.b", *(f"f{n}" for n in range(count))]
    index = build(tmp_path / "index", [Document("d", "cat", "", dict.fromkeys(names, 1))])
    export_index(index, OpenSearch(), tmp_path / "out")
    mapping = json.loads((tmp_path / "out" / "mapping.json").read_text())
    # The text, the title, the vector and "fields"; each of the fields, and the object "a".
    limit = {"index.mapping.total_fields.limit": 1001}
    assert mapping.get("settings") == (limit if count == 995 else None)
    fields = mapping["mappings"]["properties"]["fields"]["properties"]
    assert fields == {name: {"type": "long"} for name in names}


def test_the_vocabulary_says_what_dimensions_are(index):
    records = [
        line.split("\t")
        for line in (export(index, Anserini()) / "vocabulary.tsv").read_text().splitlines()
    ]
    terms = list(index.vocabularies[0].terms or ())
    expected = [[str(n), "words", str(n), term] for n, term in enumerate(terms)]
    if index.rra is not None:
        expected.append([str(len(terms)), "prior", "0", "RRA's prior of a document"])
    assert records == expected


@pytest.mark.parametrize("form", [Anserini(), Qdrant()], ids=lambda form: form.name)
def test_a_killed_export_goes_on(form, tmp_path, monkeypatch):
    index = build(tmp_path / "index", TEXTS)
    monkeypatch.setattr(folder, "FILE_BYTES", 300)
    export_index(index, form, tmp_path / "whole", queries=QUERIES)
    with monkeypatch.context() as patch:
        patch.setattr(Units, "finish", stops_at(Units.finish, 4))
        with pytest.raises(KeyboardInterrupt):
            export_index(index, form, tmp_path / "out", queries=QUERIES)
    partial = tmp_path / "out.partial" / "export"
    renamed = build(tmp_path / "renamed", {f"other_{name}": text for name, text in TEXTS.items()})
    with pytest.raises(InputError, match=r"index was .* and is now"):
        export_index(renamed, form, tmp_path / "out", queries=QUERIES)
    inodes = {path.name: path.stat().st_ino for path in partial.glob("*/*")}
    export_index(index, form, tmp_path / "out", queries=QUERIES)
    assert not (tmp_path / "out.partial").exists()
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
    linked = [p.stat().st_ino == inodes.get(p.name) for p in sorted((tmp_path / "out").glob("*/*"))]
    assert linked[0]
    assert not linked[-1]


def test_the_command(tmp_path, run):
    path = build(tmp_path / "index", TEXTS).path
    arguments = ["index", "export", path, "--format", "ciff", "--out", tmp_path / "out"]
    report = run(*arguments, "--json").json
    assert (report["documents"], report["queries"], report["files"]) == (len(TEXTS), 0, 2)
    assert report["bytes"] == sum(p.stat().st_size for p in (tmp_path / "out").iterdir())
    assert_error(run(*arguments), "exists already")
