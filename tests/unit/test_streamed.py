"""Evaluation of collections on disk: as in memory, resumed, and without holding any of them."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from lexicept.corpora import read_documents
from lexicept.experiments import stored
from lexicept.experiments.data import Data, judged
from lexicept.experiments.jobs import DatasetSettings, RetrievalJob, RRAChoice
from lexicept.experiments.measuring import Collection, Measurements, measure, measure_curve
from lexicept.experiments.stored import encoded_rows, words_of
from lexicept.experiments.systems import judged_vectors, known_items, words_collection
from lexicept.progress import silent
from lexicept.storage.arrays import StoredRows
from lexicept.vectorizers.words import WordVectorizer
from lexicept.weighting import BM25
from support.tiny import save_collection

DEV = DatasetSettings("tiny", split="dev")
CHOICES = [
    None,
    RRAChoice(alpha=1.5),
    RRAChoice(documents=20),
    RRAChoice(folds=2),
    RRAChoice(split="train"),
]


def in_memory(source: str) -> Collection:
    """Return a collection with BM25 weights, made of all documents at once."""
    documents = list(read_documents(source))
    vectorizer = WordVectorizer("en")
    weights = BM25(0.9, 0.4).documents(vectorizer.documents([one.content for one in documents]))
    queries, qrels = judged(source, "dev", None)
    asked = vectorizer.queries([query.text for query in queries])
    ids = ([one.id for one in documents], [query.id for query in queries])
    return Collection("tiny", ids[0], sp.csr_array(weights), ids[1], asked, qrels)


@pytest.mark.parametrize("rra", CHOICES)
@pytest.mark.parametrize("limits", [(None, None), (1, 3)])
def test_a_collection_on_disk_measures_as_one_in_memory(
    tmp_path: Path, rra: RRAChoice | None, limits: tuple[int | None, int | None]
) -> None:
    source = save_collection(tmp_path / "tiny", documents=60)
    whole, found, expected = in_memory(source), Measurements(), Measurements()
    job = RetrievalJob(datasets=(DEV,), rra=rra)
    data = Data(tmp_path, {}, tmp_path / "work")
    streamed = words_collection(job, DEV, data, tmp_path / "work", silent)
    assert isinstance(streamed.documents, StoredRows)
    corpus, _, vectorizer = words_of(source, "en", tmp_path / "work", silent)
    known = known_items(rra, corpus, vectorizer.queries, data, tmp_path / "work")
    split = partial(judged_vectors, source, vectorizer.queries)
    measure(streamed, found, rra, *limits)
    measure(replace(whole, known=known, split=split), expected, rra, *limits)
    assert found.values == pytest.approx(expected.values, rel=1e-6)
    assert found.per_query == expected.per_query
    assert found.notes == expected.notes
    assert found.values["tiny nDCG@10"] > 0.5 or limits != (None, None)
    assert not list((tmp_path / "work" / "postings").iterdir())  # they are removed after the search


def test_the_curve_of_a_collection_on_disk_is_that_of_one_in_memory(tmp_path: Path) -> None:
    source = save_collection(tmp_path / "tiny", documents=60)
    found, expected = Measurements(), Measurements()
    data = Data(tmp_path, {}, tmp_path / "work")
    job = RetrievalJob(datasets=(DEV,))
    measure_curve(words_collection(job, DEV, data, tmp_path / "work", silent), found)
    measure_curve(in_memory(source), expected)
    assert "tiny nDCG@10 at 2" in expected.values
    assert found.values == pytest.approx(expected.values, rel=1e-6)
    assert found.per_query == expected.per_query


def test_encoding_goes_on_after_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "BLOCK", 10)
    texts = [str(number) for number in range(35)]
    seen: list[str] = []

    def encode(some: Sequence[str]) -> sp.csr_array:
        if "20" in some and "20" not in seen:
            seen.append("20")
            raise KeyboardInterrupt
        seen.extend(some)
        weights = np.ones(len(some), np.float32)
        columns = [int(text) for text in some]
        return sp.csr_array((weights, (range(len(some)), columns)), shape=(len(some), 35))

    place = tmp_path / "vectors" / "x"
    with pytest.raises(KeyboardInterrupt):
        encoded_rows(place, texts, 35, encode, silent)
    assert not place.exists()
    rows = encoded_rows(place, texts, 35, encode, silent)
    assert seen.count("5") == seen.count("15") == 1  # kept from before the kill
    assert np.array_equal(rows.load().toarray(), np.eye(35))
    assert encoded_rows(place, texts, 35, pytest.fail, silent).load().nnz == 35
