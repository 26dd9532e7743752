"""Packed posting lists: kernels, references and the original lists."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lexicept.kernels.posting_lists import (
    MARGIN,
    Postings,
    add_list,
    fitting_widths,
    list_reference,
    num_bytes,
    pack_lists,
    pack_reference,
    unpack_lists,
    unpack_reference,
)

COUNT = 2**16


@st.composite
def collections_of_lists(draw):
    """Documents, weights, lengths and widths of lists."""
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    spread = draw(st.sampled_from([300, 5_000, COUNT]))
    sizes = draw(st.lists(st.sampled_from([0, 1, 2, 5, 63, 64, 65, 250]), max_size=8))
    postings = np.array(sizes, np.int64)
    lists = [np.sort(random.choice(spread, size, replace=False)) for size in sizes]
    documents = np.concatenate([np.empty(0), *lists]).astype(np.int32)
    weights = random.integers(1, 256, documents.size).astype(np.uint8)
    widths = np.array(draw(st.lists(st.integers(4, 14), min_size=8, max_size=8)), np.uint8)
    return documents, weights, postings, widths[: postings.size]


def lists_of(packed, widths):
    """One segment of lists, from the first entry on."""
    sizes = num_bytes(packed.lengths, widths)
    positions, starts = np.cumsum(sizes) - sizes, np.cumsum(packed.lengths) - packed.lengths
    gaps = np.concatenate([packed.gaps, np.zeros(MARGIN, np.uint8)])
    return Postings(
        lengths=packed.lengths.astype(np.uint16)[None],
        widths=widths[None],
        starts=starts[None],
        gap_starts=positions[None],
        gaps=gaps,
        weights=packed.weights,
        table=packed.weights[:0],
        scales=np.empty(0, np.float32),
        offsets=np.empty(0, np.float32),
    )


def test_by_hand():
    """A gap of 40 in 4 bits: fillers of 15 and 15, and 10."""
    documents, weights = np.array([2, 42, 5], np.int32), np.array([7, 8, 9], np.float32)
    postings, widths = np.array([2, 0, 1]), np.array([4, 4, 5], np.uint8)
    packed = pack_reference(documents, weights, postings, widths)
    assert packed.gaps.tolist() == [0xF2, 0xAF, 5]
    assert packed.weights.tolist() == [7, 0, 0, 8, 9]
    assert packed.lengths.tolist() == [4, 0, 1]


def test_widths_leave_few_fillers():
    assert fitting_widths(np.array([0, 1, 4, 400, 20_000]), COUNT).tolist() == [14, 14, 14, 9, 4]
    assert fitting_widths(np.array([0, 3]), 0).tolist() == [4, 4]


@given(collections_of_lists())
def test_kernels_and_references_are_twins(case):
    documents, weights, _, widths = case
    packed = pack_reference(*case)
    for array, reference in zip(pack_lists(*case), packed, strict=True):
        assert (array.dtype, array.tolist()) == (reference.dtype, reference.tolist())
    gaps = np.concatenate([packed.gaps, np.zeros(MARGIN, np.uint8)])
    records = unpack_reference(gaps, packed.lengths, widths)
    assert unpack_lists(gaps, packed.lengths, widths).tolist() == records.tolist()
    assert records[packed.weights > 0].tolist() == documents.tolist()
    assert packed.weights[packed.weights > 0].tolist() == weights.tolist()


@given(collections_of_lists())
def test_a_list_is_added_as_it_was_before_it_was_packed(case):
    documents, weights, postings, widths = case
    lists = lists_of(pack_reference(*case), widths)
    ends = np.cumsum(postings)
    for dimension, end in enumerate(ends.tolist()):
        of_list = slice(end - int(postings[dimension]), end)
        expected = np.zeros(COUNT, np.float32)
        expected[documents[of_list]] = np.float32(0.5) * weights[of_list]
        scores = np.zeros(COUNT, np.float32)
        add_list(lists, 0, dimension, np.float32(0.5), scores, COUNT)
        assert (scores == expected).all()
        numbers, entry_weights = list_reference(lists, 0, dimension)
        assert numbers[entry_weights > 0].tolist() == documents[of_list].tolist()
