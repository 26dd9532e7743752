"""Evaluation of collections on disk: as in memory, resumed, and without holding any of them."""

import gzip
import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from lexicept.corpora import read_documents
from lexicept.encoding.words import WordVectorizer
from lexicept.progress import silent
from lexicept.storage.arrays import CSRWriter, StoredRows
from lexicept.weighting import BM25
from reproduction import stored
from reproduction.data import Data, judged
from reproduction.jobs import DatasetSettings, RetrievalJob, RRAChoice
from reproduction.measuring import Collection, Measurements, measure, measure_curve
from reproduction.stored import encoded_vectors, published_vectors, words_of
from reproduction.systems import judged_vectors, known_items, words_collection
from support.tiny import save_collection

DEV = DatasetSettings("tiny", split="dev")
CHOICES = [None, RRAChoice(alpha=1.5), RRAChoice(), RRAChoice(folds=2), RRAChoice(split="train")]


def save_vectors(folder: Path, count: int) -> Path:
    """Write vectors of documents, three terms each, and of two queries."""
    folder.mkdir()
    with gzip.open(folder / "documents.jsonl.gz", "wt") as file:
        for n in range(count):
            vector = {f"t{n % 7}": n + 1, f"t{n % 5 + 7}": 2, f"t{n % 3 + 12}": 1}
            file.write(json.dumps({"id": f"d{n}", "vector": vector}) + "\n")
    with gzip.open(folder / "queries.tsv.gz", "wt") as file:
        file.write("q1\tt1 t1 t9\nq2\tt14\n")
    return folder


def test_published_vectors_are_written_block_by_block(tmp_path, monkeypatch):
    """No more documents than a block's are read and not yet written."""
    folder = save_vectors(tmp_path / "published", 50)
    whole = published_vectors(folder, None, 0.5, tmp_path / "work")
    waiting, most, read, write = 0, 0, stored.read_objects, CSRWriter.append

    def counted(path):
        nonlocal waiting, most
        for record in read(path):
            waiting += 1
            most = max(most, waiting)
            yield record

    def append(self, block):
        nonlocal waiting
        write(self, block)
        waiting -= block.shape[0]

    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("\n".join(whole.terms))
    monkeypatch.setattr(stored, "read_objects", counted)
    monkeypatch.setattr(stored, "BLOCK", 8)
    monkeypatch.setattr(CSRWriter, "append", append)
    vectors = published_vectors(folder, vocabulary, 0.5, tmp_path / "stored")
    assert (waiting, most) == (0, 8)
    assert isinstance(vectors.documents, StoredRows)
    assert (vectors.documents.load() != whole.documents.load()).nnz == 0
    assert list(vectors.document_ids) == list(whole.document_ids) == [f"d{n}" for n in range(50)]
    assert (vectors.queries != whole.queries).nnz == 0
    assert whole.documents.load()[[3], [whole.terms.index("t3")]].tolist() == [2.0]
    monkeypatch.setattr(stored, "read_objects", None)  # they are there
    assert published_vectors(folder, vocabulary, 0.5, tmp_path / "stored").terms == whole.terms


def in_memory(source: str) -> Collection:
    """Return a collection with BM25 weights, made of all documents at once."""
    documents = list(read_documents(source))
    vectorizer = WordVectorizer("en")
    weights = BM25(0.9, 0.4).documents(vectorizer.documents([d.content for d in documents]))
    queries, qrels = judged(source, "dev", None)
    query_vectors = vectorizer.queries([query.text for query in queries])
    ids = ([document.id for document in documents], [query.id for query in queries])
    return Collection("tiny", ids[0], sp.csr_array(weights), ids[1], query_vectors, qrels)


@pytest.mark.parametrize("rra", CHOICES)
@pytest.mark.parametrize("limits", [(None, None), (1, 3)])
def test_a_collection_on_disk_measures_as_one_in_memory(tmp_path, rra, limits):
    source = save_collection(tmp_path / "tiny", documents=60)
    whole, result, expected = in_memory(source), Measurements(), Measurements()
    job = RetrievalJob(datasets=(DEV,), rra=rra)
    data = Data(tmp_path, {}, tmp_path / "work")
    streamed = words_collection(job, DEV, data)
    assert isinstance(streamed.documents, StoredRows)
    corpus, _, vectorizer = words_of(source, "en", tmp_path / "work", silent)
    known = partial(known_items, rra, corpus, vectorizer.queries, data)
    split = partial(judged_vectors, source, vectorizer.queries)
    measure(streamed, result, rra, *limits)
    measure(replace(whole, known_items=known, split=split), expected, rra, *limits)
    assert result.values == pytest.approx(expected.values, rel=1e-6)
    assert result.per_query == expected.per_query
    assert result.notes == expected.notes
    assert result.values["tiny nDCG@10"] > 0.5 or limits != (None, None)
    assert not list((tmp_path / "work" / "postings").iterdir())  # they are removed after the search


def test_the_curve_of_a_collection_on_disk_is_that_of_one_in_memory(tmp_path):
    source = save_collection(tmp_path / "tiny", documents=60)
    result, expected = Measurements(), Measurements()
    data = Data(tmp_path, {}, tmp_path / "work")
    measure_curve(words_collection(RetrievalJob(datasets=(DEV,)), DEV, data), result)
    measure_curve(in_memory(source), expected)
    assert "tiny nDCG@10 at 2" in expected.values
    assert result.values == pytest.approx(expected.values, rel=1e-6)
    assert result.per_query == expected.per_query


def test_encoding_goes_on_after_a_kill(tmp_path, monkeypatch):
    monkeypatch.setattr(stored, "BLOCK", 10)
    texts = [str(i) for i in range(35)]
    texts_encoded: list[str] = []

    def encode(batch):
        if "20" in batch and "20" not in texts_encoded:
            texts_encoded.append("20")
            raise KeyboardInterrupt
        texts_encoded.extend(batch)
        weights = np.ones(len(batch), np.float32)
        columns = [int(text) for text in batch]
        return sp.csr_array((weights, (range(len(batch)), columns)), shape=(len(batch), 35))

    path = tmp_path / "vectors" / "x"
    with pytest.raises(KeyboardInterrupt):
        encoded_vectors(path, texts, 35, encode, silent)
    assert not path.exists()
    vectors = encoded_vectors(path, texts, 35, encode, silent)
    assert texts_encoded.count("5") == texts_encoded.count("15") == 1  # kept from before the kill
    assert np.array_equal(vectors.load().toarray(), np.eye(35))
    assert encoded_vectors(path, texts, 35, pytest.fail, silent).load().nnz == 35
