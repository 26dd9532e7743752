"""A binary heap of scored documents, the worst on top: of equal scores the later document."""

from __future__ import annotations

from lexicept.ops.compiled import compiled


@compiled(inline="always")
def push(heap_scores, heap_documents, size, score, document):  # pragma: no cover - compiled
    """Put a document on the heap, in place of the worst where it is full; return its size."""
    if size < heap_scores.size:
        hole = size
        size += 1
        while hole > 0:
            parent = (hole - 1) // 2
            if score > heap_scores[parent]:
                break
            heap_scores[hole] = heap_scores[parent]
            heap_documents[hole] = heap_documents[parent]
            hole = parent
    else:
        hole = sift_down(heap_scores, heap_documents, size, score, document)
    heap_scores[hole] = score
    heap_documents[hole] = document
    return size


@compiled(inline="always")
def sift_down(heap_scores, heap_documents, size, score, document):  # pragma: no cover - compiled
    """Return the place of an entry that replaces the heap's top, after moving smaller ones up."""
    hole = 0
    while True:
        child = 2 * hole + 1
        if child >= size:
            return hole
        right = child + 1
        if right < size and (
            heap_scores[right] < heap_scores[child]
            or (
                heap_scores[right] == heap_scores[child]
                and heap_documents[right] > heap_documents[child]
            )
        ):
            child = right
        if score < heap_scores[child] or (
            score == heap_scores[child] and document > heap_documents[child]
        ):
            return hole
        heap_scores[hole] = heap_scores[child]
        heap_documents[hole] = heap_documents[child]
        hole = child
