"""BM25 scores equal those of bm25s, score by score, also for repeated words of a query."""

import json
import os
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import bm25s
import bm25s.stopwords
import numpy as np
import pytest
import Stemmer

from lexicept.corpora import read_documents
from lexicept.encoding.words import WordVectorizer, stop_words
from lexicept.engines import ExactEngine
from lexicept.fields.normal_forms import normal
from lexicept.weighting import BM25

DATA = Path(
    os.environ.get("LEXICEPT_DATA", Path(__file__).parents[2].parent.joinpath("shared", "data"))
)

TEXTS = [
    "A sparse vector has a weight for few of its dimensions; retrieval multiplies two of them.",
    "An inverted index lists, for every word, the documents that the word occurs in.",
    "",
    "The cat sat on the mat. The cat's mat: a cat, a mat.",
    "Ranking documents by BM25 needs document lengths, frequencies and inverse frequencies.",
    "I am; you are.",
    "Naïve café owners rank 10 cats (or 11) in re-ranked lists: snake_case and O'Neill's 2nd.",
    "Retrieval, retrieving, retrieved: documents document documented.",
]
QUERIES = [
    "cat",
    "cats and mats",
    "retrieval retrieval of documents",
    "documents document documents frequencies",
    "the of and",
    "zebra",
    "zebra cat zebra cat cat",
    "",
    "snake_case o'neill CAFÉ 10",
]
SETTINGS = [(0.9, 0.4), (1.5, 0.75)]


def their_scores(texts: Sequence[str], queries: Sequence[str], k1: float, b: float) -> np.ndarray:
    """Every document's score for every query [n, N]."""
    options = {"stopwords": "en", "stemmer": Stemmer.Stemmer("english"), "show_progress": False}
    retriever = bm25s.BM25(k1=k1, b=b, method="lucene")
    retriever.index(bm25s.tokenize(list(texts), **options), show_progress=False)
    tokens = bm25s.tokenize(list(queries), return_ids=False, **options)
    known = retriever.vocab_dict
    return np.array(
        [
            retriever.get_scores([t for t in query if t in known])
            if any(t in known for t in query)
            else np.zeros(len(texts))
            for query in tokens
        ]
    )


def assert_agreement(
    texts: Sequence[str], queries: Sequence[str], k1: float, b: float, matched: int
) -> None:
    words, weighting = WordVectorizer("en"), BM25(k1, b)
    engine = ExactEngine.build(weighting.documents(words.documents(texts)))
    Q = weighting.queries(words.queries(queries))
    expected = their_scores(texts, queries, k1, b)
    assert np.count_nonzero(expected.any(axis=1)) >= matched
    ours = np.zeros(expected.shape)
    for hit, (documents, scores) in enumerate(engine.search(Q, top_k=len(texts))):
        ours[hit, documents] = scores
    np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize(("k1", "b"), SETTINGS)
def test_short_texts(k1, b):
    assert_agreement(TEXTS, QUERIES, k1, b, matched=6)


@pytest.mark.parametrize(("k1", "b"), SETTINGS)
def test_a_repeated_query_word_counts_twice(k1, b):
    once, twice = their_scores(TEXTS, ["cat", "cat cat"], k1, b)
    np.testing.assert_allclose(twice, 2 * once)  # so that the agreement above says it of ours
    assert once.any()


@pytest.mark.parametrize(("k1", "b"), SETTINGS)
def test_python_docs(k1, b):
    texts = [document.content for document in islice(read_documents("python-docs"), 500)]
    queries = [" ".join(text.split()[:12]) for text in texts[::10]]
    assert_agreement(texts, queries, k1, b, matched=50)


@pytest.mark.parametrize(("k1", "b"), SETTINGS)
def test_scifact(k1, b):
    folder = DATA / "scifact"
    if not folder.is_dir():
        pytest.skip(f"agreement with bm25s on SciFact: no folder {folder} (set LEXICEPT_DATA)")
    raw_texts = [document.content for document in read_documents(folder)]
    # Ligatures and the like: bm25s reads them as other words, so it is given the normal form.
    texts = [normal(text) for text in raw_texts]
    assert sum(text != raw for text, raw in zip(texts, raw_texts, strict=True)) < 200
    lines = (folder / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    queries = [json.loads(line)["text"] for line in lines[:200]]
    assert_agreement(texts, queries, k1, b, matched=200)
    tokens = bm25s.tokenize(raw_texts, stopwords="en", return_ids=False, show_progress=False)
    counts = WordVectorizer("en").documents(raw_texts)
    assert counts.sum(axis=1).tolist() == [len(document) for document in tokens]


LISTS = {
    "da": "DANISH", "de": "GERMAN", "en": "EN", "en_plus": "EN_PLUS", "es": "SPANISH",
    "fr": "FRENCH", "it": "ITALIAN", "nl": "DUTCH", "no": "NORWEGIAN", "pt": "PORTUGUESE",
    "ru": "RUSSIAN", "sv": "SWEDISH", "tr": "TURKISH",
}  # fmt: skip


@pytest.mark.parametrize(("language", "name"), LISTS.items())
def test_stop_words(language, name):
    assert stop_words(language) == frozenset(getattr(bm25s.stopwords, f"STOPWORDS_{name}"))
