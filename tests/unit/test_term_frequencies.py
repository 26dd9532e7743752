"""Encoding by shards: finished shards not again, damaged shards again."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from lexicept.encoding.words import WordVectorizer
from lexicept.index import term_frequencies
from lexicept.index.term_frequencies import write_tf
from lexicept.progress import silent
from lexicept.storage.workspace import Units
from support.vowels import Vowels

TEXTS = ["cat", "dog", "cat", "owl", "dog", "", "elk", "cat", ""]
COUNTS = [[text.count(vowel) for vowel in "aeiou"] for text in TEXTS]


@pytest.fixture(autouse=True)
def _shards_of_2(monkeypatch):
    monkeypatch.setattr(term_frequencies, "SHARD", 2)
    Vowels.encoded.clear()


def encode(folder: Path, vectorizer: Any = None) -> sp.csr_array:
    """The tf of TEXTS, with finished shards kept."""
    (folder / "shards").mkdir(exist_ok=True)
    shards = Units(folder / "shards")
    return write_tf(folder / "joined", vectorizer or Vowels(), TEXTS, shards, silent)


@settings(max_examples=50)
@given(st.lists(st.sampled_from(["cat", "cat owl", "dog dog", "", "yak"]), max_size=9))
def test_shards_are_the_whole(texts):
    with TemporaryDirectory() as folder:
        result = write_tf(Path(folder) / "v", Vowels(), texts, None, silent)
        words = WordVectorizer("en")
        grown = write_tf(Path(folder) / "w", words, texts, None, silent)
        assert result.toarray().tolist() == Vowels().queries(texts).toarray().tolist()
        assert grown.toarray().tolist() == words.queries(texts).toarray().tolist()


def test_progress_counts_texts(tmp_path):
    calls: list[tuple[str, int, int]] = []
    write_tf(
        tmp_path / "v",
        Vowels(),
        TEXTS,
        None,
        lambda stage, done, total, _="": calls.append((stage, done, total)),
    )
    assert calls == [("concepts", done, 9) for done in (2, 4, 6, 8, 9)]


def test_what_is_finished_is_not_encoded_again(tmp_path):
    assert encode(tmp_path).toarray().tolist() == COUNTS
    assert Vowels.encoded == TEXTS
    assert encode(tmp_path).toarray().tolist() == COUNTS
    assert Vowels.encoded == TEXTS


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def alter(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "array_name"), [(Path.unlink, "indptr"), (cut_off, "indices"), (alter, "data")]
)
def test_a_damaged_shard_is_encoded_again(tmp_path, damage, array_name):
    encode(tmp_path)
    Vowels.encoded.clear()
    damage(tmp_path / "shards" / f"000000000002.{array_name}.npy")
    assert encode(tmp_path).toarray().tolist() == COUNTS
    assert Vowels.encoded == ["cat", "owl"]
