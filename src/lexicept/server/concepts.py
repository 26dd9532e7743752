"""Concepts in the API, from the postings and the atlas, if there is an atlas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lexicept.fields.normal_forms import caseless
from lexicept.index.atlas import Example
from lexicept.index.dimensions import strongest
from lexicept.index.reader import IndexReader
from lexicept.sanitize import around
from lexicept.server.excerpts import summary
from lexicept.vectors import Integers

WORDS = 6
"""Words of a concept in a list."""

CONTEXT = 80
"""Characters before and after the marked text of an example."""


def concept_list(index: IndexReader, search: str, top_k: int) -> dict[str, Any]:
    """Return concepts by a text in the label or words: the best matches or the most useful first;
    without an atlas the most frequent first."""
    labels = concept_labels(index)
    documents = concept_df(index)
    text = caseless(search.strip())
    if index.atlas is not None:
        matches = index.atlas.search(text)
    else:
        order = np.argsort(-documents, kind="stable")[: np.count_nonzero(documents)].tolist()
        matches = [number for number in order if text in caseless(labels[number])]
    concepts: list[dict[str, Any]] = []
    for number in matches[:top_k]:
        concepts.append({"number": number, "label": labels[number], "name": labels[number]})
        concepts[-1] |= {"documents": int(documents[number]), "detection": None}
        concepts[-1] |= {"words": [], "alike": []}
        if index.atlas is not None:
            concept = index.atlas[number]
            words = [word for word, _ in concept.words[:WORDS]]
            concepts[-1] |= {"name": concept.name, "alike": concept.alike}
            concepts[-1] |= {"detection": concept.detection, "words": words}
    return {"total": len(matches), "concepts": concepts}


def concept_detail(index: IndexReader, number: int, top_k: int) -> dict[str, Any]:
    """Return a concept with its documents; without an atlas the other fields are empty."""
    labels = concept_labels(index)
    detail = {
        "number": number,
        "label": labels[number],
        "documents": int(concept_df(index)[number]),
        "source": None,
        "firing_frequency": None,
        "detection": None,
        "words": [],
        "examples": [],
        "drawn": [],
        "histogram": [],
        "nearest": [],
        "alike": [],
        "top_documents": top_documents(index, "concepts", number, top_k),
    }
    if index.atlas is None:
        return detail
    concept = index.atlas[number]
    return detail | {
        **concept.to_json(),
        "top_documents": detail["top_documents"],
        "examples": [in_context(index, example) for example in concept.examples],
        "drawn": [in_context(index, example) for example in concept.drawn],
        "nearest": [
            {"number": neighbour, "label": labels[neighbour], "cosine": cosine}
            for neighbour, cosine in concept.nearest
        ],
    }


def in_context(index: IndexReader, example: Example) -> dict[str, Any]:
    """Return an example of a concept's activation with the surrounding text."""
    content = index.document(example.document_id).content
    first, last = around(content, example.start, example.end, CONTEXT)
    return {
        "document_id": example.document_id,
        "before": content[first : example.start],
        "fired": content[example.start : example.end],
        "after": content[example.end : last],
        "activation": example.activation,
    }


def top_documents(
    index: IndexReader, vocabulary: str, dimension: int, top_k: int
) -> list[dict[str, Any]]:
    """Return the documents with the largest weights of a dimension, ties in document order."""
    return [
        {**summary(index, number), "weight": weight}
        for number, weight in strongest(index, vocabulary, dimension, top_k)
    ]


def concept_labels(index: IndexReader) -> Sequence[str]:
    """Return the label of each concept."""
    return index.weigher.vocabulary("concepts").terms or ()


def concept_df(index: IndexReader) -> Integers:
    """Return the number of documents of each concept [V]."""
    return index.engine.df[index.span("concepts")]
