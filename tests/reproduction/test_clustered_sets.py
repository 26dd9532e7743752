"""ESPLADE's sets: plain clusters, draws, ratios of matched terms by hand, whole folders."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lexicept.corpora import read_documents, read_qrels, read_queries
from lexicept.errors import InputError
from lexicept.training.ranking import neural_teachers
from reproduction import clustered_sets as sets_module
from reproduction.clustered_sets import (
    SPLITS,
    ClusteringSettings,
    Terms,
    clustered_sets,
    matched_queries,
    pick,
    query_clusters,
)
from reproduction.data import Data, check_dataset, load_sources


def around(centres: np.ndarray, each: int, spread: float = 0.01) -> np.ndarray:
    """Points near each centre, centre after centre."""
    points = np.repeat(centres, each, axis=0)
    return (points + np.random.default_rng(1).normal(0, spread, points.shape)).astype(np.float16)


# Clusters


@pytest.mark.parametrize("seed", range(5))
def test_plain_clusters_are_found(seed):
    """Eight directions; lengths do not matter, as embeddings are compared by cosine."""
    points = around(np.eye(8), 20) * np.linspace(0.5, 3, 160)[:, None].astype(np.float16)
    clusters = query_clusters(points, 8, seed)
    groups = clusters.reshape(8, 20)
    assert (groups == groups[:, :1]).all()
    assert sorted(groups[:, 0]) == list(range(8))
    assert (query_clusters(points, 8, seed) == clusters).all()


def test_clusters_of_a_sample(monkeypatch):
    monkeypatch.setattr("reproduction.clustered_sets.SAMPLE", 5)
    monkeypatch.setattr("reproduction.clustered_sets.BLOCK", 7)
    groups = query_clusters(around(np.eye(3), 40), 3, 2).reshape(3, 40)
    assert (groups == groups[:, :1]).all()


def test_impossible_clusters():
    with pytest.raises(InputError, match="3 queries can't make 4 clusters"):
        query_clusters(np.eye(3), 4)


# Draws


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=60),
    st.integers(0, 3),
    st.integers(0, 5),
    st.integers(0, 9),
)
def test_every_cluster_gives_as_many(labels, queries, others, seed):
    clusters, taken = np.array(labels), np.zeros(len(labels), bool)
    random = np.random.default_rng(seed)
    first, second = (pick(clusters, queries, others, taken, random) for _ in range(2))
    both = np.concatenate([*first, *second])
    assert len(set(both.tolist())) == len(both) == taken.sum()
    sizes = Counter(labels)
    for cluster, size in sizes.items():
        asked = (clusters[first.queries] == cluster).sum()
        drawn = (clusters[first.distractors] == cluster).sum()
        assert asked == min(queries, size)
        assert drawn == min(others, size - asked)


# Matched terms


def test_ratios_by_hand():
    """Stems, without stop words, each once: "running cats" and "the cat runs" share both terms."""
    terms = Terms(
        ["running cats", "the of", "red red car"], ["the cat runs", "a car", "runs away", "on"]
    )
    assert terms.ratios(0, [0, 1, 2, 3]).tolist() == [1.0, 0.0, 0.5, 0.0]
    assert terms.ratios(2, [1]).tolist() == [0.5]
    assert np.isnan(terms.ratios(1, [0])).all()
    assert terms.lengths.tolist() == [2, 0, 2]


QUERIES = ["alpha beta gamma delta", "alpha beta", "epsilon zeta", "alpha epsilon", "eta theta"]
DOCUMENTS = [
    "alpha beta gamma delta",  # of query 0: all of its terms
    "alpha other",  # of query 1: half
    "nothing shared",  # of query 2: none
    "alpha beta gamma extra",  # of query 3, in another cluster: three quarters of query 0's
    "epsilon zeta",  # of query 4, in another cluster: all of query 2's
]
RELEVANT = {0: [0], 1: [1], 2: [2], 3: [3], 4: [4]}
CLUSTERS = np.array([0, 0, 0, 1, 1])


def sizes(queries: int, least_ratio: float = 0.5) -> ClusteringSettings:
    return ClusteringSettings("", evaluation_queries=queries, least_ratio=least_ratio)


def test_triplets_by_hand():
    terms = Terms(QUERIES, DOCUMENTS)
    pairs = matched_queries(terms, RELEVANT, CLUSTERS, [0, 1, 2], sizes(3))
    assert [(pair.query, pair.ratio, pair.difficulty) for pair in pairs] == [
        (2, 0.0, "low"),
        (1, 0.5, "middle"),
        (0, 1.0, "high"),
    ]
    assert [(pair.positives, pair.negatives) for pair in pairs] == [
        ([2], [4]),
        ([1], [3]),
        ([0], [3]),
    ]
    strict = matched_queries(terms, RELEVANT, CLUSTERS, [0, 1, 2], sizes(3, 0.76))
    assert [pair.query for pair in strict] == [2, 1]  # query 0 has no negative, and is left out


def test_negatives_are_the_most_similar_and_of_other_clusters(monkeypatch):
    monkeypatch.setattr(sets_module, "NEGATIVES", 2)
    documents = ["a b c d", "a b c", "a b", "a b c x", "a", "a b c d y"]
    documents = [" ".join(f"word{letter}" for letter in document.split()) for document in documents]
    queries = [documents[0], *documents[1:]]
    relevant = {0: [0], 1: [1, 0], 2: [2], 3: [3], 4: [4], 5: [5]}
    clusters = np.array([0, 1, 1, 1, 1, 0])
    (document,) = matched_queries(
        Terms(queries, documents), relevant, clusters, [0], sizes(9, 0.25)
    )
    assert document.negatives == [1, 3]  # not 0, its own; not 5, of its own cluster


# Whole folders


@pytest.fixture
def source(tmp_path):
    """96 queries of four topics with two clicked documents each; titles and texts."""
    folder = tmp_path / "clicks"
    (folder / "qrels").mkdir(parents=True)
    documents, queries, qrels = [], [], ["query-id\tcorpus-id\tscore"]
    for i in range(96):
        topic = i % 4
        queries.append({"_id": f"q{i}", "text": f"topic{topic} thing{i} shared{i // 4 % 8}"})
        for place in range(2):
            name = f"d{i}-{place}"
            title = f"topic{topic} thing{i}" if place else f"shared{i // 4 % 8} page"
            documents.append({"_id": name, "title": title, "text": "a long body"})
            qrels.append(f"q{i}\t{name}\t{place + 1}")
    documents.append({"_id": "untitled", "text": "no title"})
    qrels += ["q0\tuntitled\t9", "q1\tnowhere\t1"]
    queries.append({"_id": "once", "text": "one click"})
    qrels.append("once\td0-0\t1")
    for name, lines in (("corpus", documents), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "qrels" / "train.tsv").write_text("\n".join(qrels))
    return folder


SMALL = {"clusters": 4, "test_queries": 6, "test_distractors": 5, "dev_queries": 2}
SMALL |= {"dev_distractors": 1, "evaluation_queries": 12, "least_ratio": 0.3}


@pytest.fixture(autouse=True)
def embedded(monkeypatch):
    """A query's embedding is its topic."""

    def embeddings(name, queries, *_):
        return np.eye(4)[[int(text[5]) for text in queries]].astype(np.float16), None

    monkeypatch.setattr(neural_teachers, "embeddings", embeddings)


def of_set(folder: Path, name: str) -> tuple[dict[str, str], dict[str, str], dict[str, set[str]]]:
    texts = {document.id: document.content for document in read_documents(folder / name)}
    queries = dict(read_queries(folder / name, SPLITS[name]))
    relevant: dict[str, set[str]] = {}
    for qrel in read_qrels(folder / name, SPLITS[name]):
        if qrel.relevance > 0:
            relevant.setdefault(qrel.query_id, set()).add(qrel.document_id)
    return texts, queries, relevant


def topics(queries: dict[str, str]) -> Counter[str]:
    return Counter(text.split()[0] for text in queries.values())


def test_sets_are_disjoint_and_even(source, tmp_path):
    out = tmp_path / "sets"
    counts = clustered_sets(ClusteringSettings(str(source), titles=True, **SMALL), out)
    # Of 24 queries of a topic 6 + 5 test and 2 + 1 validate.
    assert {name: counts[name] for name in ("train", "dev", "test")} == {
        "train": 40,
        "dev": 8,
        "test": 24,
    }
    result = {name: of_set(out, name) for name in SPLITS}
    query_ids = [set(result[name][1]) for name in ("train", "dev", "test")]
    assert len(set.union(*query_ids)) == sum(map(len, query_ids)) == 72
    for name, each in (("train", 10), ("dev", 2), ("test", 6)):
        assert set(topics(result[name][1]).values()) == {each}
        texts, _, relevant = result[name]
        assert set.union(*relevant.values()) <= texts.keys()
        assert all(len(documents) == 2 for documents in relevant.values())
        assert "a long body" not in "".join(texts.values())  # titles alone
    sizes = {name: len(result[name][0]) for name in SPLITS}
    assert sizes == {"train": 80, "dev": 24, "test": 88, "evaluation": 192}  # two for each query
    assert not set(result["train"][0]) & (set(result["dev"][0]) | set(result["test"][0]))
    _, queries, relevant = result["evaluation"]
    assert len(queries) == counts["evaluation"] == 12
    assert queries.keys() <= result["test"][1].keys()
    ratios = [
        line.split("\t") for line in (out / "evaluation" / "ratios.tsv").read_text().split("\n")
    ]
    assert ratios[0] == ["query-id", "ratio", "class"]
    assert Counter(ratio[2] for ratio in ratios[1:-1]) == {"low": 4, "middle": 4, "high": 4}
    assert {ratio[1] for ratio in ratios[1:-1]} == {"0.666667"}  # topic and thing, of three terms
    judged = list(read_qrels(out / "evaluation", "test"))
    negatives = [qrel for qrel in judged if qrel.relevance == 0]
    for qrel in negatives:  # shared with queries of another topic
        document, other = int(qrel.query_id[1:]), int(qrel.document_id[1:].split("-")[0])
        assert document // 4 % 8 == other // 4 % 8
        assert document % 4 != other % 4
    assert {qrel.query_id for qrel in negatives} == queries.keys()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"documents_per_query": 3}, "no query has 3 relevant documents"),
        ({"test_queries": 24}, "test and validation take every query"),
    ],
)
def test_impossible_sets(source, tmp_path, changes, message):
    settings = ClusteringSettings(str(source), titles=True, **{**SMALL, **changes})
    with pytest.raises(InputError, match=message):
        clustered_sets(settings, tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_recipes_make_the_sets_where_they_are_needed(source, tmp_path):
    described = {"source": "clicks", "titles": True, **SMALL}
    path = tmp_path / "datasets.yaml"
    path.write_text(json.dumps({"logs": {"get": "made here", "clustered": described}}))
    lines: set[str] = set()
    sources = load_sources(path)
    data = Data(source.parent, sources, tmp_path / "work", lambda stage, *_: lines.add(stage))
    location = data.find("logs/test")
    assert location == str(tmp_path / "work" / "datasets" / "logs" / "test")
    assert lines == {"clustering", "matching"}
    assert data.find("logs/dev") == str(Path(location).with_name("dev"))
    assert len(list(read_queries(location, "test"))) == 24
    with pytest.raises(InputError, match="clustered sets are train, dev, test, evaluation"):
        data.find("logs/other")
    with pytest.raises(InputError, match="clustered sets are train"):
        check_dataset("logs", data.sources)
