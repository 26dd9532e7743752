"""What translations share, measured on words: by hand."""

import json
from pathlib import Path

import pytest

from lexicept.progress import silent
from reproduction.data import Data
from reproduction.jobs import OverlapJob
from reproduction.overlap import run_overlap

TEXTS = {
    "en": {"a": "Panthers won 24 games", "b": "Vienna, Vienna", "c": "rivers"},
    "de": {"a": "Panthers: 24 Siege", "b": "Wien", "c": ""},
}
QUERIES = {"en": {"q": "panthers"}, "de": {"q": "siege"}}


@pytest.fixture
def data(tmp_path: Path) -> Data:
    for language, documents in TEXTS.items():
        folder = tmp_path / "pairs" / language
        (folder / "qrels").mkdir(parents=True)
        lines = [json.dumps({"_id": name, "text": text}) for name, text in documents.items()]
        (folder / "corpus.jsonl").write_text("\n".join(lines) + "\n")
        lines = [json.dumps({"_id": name, "text": t}) for name, t in QUERIES[language].items()]
        (folder / "queries.jsonl").write_text("\n".join(lines) + "\n")
        (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\ta\t1\n")
    return Data(tmp_path, {}, tmp_path / "work")


def test_words_that_languages_share(data: Data, tmp_path: Path) -> None:
    job = OverlapJob(dataset="pairs", languages=("en", "de"))
    found = run_overlap(job, data, tmp_path / "work", silent)
    # a shares 24 of 4 and 3 stems (German keeps panthers); moved by a document, a meets c.
    assert found.per_query["pairs share"] == {"a": 1 / 3.5, "b": 0, "c": 0}
    assert found.per_query["pairs share beyond chance"] == {"a": 1 / 3.5, "b": 0, "c": 0}
    assert found.values["pairs overlap"] == 1 / 3
    assert found.values["pairs share by chance"] == 0
    assert found.values["pairs share"] == pytest.approx(1 / 3.5 / 3)
    # Each language is searched in itself, and both queries find the document that they are of.
    assert found.per_query["pairs nDCG@10"] == {"en/q": 1, "de/q": 1}
