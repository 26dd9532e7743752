"""Whole posting lists: the compiled kernel, its reference and damaged postings."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from lexicept.engines import ExactEngine
from lexicept.errors import IndexFormatError
from lexicept.kernels.list_decoding import decode_lists, decode_lists_reference
from support.strategies import collections


@given(collections(), st.integers(1, 15), st.sampled_from([8, 32]), st.data())
def test_kernel_and_reference_are_twins(pair, segment, bits, data):
    """Of lists and rows of the table, in any order, in segments of any size."""
    _, documents = pair
    with pytest.MonkeyPatch.context() as patch:
        for module in ("exact", "inverted"):
            patch.setattr(f"lexicept.engines.{module}.SEGMENT", segment)
        postings = ExactEngine.build(documents, weight_bits=bits).lists
    dimensions = np.array(data.draw(st.permutations(range(documents.shape[1]))), np.int64)
    found = decode_lists(segment, postings, dimensions)
    expected = decode_lists_reference(segment, postings, dimensions)
    for own, reference in zip(found, expected, strict=True):
        assert (own.dtype, own.tolist()) == (reference.dtype, reference.tolist())


def test_damaged_lists_are_refused():
    weights = np.zeros((40, 1), np.float32)
    weights[[3, 39]] = 1
    engine = ExactEngine.build(sp.csr_array(weights))
    engine.lists.gaps[:] = 255
    with pytest.raises(IndexFormatError, match="a document that is not there"):
        engine.posting_lists(np.array([0]))


def test_a_row_of_more_weights_than_its_length_is_cut():
    engine = ExactEngine.build(sp.csr_array(np.ones((4, 1), "f4")))
    lengths = np.array([[2]], np.uint16)
    documents, weights, sizes = decode_lists(
        4, engine.lists._replace(lengths=lengths), np.zeros(1, int)
    )
    assert (documents.tolist(), weights.tolist(), sizes.tolist()) == ([0, 1], [1, 1], [2])
