"""The cache of encoded queries: its entries and its bytes."""

from sys import getsizeof

import numpy as np
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from lexicept.index.query_encoders import ENTRY_OVERHEAD, QueryCache, stack

SIZE = 40
"""Dimensions."""


def encoded(texts: list[str]) -> sp.csr_array:
    """A row for each text, with a dimension for each character."""
    matrix = np.zeros((len(texts), SIZE), np.float32)
    for vector, text in zip(matrix, texts, strict=True):
        vector[: len(text)] = np.arange(1, len(text) + 1)
    return sp.csr_array(matrix)


def entry_bytes(text: str) -> int:
    """Bytes of an entry: 4 for a dimension, 4 for its tf."""
    return ENTRY_OVERHEAD + getsizeof(text) + 8 * len(text)


@given(st.lists(st.text("abc", max_size=8)), st.integers(0, 5_000))
def test_it_holds_the_last_ones_that_fit(texts, most_bytes):
    cache = QueryCache(most_bytes)
    for text in texts:
        cache.put([text], encoded([text]))
    cached_texts = [text for text in dict.fromkeys(texts) if cache.get(text) is not None]
    assert len(cache) == len(cached_texts)
    assert cache.num_bytes == sum(map(entry_bytes, cached_texts)) <= most_bytes
    for text in cached_texts:
        vector = cache.get(text)
        assert vector is not None
        assert vector.frequencies.tolist() == list(range(1, len(text) + 1))
        assert vector.dimensions.tolist() == list(range(len(text)))


def test_what_is_dropped_first_and_what_does_not_fit():
    cache = QueryCache(2 * entry_bytes("aa"))
    cache.put(["aa", "bb"], encoded(["aa", "bb"]))
    assert cache.get("aa")
    cache.put(["cc"], encoded(["cc"]))
    assert cache.get("bb") is None
    assert cache.get("aa")
    assert cache.get("cc")
    cache = QueryCache(entry_bytes("aa"))
    cache.put(["aa", "aaa"], encoded(["aa", "aaa"]))
    assert cache.get("aa")
    assert cache.get("aaa") is None


@given(st.lists(st.text("abc", max_size=8)))
def test_rows_are_what_was_put(texts):
    vectors = np.arange(2 * len(texts), dtype=np.float32).reshape(-1, 2)
    rows = QueryCache(0).put(texts, encoded(texts), vectors)
    assert [row.bytes_with("") - entry_bytes("") for row in rows] == [
        8 * len(text) + vectors[0].nbytes for text in texts
    ]
    found, of_texts = stack(rows, SIZE)
    assert found.shape == (len(texts), SIZE)
    assert found.toarray().tolist() == encoded(texts).toarray().tolist()
    assert of_texts is None if not texts else of_texts.tolist() == vectors.tolist()
    assert stack(QueryCache(0).put(texts, encoded(texts)), SIZE)[1] is None
