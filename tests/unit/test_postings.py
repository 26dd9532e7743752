"""The search kernel and its reference on three segments of two documents, by hand."""

import numpy as np
import pytest

from lexicept.ops.lists import MARGIN
from lexicept.ops.postings import search_postings, search_postings_reference

SCORED = {"documents": [2, 1, 3, 4, 0], "scores": [6.0, 4.0, 3.0, 2.0, 0.5]}

KERNELS = pytest.mark.parametrize(
    "search",
    [
        search_postings,
        search_postings_reference,
        getattr(search_postings, "py_func", search_postings),  # not compiled: bounds are checked
    ],
    ids=["kernel", "reference", "interpreted"],
)


def arguments(gaps=(1, 0), factor=1.0, top_k=9, allowed=(), few=(), prunes=True, segments=(0, 3)):
    """Five documents: dimension 0 has weights 1, 2, 0, 0, 4 and dimension 1 has 0, 1, 3, 0, 0.

    What two documents of a segment have is a row of the table, and so is the one of the last
    segment; the others are lists, with gaps of 4 bits, the second from the fourth byte on.
    """
    return (
        2,
        np.array([[2, 1], [0, 1], [1, 0]], np.uint16),
        np.array([[0, 4], [4, 4], [0, 4]], np.uint8),
        np.array([[0, 0], [0, 1], [2, 0]], np.int64),
        np.array([[0, 0], [0, 3], [0, 0]], np.int64),
        np.array([gaps[0], 0, 0, gaps[1], *[0] * MARGIN], np.uint8),
        np.array([1, 3], np.float32),
        np.array([0], np.uint16),
        np.array([1, 2, 4], np.float32),
        np.array([0.5, 2], np.float32),
        np.array([0, 1, 0, 3, 0], np.float32),
        np.array([[2, 1], [0, 3], [4, 0]], np.float32),
        np.array([[0, 1], [0, 3], [0, 0]], np.float32),
        prunes,
        np.array([0, 1], np.int64),
        np.array([1, 1], np.float32),
        factor,
        np.array(allowed, bool),
        np.array([sum(allowed[first : first + 2]) for first in (0, 2, 4)], np.int64),
        np.array([number for part in few for number in part], np.uint16),
        np.cumsum([0, *map(len, few)]),
        top_k,
        np.zeros(1, np.float32),
        *segments,
    )


@KERNELS
@pytest.mark.parametrize("prunes", [True, False])
@pytest.mark.parametrize("top_k", [1, 2, 4, 5, 9])
def test_segments_by_hand(search, top_k, prunes):
    """Scores: 1/2 · 1, 1/2 · 2 + 2 · 1 + 1, 2 · 3, 3 and 1/2 · 4."""
    documents, scores = search(*arguments(top_k=top_k, prunes=prunes))
    assert documents.tolist() == SCORED["documents"][:top_k]
    assert scores.tolist() == SCORED["scores"][:top_k]


@KERNELS
@pytest.mark.parametrize("prunes", [True, False])
@pytest.mark.parametrize(
    ("segments", "found"), [((0, 1), [1, 0]), ((1, 3), [2, 3, 4]), ((2, 3), [4]), ((1, 1), [])]
)
def test_some_segments_have_the_scores_that_they_have_among_all(search, segments, found, prunes):
    documents, scores = search(*arguments(segments=segments, prunes=prunes))
    own = dict(zip(SCORED["documents"], SCORED["scores"], strict=True))
    assert (documents.tolist(), scores.tolist()) == (found, [own[number] for number in found])


@KERNELS
def test_offsets_are_multiplied_by_the_query_s_factor(search):
    documents, scores = search(*arguments(factor=-1.0))
    assert (documents.tolist(), scores.tolist()) == ([2, 1, 4, 0], [6.0, 2.0, 2.0, 0.5])
    documents, scores = search(*arguments(factor=0.0))
    assert (documents.tolist(), scores.tolist()) == ([2, 1, 4, 0], [6.0, 3.0, 2.0, 0.5])


@pytest.mark.parametrize("search", [search_postings, KERNELS.args[1][2]])
def test_a_damaged_document_number_changes_no_other_score(search):
    documents, scores = search(*arguments(gaps=(1, 15)))
    assert (documents.tolist(), scores.tolist()) == ([1, 3, 4, 0], [4.0, 3.0, 2.0, 0.5])


@KERNELS
@pytest.mark.parametrize(
    ("allowed", "few", "found"),
    [
        ([1, 1, 1, 1, 1], ([], [], []), [2, 1, 3, 4, 0]),
        ([1, 0, 0, 1, 1], ([], [], []), [3, 4, 0]),
        ([1, 0, 0, 1, 1], ([0], [1], [0]), [3, 4, 0]),
        ([0, 1, 0, 0, 0], ([1], [], []), [1]),
        ([0, 0, 1, 0, 1], ([], [0], []), [2, 4]),
        ([0, 0, 0, 0, 0], ([], [], []), []),
    ],
)
def test_allowed_documents_have_the_scores_that_they_have_among_all(search, allowed, few, found):
    documents, scores = search(*arguments(allowed=allowed, few=few))
    own = dict(zip(SCORED["documents"], SCORED["scores"], strict=True))
    assert (documents.tolist(), scores.tolist()) == (found, [own[number] for number in found])
