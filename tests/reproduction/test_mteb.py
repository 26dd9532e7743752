"""MTEB evaluates an index's settings, and its encoder alone, on a task in memory."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

pytest.importorskip("mteb", reason="needs lexicept[mteb]")

import datasets
import mteb
from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.task_metadata import TaskMetadata
from mteb.models import SearchProtocol

from lexicept.corpora import Document
from lexicept.encoding.words import WordVectorizer
from lexicept.errors import InputError
from lexicept.index.impacts import RRASettings, VocabularySettings
from lexicept.index.updates import reweight
from lexicept.neural.encoders.encoder import Encoder
from lexicept.neural.vectorizers.concepts import ConceptVectorizer
from lexicept.weighting import BM25
from reproduction.mteb_search import LexiceptSearch
from support.indexes import build, build_of

CORPUS = [
    {"id": "d1", "title": "Cats", "text": "They sleep all day."},
    {"id": "d2", "title": "", "text": "Dogs bark at cats."},
    {"id": "d3", "title": "", "text": "A bank lends money."},
]
QUERIES = [
    {"id": "q1", "text": "sleeping cats"},
    {"id": "q2", "text": "barking"},
    {"id": "q3", "text": "zzz"},
]
QRELS = {"q1": {"d1": 1}, "q2": {"d1": 1, "d2": 1}, "q3": {"d3": 1}}

UNKNOWN = ("reference", "date", "domains", "task_subtypes", "license", "annotations_creators")
UNKNOWN += ("dialect", "sample_creation", "bibtex_citation")


class Pets(AbsTaskRetrieval):
    metadata = TaskMetadata(
        name="Pets",
        description="Three documents.",
        dataset={"path": "none", "revision": "none"},
        type="Retrieval",
        category="t2t",
        modalities=["text"],
        eval_splits=["test"],
        eval_langs=["eng-Latn"],
        main_score="ndcg_at_10",
        **dict.fromkeys(UNKNOWN),
    )
    top_ranked: ClassVar[Mapping[str, list[str]] | None] = None

    def load_data(self, num_proc: int | None = None, **kwargs: Any) -> None:
        split = {
            "corpus": datasets.Dataset.from_list(CORPUS),
            "queries": datasets.Dataset.from_list(QUERIES),
            "relevant_docs": QRELS,
            "top_ranked": self.top_ranked,
        }
        self.dataset = {"default": {"test": split}}
        self.data_loaded = True


class Ranked(Pets):
    top_ranked: ClassVar[Mapping[str, list[str]]] = {"q1": ["d2"], "q2": ["d2", "d3"], "q3": ["d3"]}


def scores(model: object, task: Pets) -> Mapping[str, float]:
    results = mteb.evaluate(model, task, cache=None, show_progress_bar=False)
    (found,) = results.task_results[0].scores["test"]
    return found


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    return build(tmp_path_factory.mktemp("words") / "index", {"other": "Not of the task."})


@pytest.fixture
def model(words):
    return LexiceptSearch(words)


def test_a_task_is_scored_and_reranked(model):
    assert isinstance(model, SearchProtocol)
    found = scores(model, Pets())
    # q1: d1 first. q2: d2 first, d1 not found: 1 / (1 + 1 / log2 3). q3: nothing.
    assert found["ndcg_at_10"] == pytest.approx((1 + 0.61315 + 0) / 3, abs=1e-5)
    assert found["recall_at_10"] == pytest.approx((1 + 0.5 + 0) / 3, abs=1e-5)
    assert scores(model, Ranked())["hit_rate_at_10"] == pytest.approx(1 / 3, abs=1e-5)
    assert model.search(QUERIES, top_k=1, top_ranked=Ranked.top_ranked).keys() == QRELS.keys()


def test_scores_are_those_of_an_index_of_the_corpus(encoder, words, tmp_path):
    """Words and concepts, pruned, re-weighted and rounded."""
    documents = [Document(row["id"], row["text"], row["title"]) for row in CORPUS]
    built = []
    for name, content in (("recipe", [Document("other", "Not of it.")]), ("corpus", documents)):
        words = WordVectorizer("de"), VocabularySettings(BM25())
        concepts = ConceptVectorizer(encoder), VocabularySettings(BM25(k3=1.0), 3, 20)
        build_of(tmp_path / name, content, words, concepts, weight_bits=8)
        path = tmp_path / f"{name}-rra"
        built.append(reweight(tmp_path / name, path, RRASettings(alpha=1.5)))
    recipe, index = built
    model = LexiceptSearch(recipe)
    model.index(CORPUS)
    expected = index.search([row["text"] for row in QUERIES], 2)
    found = model.search(QUERIES, top_k=2)
    assert found == {f"q{n}": dict(hits) for n, hits in enumerate(expected, 1)}
    assert found["q1"]
    assert model.mteb_model_meta.name == "lexicept/words-concepts"
    revisions = [
        LexiceptSearch(one, name).mteb_model_meta.revision
        for one, name in ((recipe, None), (recipe, "words"), (recipe, "concepts"), (words, None))
    ]
    assert len(set(revisions)) == 4
    assert LexiceptSearch(index).mteb_model_meta.revision == revisions[0]


def test_instructions_are_read_with_the_query(model):
    model.index(CORPUS)
    rows = [{"id": "q", "text": "zzz", "instruction": "about money"}]
    assert [*model.search(rows, top_k=5)["q"]] == ["d3"]


def test_bad_input(words, model):
    with pytest.raises(InputError, match="no vocabulary 'concepts'"):
        LexiceptSearch(words, "concepts")
    with pytest.raises(InputError, match="no corpus"):
        model.search(QUERIES, top_k=5)
    with pytest.raises(InputError, match="no documents"):
        model.index([])
    with pytest.raises(InputError, match="duplicate"):
        model.index([*CORPUS, CORPUS[0]])
    model.index(CORPUS)
    with pytest.raises(InputError, match="query q: only texts"):
        model.search([{"id": "q", "text": [{"role": "user", "content": "hi"}]}], top_k=5)


def test_the_temporary_folder_goes_with_the_model(words):
    model = LexiceptSearch(words)
    model.index(CORPUS)
    folder = model._folder
    assert (folder / "corpus").is_dir()
    del model
    assert not folder.exists()


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_an_encoder_is_taken_as_it_is(encoder, tmp_path):
    encoder.save(str(tmp_path), create_model_card=False)
    assert scores(Encoder.load(tmp_path), Pets())["hit_rate_at_10"] == 1  # 3 of 3 documents


def test_the_page_s_example_runs(tmp_path, monkeypatch, capsys):
    page = (Path(__file__).parents[2] / "docs" / "guides" / "integrations.md").read_text()
    (example,) = re.findall(r"```python no-run\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(mteb, "get_tasks", lambda tasks: [Pets()])
    evaluate = mteb.evaluate
    monkeypatch.setattr(mteb, "evaluate", lambda *given: evaluate(*given, cache=None))
    build(Path("pets.index"), {"d1": "Cats sleep all day.", "d2": "Dogs bark."})
    exec(example, {})
    name, score = capsys.readouterr().out.split()
    assert (name, float(score)) == ("Pets", pytest.approx(0.53772, abs=1e-5))
