from collections import Counter

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st

from lexicept.candidates import mining
from lexicept.candidates.lists import CandidateList, write_lists
from lexicept.errors import InputError
from lexicept.neural.sae.cached_states import CachedStates
from lexicept.progress import silent
from lexicept.training.ranking import data as data_module
from lexicept.training.ranking.collection import mine_by_teacher
from lexicept.training.ranking.config import TeacherSettings
from lexicept.training.ranking.data import (
    Collator,
    Mixture,
    Sample,
    Sampler,
    TeacherScores,
    TrainingData,
    WordWeights,
)
from support.tiny import text, tiny_backbone

QUERIES = {"qa": text(1, 2), "qb": text(3), "qc": text(4, 5, 6)}
DOCUMENTS = {name: text(n, n + 1, n + 2) for n, name in enumerate("vwxyz")}
LISTS = [
    CandidateList("qa", ("v", "w", "x", "y"), 2, (9.0, 8.0, 1.0, 0.5)),
    CandidateList("qb", ("z", "v", "y"), 1, (7.0, 2.0, 3.0)),
    CandidateList("qc", ("x", "w"), 0, (4.0, 5.0)),
]


def make_data(folder, lists=LISTS, **more):
    opened = write_lists(folder / "lists.jsonl", lists)
    return TrainingData(
        list(QUERIES),
        list(QUERIES.values()),
        list(DOCUMENTS),
        list(DOCUMENTS.values()),
        opened,
        **more,
    )


def with_words_and_teacher(folder, dense_weight=20.0, bm25_weight=0.5):
    word_queries = sp.csr_array(np.array([[1.0, 0, 2], [0, 3, 0], [0, 0, 0]]))
    word_documents = sp.csr_array(np.eye(5, 3) * [[1], [2], [3], [4], [5]])
    queries = np.array([[1.0, 0], [0, 1], [0.6, 0.8]], np.float32)
    documents = np.array([[0, 1.0], [1, 0], [0.8, 0.6], [-1, 0], [0.6, 0.8]], np.float16)
    settings = TeacherSettings(dense_weight=dense_weight, bm25_weight=bm25_weight)
    return make_data(
        folder,
        word_weights=WordWeights(word_queries, word_documents),
        teacher=TeacherScores(settings, queries, documents),
    )


@pytest.fixture
def data(tmp_path):
    return make_data(tmp_path)


def test_a_sample_is_a_function_of_its_number(data):
    share = 0.5
    in_order = [Sampler(data, 2, share, 5)[n] for n in range(50)]
    together, again = Sampler(data, 2, share, 5), Sampler(data, 2, share, 6)
    order = np.random.default_rng(0).permutation(50).tolist()
    mixed = {n: together[n] for n in order}
    assert [mixed[n] for n in range(50)] == in_order
    assert [again[n] for n in range(50)] != in_order


def test_passes_and_candidates_are_drawn_anew(data):
    sampler = Sampler(data, 1, 1.0, 0)
    passes = [tuple(sampler[n].query for n in range(p, p + 3)) for p in range(0, 60, 3)]
    assert all(sorted(order) == [0, 1, 2] for order in passes)
    assert len(set(passes)) > 3
    drawn = Counter(
        tuple(sample.documents) for n in range(300) if (sample := sampler[n]).query == 0
    )
    # Relevant are v and w, others x and y: each pair about 25 times of 100.
    assert set(drawn) == {(0, 2), (0, 3), (1, 2), (1, 3)}
    assert min(drawn.values()) > 10


@pytest.mark.parametrize("negatives", [1, 9])
def test_the_relevant_document_is_first(data, negatives):
    sampler = Sampler(data, negatives, 1.0, 0)
    for n in range(30):
        query, documents, relevant, scores, known = sampler[n]
        assert len(set(documents)) == len(documents) == len(scores)
        assert known == [[0, 1], [4], []][query]
        assert relevant == (query != 2)
        if relevant:
            assert documents[0] in known
            assert not set(documents[1:]) & set(known)
            assert len(documents) == 1 + min(negatives, 2)
        else:  # one more candidate instead
            assert len(documents) == min(negatives + 1, 2)
        listed = dict(zip(LISTS[query].documents, LISTS[query].scores, strict=True))
        assert scores == [listed["vwxyz"[document]] for document in documents]


def test_a_share_of_samples_holds_its_relevant_document(data):
    sampler = Sampler(data, 1, 0.25, 0)
    held = [sample.relevant for n in range(3000) if (sample := sampler[n]).query != 2]
    assert np.mean(held) == pytest.approx(0.25, abs=0.03)  # 2000 samples: 3 deviations


def test_a_list_of_relevant_documents_alone_is_a_sample_of_one(tmp_path):
    sampler = Sampler(make_data(tmp_path, [CandidateList("qb", ("z", "y"), 2)]), 3, 0.0, 0)
    samples = [sampler[n] for n in range(20)]
    assert {tuple(sample.documents) for sample in samples} == {(4,), (3,)}
    assert all(sample.relevant and sample.scores is None for sample in samples)


@given(
    sizes=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=4),
    negatives=st.integers(0, 4),
    share=st.sampled_from([0.0, 0.3, 1.0]),
    seed=st.integers(0, 9),
)
def test_any_lists(tmp_path_factory, sizes, negatives, share, seed):
    folder = tmp_path_factory.mktemp("lists")
    names = [f"d{n}" for n in range(6)]
    lists = [
        CandidateList(f"q{n}", tuple(names[: relevant + others]), relevant)
        for n, (relevant, others) in enumerate(sizes)
        if relevant + others
    ] or [CandidateList("q0", ("d0",), 0)]
    queries = [result.query_id for result in lists]
    opened = write_lists(folder / "lists.jsonl", lists)
    data = TrainingData(queries, queries, names, names, opened)
    sampler = Sampler(data, negatives, share, seed)
    for n in range(2 * len(lists)):
        sample = sampler[n]
        of = lists[sample.query]
        assert 1 <= len(sample.documents) <= max(negatives + 1, 1)
        assert set(sample.documents) <= set(range(len(of.documents)))
        assert sample.relevant == (sample.documents[0] < of.relevant)
        assert all(document >= of.relevant for document in sample.documents[sample.relevant :])


def test_scores_of_pairs_by_hand(tmp_path):
    data = with_words_and_teacher(tmp_path)
    assert data.words([0, 1], [2, 0, 1]).tolist() == [[6.0, 1.0, 0.0], [0.0, 0.0, 6.0]]
    cosines = torch.tensor([[0.8, 0.0, 1.0], [0.6, 1.0, 0.0]])
    expected = 20 * cosines + 0.5 * data.words([0, 1], [2, 0, 1])
    assert torch.allclose(data.teach([0, 1], [2, 0, 1]), expected, atol=0.02)  # half precision
    words_alone = with_words_and_teacher(tmp_path, dense_weight=0.0)
    assert torch.equal(words_alone.teach([1], [0, 1]), torch.tensor([[0.0, 3.0]]))
    assert make_data(tmp_path).teach([0], [0]) is None
    with pytest.raises(InputError, match="no BM25 weights"):
        make_data(tmp_path).words([0], [0])


def test_a_list_without_scores_is_found_before_training(tmp_path):
    data = make_data(tmp_path, [*LISTS, CandidateList("qb", ("z",), 1)])
    data.check_lists()
    with pytest.raises(InputError, match="the list of the query 'qb' has no scores"):
        data.check_lists(scored=True)


class Fixed:
    """A sampler of chosen samples."""

    def __init__(self, *samples):
        self.samples = samples

    def __getitem__(self, number):
        return self.samples[number]


SAMPLES = Fixed(
    Sample(0, [1, 3, 2], True, [8.0, 0.5, 1.0], [0, 1]),
    Sample(1, [4, 3], True, [7.0, 3.0], [4]),
    Sample(2, [2, 1], False, [4.0, 5.0], []),
    Sample(1, [0], False, None, [4]),
)


def rows(*indices):
    return [{"number": i} for i in indices]


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return tiny_backbone(tmp_path_factory.mktemp("bert"))


def test_targets_by_hand(tmp_path, bert):
    data = with_words_and_teacher(tmp_path)
    batch = Collator(SAMPLES, data, bert, words=True)(rows(0, 1, 2))
    documents = [1, 2, 3, 4]  # each once, although 1, 2 and 3 are in two lists
    targets = batch["targets"]
    assert targets["query_ids"] == ["qa", "qb", "qc"]
    assert targets["columns"].tolist() == [[0, 2, 1], [3, 2, 0], [1, 0, 0]]
    assert targets["mask"].tolist() == [[True] * 3, [True, True, False], [True, True, False]]
    assert targets["relevant"].tolist() == [True, True, False]
    # Document 0 is relevant to query 0 but not in the batch.
    assert targets["known"].nonzero().tolist() == [[0, 0], [1, 3]]
    assert targets["scores"].tolist() == [[8.0, 0.5, 1.0], [7.0, 3.0, 0.0], [4.0, 5.0, 0.0]]
    assert torch.equal(targets["words"], data.words([0, 1, 2], documents))
    assert torch.equal(targets["teacher"], data.teach([0, 1, 2], documents))
    (queries,), (texts,) = batch["query"], batch["document"]
    assert queries["token_mask"].sum(dim=1).tolist() == [2, 1, 3]
    expected = bert.preprocess([DOCUMENTS[name] for name in "wxyz"])["input_ids"]
    assert torch.equal(texts["input_ids"], expected)


def test_batches_of_few_targets_repeated_queries_and_long_texts(tmp_path, bert):
    batch = Collator(SAMPLES, make_data(tmp_path), bert)(rows(0, 3))
    assert sorted(batch["targets"]) == ["columns", "known", "mask", "query_ids", "relevant"]
    batch = Collator(SAMPLES, make_data(tmp_path), bert)(rows(1, 3))
    assert batch["targets"]["query_ids"] == ["qb", "qb"]
    assert batch["targets"]["known"].nonzero().tolist() == [[0, 2], [1, 2]]
    assert len(batch["query"][0]["input_ids"]) == 2
    data = make_data(tmp_path)
    batch = Collator(SAMPLES, data, bert, (3, 4))(rows(0, 1, 2))  # special tokens included
    assert batch["query"][0]["token_mask"].sum(dim=1).tolist() == [1, 1, 1]
    assert batch["document"][0]["token_mask"].sum(dim=1).tolist() == [2] * 4


@pytest.mark.parametrize(
    ("mini_batch", "queries", "documents"),
    [(None, [3], [4]), (1, [1] * 3, [1] * 4), (3, [3], [3, 1]), (9, [3], [4])],
)
def test_mini_batches_are_parts_of_the_batch(tmp_path, bert, mini_batch, queries, documents):
    data = make_data(tmp_path)
    whole = Collator(SAMPLES, data, bert)(rows(0, 1, 2))
    mini_batches = Collator(SAMPLES, data, bert, mini_batch=mini_batch)(rows(0, 1, 2))
    for side, sizes in (("query", queries), ("document", documents)):
        assert [len(part["input_ids"]) for part in mini_batches[side]] == sizes
        ids = [
            token_id
            for part in mini_batches[side]
            for token_id in part["input_ids"][part["token_mask"]]
        ]
        assert ids == list(whole[side][0]["input_ids"][whole[side][0]["token_mask"]])
    for name, value in whole["targets"].items():
        other = mini_batches["targets"][name]
        assert other == value if name == "query_ids" else torch.equal(other, value)


def test_a_sample_of_texts_is_shared_by_processes(tmp_path, bert):
    collator = Collator(SAMPLES, make_data(tmp_path), bert)

    def texts(*arguments):
        batches = list(collator.sample(1, *arguments, seed=4))
        assert all(len(batch["input_ids"]) <= arguments[1] for batch in batches)
        return [ids[ids > 4].tolist() for batch in batches for ids in batch["input_ids"]]

    every = texts(9, 2, (0, 1))
    assert every == [ids[1:-1] for ids in bert.tokenizer(list(DOCUMENTS.values()))["input_ids"]]
    texts_sampled = texts(3, 2, (0, 1))
    assert len(texts_sampled) == 3
    assert all(one in every for one in texts_sampled)
    assert texts(3, 2, (0, 2)) == texts_sampled[::2]
    assert texts(3, 2, (1, 2)) == texts_sampled[1::2]
    assert texts(1, 2, (1, 2)) == []


class Recorded:
    """Makes "batches" of the numbers of samples, and "samples" of as many as were asked for."""

    def __init__(self, name):
        self.name = name

    def __call__(self, examples):
        return self.name, [item["number"] for item in examples]

    def sample(self, side, count, size, share, seed):
        yield self.name, count


def batches_of(mixture, size, count):
    numbers = [rows(*range(start, start + size)) for start in range(0, size * count, size)]
    return [mixture(examples) for examples in numbers]


def test_a_batch_is_of_one_collection_drawn_by_weight():
    collators, weights = [Recorded(name) for name in "abc"], [6.0, 3.0, 1.0]
    mixture = Mixture(collators, weights, 2, 1000, seed=5)
    batches = batches_of(mixture, 2, 1000)
    counts = Counter(name for name, _ in batches)
    # Three standard deviations of a binomial count at most.
    for name, share in (("a", 0.6), ("b", 0.3), ("c", 0.1)):
        assert abs(counts[name] - 1000 * share) < 3 * np.sqrt(1000 * share * (1 - share))
        numbers = [number for of, pair in batches if of == name for number in pair]
        assert numbers == list(range(2 * counts[name]))  # as if it were alone
    assert Mixture(collators, weights, 2, 1000, seed=5)(rows(14, 15)) == batches[7]  # resumed
    assert list(mixture.sample(1, 20, 2, (0, 1), 0)) == [("a", 12), ("b", 6), ("c", 2)]


def test_cached_states_take_the_place_of_texts(tmp_path, bert):
    data = make_data(tmp_path)
    sources = (
        CachedStates.build(tmp_path / "queries", bert, data.queries),
        CachedStates.build(tmp_path / "documents", bert, data.documents),
    )
    batch = Collator(SAMPLES, data, sources, (2, 64), mini_batch=2)(rows(0, 1, 2))
    expected = [sources[1].features([1, 2], 64), sources[1].features([3, 4], 64)]
    for mini_batch, other in zip(batch["document"], expected, strict=True):
        assert all(torch.equal(mini_batch[name], other[name]) for name in other)
    assert [mini_batch["window_text"].tolist() for mini_batch in batch["query"]] == [
        [0, 0, 1],
        [0, 0],
    ]
    assert "scores" in batch["targets"]


# Mining by the teacher


@pytest.mark.parametrize(("block", "depth"), [(1, 2), (2, 1), (2, 9), (100, 2)])
def test_the_teacher_s_candidates_are_its_best(tmp_path, monkeypatch, block, depth):
    monkeypatch.setattr(mining, "BATCH", 2)
    monkeypatch.setattr(data_module, "TAUGHT", block)
    data = with_words_and_teacher(tmp_path)
    relevant = {"qa": ["x", "v"], "qc": ["z"]}
    lists = list(mine_by_teacher(data, relevant, tmp_path / "mined.jsonl", depth, silent))
    assert [candidates.query_id for candidates in lists] == ["qa", "qb", "qc"]
    scores = data.teach(range(3), range(5)).tolist()
    for scores_of_query, candidates in zip(scores, lists, strict=True):
        known = relevant.get(candidates.query_id, [])
        others = [n for n in range(5) if "vwxyz"[n] not in known]
        best = sorted(others, key=lambda n: -scores_of_query[n])[:depth]
        assert len(set(scores_of_query)) == 5  # no ties
        assert candidates == CandidateList(
            candidates.query_id, (*known, *("vwxyz"[n] for n in best)), len(known)
        )


def test_mining_without_a_teacher(tmp_path):
    data = make_data(tmp_path, teacher=None)
    with pytest.raises(InputError, match=r"data\.mining: teacher needs a teacher"):
        mine_by_teacher(data, {}, tmp_path / "mined.jsonl", 2, silent)
