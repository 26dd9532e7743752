"""The search kernel and its reference on three segments of two documents, by hand."""

import numpy as np
import pytest

from lexicept.kernels.posting_lists import MARGIN, Postings
from lexicept.kernels.term_at_a_time import (
    AllowedDocuments,
    WeightedQuery,
    search_postings,
    search_postings_reference,
)

SCORED = {"documents": [2, 1, 3, 4, 0], "scores": [6.0, 4.0, 3.0, 2.0, 0.5]}

KERNELS = pytest.mark.parametrize(
    "kernel",
    [
        search_postings,
        search_postings_reference,
        getattr(search_postings, "py_func", search_postings),  # not compiled: bounds are checked
    ],
    ids=["kernel", "reference", "interpreted"],
)


def ranked(kernel, gaps=(1, 0), factor=1.0, top_k=5, allowed=(), segments=(0, 3)):
    """Five documents: dimension 0 has weights 1, 2, 0, 0, 4 and dimension 1 has 0, 1, 3, 0, 0.

    What two documents of a segment have is a row of the table, and so is the one of the last
    segment; the others are lists, with gaps of 4 bits, the second from the fourth byte on.
    """
    postings = Postings(
        lengths=np.array([[2, 1], [0, 1], [1, 0]], np.uint16),
        widths=np.array([[0, 4], [4, 4], [0, 4]], np.uint8),
        starts=np.array([[0, 0], [0, 1], [2, 0]], np.int64),
        gap_starts=np.array([[0, 0], [0, 3], [0, 0]], np.int64),
        gaps=np.array([gaps[0], 0, 0, gaps[1], *[0] * MARGIN], np.uint8),
        weights=np.array([1, 3], np.float32),
        table=np.array([1, 2, 4], np.float32),
        scales=np.array([0.5, 2], np.float32),
        offsets=np.array([0, 1, 0, 3, 0], np.float32),
    )
    mask = AllowedDocuments(
        np.array(allowed, bool),
        np.array([sum(allowed[first : first + 2]) for first in (0, 2, 4)], np.int64),
    )
    query = WeightedQuery(np.array([0, 1], np.int64), np.array([1, 1], np.float32), factor)
    documents, scores = np.empty(top_k, np.int64), np.empty(top_k, np.float32)
    size = kernel(2, postings, query, mask, documents, scores, *segments)
    return documents[:size].tolist(), scores[:size].tolist()


@KERNELS
@pytest.mark.parametrize("top_k", [1, 2, 4, 5])
def test_segments_by_hand(kernel, top_k):
    """Scores: 1/2 · 1, 1/2 · 2 + 2 · 1 + 1, 2 · 3, 3 and 1/2 · 4."""
    documents, scores = ranked(kernel, top_k=top_k)
    assert documents == SCORED["documents"][:top_k]
    assert scores == SCORED["scores"][:top_k]


def assert_scored_as_among_all(ranking, documents):
    score_of = dict(zip(SCORED["documents"], SCORED["scores"], strict=True))
    assert ranking == (documents, [score_of[document] for document in documents])


@KERNELS
@pytest.mark.parametrize(
    ("segments", "documents"), [((0, 1), [1, 0]), ((1, 3), [2, 3, 4]), ((2, 3), [4]), ((1, 1), [])]
)
def test_some_segments_have_the_scores_that_they_have_among_all(kernel, segments, documents):
    assert_scored_as_among_all(ranked(kernel, segments=segments), documents)


@KERNELS
def test_offsets_are_multiplied_by_the_query_s_factor(kernel):
    assert ranked(kernel, factor=-1.0) == ([2, 1, 4, 0], [6.0, 2.0, 2.0, 0.5])
    assert ranked(kernel, factor=0.0) == ([2, 1, 4, 0], [6.0, 3.0, 2.0, 0.5])


@pytest.mark.parametrize("kernel", [search_postings, KERNELS.args[1][2]])
def test_a_damaged_document_number_changes_no_other_score(kernel):
    assert ranked(kernel, gaps=(1, 15)) == ([1, 3, 4, 0], [4.0, 3.0, 2.0, 0.5])


@KERNELS
@pytest.mark.parametrize(
    ("allowed", "documents"),
    [
        ([1, 1, 1, 1, 1], [2, 1, 3, 4, 0]),
        ([1, 0, 0, 1, 1], [3, 4, 0]),
        ([0, 1, 0, 0, 0], [1]),
        ([0, 0, 1, 0, 1], [2, 4]),
        ([0, 0, 0, 0, 0], []),
    ],
)
def test_allowed_documents_have_the_scores_that_they_have_among_all(kernel, allowed, documents):
    assert_scored_as_among_all(ranked(kernel, allowed=allowed), documents)
