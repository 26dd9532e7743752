"""Indexes in PyTerrier, LangChain and LlamaIndex give the same results as alone."""

import asyncio
import pickle
from importlib import import_module
from typing import Any

import pytest

import lexicept
from lexicept.corpora import Document
from lexicept.errors import InputError
from lexicept.pipelines.index import Index
from lexicept.pipelines.index import open as open_index
from support.indexes import build

PETS = [
    Document("d1", "Cats sleep all day.", "On cats", {"year": 2019, "tag": ["pet"]}),
    Document("d2", "Dogs and cats fight."),
    Document("d3", "Dogs bark.", "", {"year": 2021}),
]


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    return Index(build(tmp_path_factory.mktemp("index") / "pets", PETS))


def retriever_of(integration: str, library: str, name: str) -> Any:
    """Return an integration's retriever; skip the test if the library is not installed."""
    pytest.importorskip(library, reason=f"needs the library of lexicept.integrations.{integration}")
    return getattr(import_module(f"lexicept.integrations.{integration}"), name)


def test_a_pickled_index_is_its_absolute_path(index, monkeypatch, tmp_path):
    monkeypatch.chdir(index.path.parent)
    with open_index("pets") as opened:
        data = pickle.dumps(opened)
    monkeypatch.chdir(tmp_path)
    loaded = pickle.loads(data)
    assert loaded.path == index.path
    assert [hit.id for hit in loaded.search("cats")] == ["d1", "d2"]
    loaded.close()
    with pytest.raises(InputError, match="the index is closed"):
        pickle.dumps(loaded)


# PyTerrier 1.1 asks pandas for what pandas 3.1 deprecates.
@pytest.mark.filterwarnings("ignore::DeprecationWarning:pyterrier")
class TestPyTerrier:
    @pytest.fixture(autouse=True)
    def library(self):
        self.retriever = retriever_of("pyterrier", "pyterrier", "PyTerrierRetriever")
        self.pt, self.pd = import_module("pyterrier"), import_module("pandas")

    def topics(self, *queries: object) -> object:
        qids = [f"q{i}" for i in range(len(queries))]
        return self.pd.DataFrame({"qid": qids, "query": list(queries), "kept": 1})

    def test_results_are_the_index_s(self, index):
        hits = self.retriever(index)(self.topics("dogs fight", "", "cats"))
        assert [*hits] == ["qid", "query", "kept", "docno", "score", "rank"]
        records = hits[["qid", "docno", "score", "rank"]].itertuples(index=False, name=None)
        expected = [
            (qid, hit.id, hit.score, hit.rank - 1)
            for qid, query in (("q0", "dogs fight"), ("q2", "cats"))
            for hit in index.search(query)
        ]
        assert list(records) == expected
        assert [record[1] for record in expected] == ["d2", "d3", "d1", "d2"]

    def test_topics_without_results_keep_the_columns(self, index):
        for topics in (self.topics(""), self.topics()):
            hits = self.retriever(index)(topics)
            assert hits.empty
            assert hits["rank"].dtype == "int64"
            assert hits["score"].dtype == "float64"
            assert [*hits] == ["qid", "query", "kept", "docno", "score", "rank"]

    def test_experiment(self, index):
        qrels = self.pd.DataFrame({"qid": ["q0", "q1"], "docno": ["d2", "d2"], "label": [1, 1]})
        systems = [self.retriever(index), self.retriever(index, filter="year >= 2020")]
        measured = self.pt.Experiment(
            systems, self.topics("dogs fight", "cats"), qrels, ["recip_rank"], names=["all", "some"]
        )
        assert measured["recip_rank"].tolist() == [0.75, 0.0]

    def test_systems_have_short_names(self, index):
        assert repr(self.retriever(index)) == "PyTerrierRetriever(pets)"
        limited = self.retriever(index, top_k=1, vocabulary="words", filter="year >= 2020")
        name = "PyTerrierRetriever(pets, words, top_k=1, filter='year >= 2020')"
        assert repr(limited) == name

    def test_bad_input(self, index):
        with pytest.raises(self.pt.validate.InputValidationError):
            self.retriever(index)(self.pd.DataFrame({"qid": ["q0"]}))
        with pytest.raises(InputError, match="a query is a text"):
            self.retriever(index)(self.topics(None))


class TestLangChain:
    @pytest.fixture(autouse=True)
    def library(self):
        self.retriever = retriever_of("langchain", "langchain_core", "LangChainRetriever")

    def test_results_are_the_index_s(self, index):
        retriever = self.retriever(index=index, top_k=1)
        (document,) = retriever.invoke("sleeping cats")
        (hit,) = index.search("sleeping cats", 1)
        assert (document.id, document.page_content) == ("d1", "Cats sleep all day.")
        assert document.metadata == {
            "id": "d1",
            "title": "On cats",
            "score": hit.score,
            "year": 2019,
            "tag": ["pet"],
        }
        assert asyncio.run(retriever.ainvoke("sleeping cats")) == [document]
        assert retriever.batch(["bark", "", "sleep"]) == [
            *map(retriever.invoke, ["bark", "", "sleep"])
        ]
        assert retriever.invoke("") == []

    def test_a_call_s_k_replaces_top_k(self, index):
        retriever = self.retriever(index=index)
        everything = retriever.invoke("dogs cats")
        assert len(everything) == 3
        assert retriever.invoke("dogs cats", k=2) == everything[:2]
        assert asyncio.run(retriever.ainvoke("dogs cats", k=2)) == everything[:2]
        assert retriever.batch(["dogs cats"], k=2) == [everything[:2]]
        parsed = self.retriever(index=index, syntax=True).invoke("cats dogs -fight")
        assert {document.id for document in parsed} == {"d1", "d3"}

    def test_a_filter(self, index):
        retriever = self.retriever(index=index, filter="year exists")
        assert [document.id for document in retriever.invoke("dogs cats")] == ["d1", "d3"]
        for given in ("year > 2020", {"year": {">": 2020}}):
            assert [d.id for d in retriever.invoke("dogs cats", filter=given)] == ["d3"]
            documents = asyncio.run(retriever.ainvoke("dogs cats", filter=given))
            assert [document.id for document in documents] == ["d3"]

    def test_a_pickled_retriever_opens_its_index_again(self, index):
        retriever = self.retriever(index=index, top_k=2, vocabulary="words")
        loaded = pickle.loads(pickle.dumps(retriever))
        assert (loaded.top_k, loaded.vocabulary) == (2, "words")
        assert loaded.index is not index
        assert loaded.invoke("cats") == retriever.invoke("cats")


class TestLlamaIndex:
    @pytest.fixture(autouse=True)
    def library(self):
        self.retriever = retriever_of("llama_index", "llama_index.core", "LlamaIndexRetriever")

    def test_results_are_the_index_s(self, index):
        retriever = self.retriever(index, top_k=2)
        nodes = retriever.retrieve("cats")
        assert [(n.node.node_id, n.score) for n in nodes] == [
            (hit.id, hit.score) for hit in index.search("cats", 2)
        ]
        known = {"year": 2019, "tag": ["pet"], "title": "On cats"}
        assert [n.node.metadata for n in nodes] == [known, {}]
        assert [n.text for n in nodes] == ["Cats sleep all day.", "Dogs and cats fight."]
        assert asyncio.run(retriever.aretrieve("cats")) == nodes
        assert retriever.retrieve("") == []

    def test_the_syntax_of_queries_is_read_where_it_is_asked_for(self, index):
        query = '"dogs bark" year:2021'
        assert len(self.retriever(index).retrieve(query)) == 2
        retrievers = (
            self.retriever(index, syntax=True),
            self.retriever(index, filter={"year": {">": 2020}}),
        )
        for retriever in retrievers:
            (node,) = retriever.retrieve(query)
            assert node.node.node_id == "d3"


def test_retrievers_return_the_best_passage(tmp_path):
    guide = {"id": "guide", "passages": ["Welcome, dogs.", {"text": "A cat.", "anchor": "cat"}]}
    index = lexicept.build([guide], tmp_path / "guide", vocabulary="words")
    retriever = retriever_of("langchain", "langchain_core", "LangChainRetriever")
    (document,) = retriever(index=index).invoke("cats")
    assert (document.id, document.page_content) == ("guide", "A cat.")
    assert document.metadata["passage"] == "guide#cat"
    retriever = retriever_of("llama_index", "llama_index.core", "LlamaIndexRetriever")
    (node,) = retriever(index).retrieve("cats")
    assert (node.node_id, node.metadata["passage"]) == ("guide", "guide#cat")
