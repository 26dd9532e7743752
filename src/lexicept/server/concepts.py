"""Concepts in the API, from the postings and the atlas, if there is an atlas."""

from __future__ import annotations

from typing import Any

import numpy as np

from lexicept.fields.normal_forms import caseless
from lexicept.index.atlas import Concept, Example
from lexicept.index.dimensions import strongest
from lexicept.index.reader import IndexReader
from lexicept.sanitize import around
from lexicept.server.excerpts import summary

WORDS = 6
"""Words of a concept in a list."""

CONTEXT = 80
"""Characters before and after the marked text of an example."""


UNDESCRIBED: dict[str, Any] = {"source": None, "firing_frequency": None, "detection": None} | {
    name: [] for name in ("words", "examples", "drawn", "histogram", "nearest", "alike")
}
"""What an index without an atlas tells of a concept."""


def concept_list(index: IndexReader, search: str, top_k: int) -> dict[str, Any]:
    """Return concepts by a text in the label or words: the best matches or the most useful first;
    without an atlas the most frequent first."""
    vocabulary, text = index.weigher.vocabulary("concepts"), caseless(search.strip())
    labels, documents = vocabulary.terms or (), index.engine.df[vocabulary.dimensions]
    if index.atlas is not None:
        matches = index.atlas.search(text)
    else:
        order = np.argsort(-documents, kind="stable")[: np.count_nonzero(documents)].tolist()
        matches = [number for number in order if text in caseless(labels[number])]
    concepts = []
    for number in matches[:top_k]:
        told: dict[str, Any] = {"name": labels[number], "detection": None, "alike": [], "words": []}
        if index.atlas is not None:
            concept = index.atlas[number]
            told = {name: getattr(concept, name) for name in ("name", "detection", "alike")}
            told["words"] = index.atlas.words_of(number)[:WORDS]
        counted = {"label": labels[number], "documents": int(documents[number])}
        concepts.append({"number": number, **counted, **told})
    return {"total": len(matches), "concepts": concepts}


def concept_detail(index: IndexReader, number: int, top_k: int) -> dict[str, Any]:
    """Return a concept with its documents; without an atlas the other fields are empty."""
    vocabulary = index.weigher.vocabulary("concepts")
    labels, df = vocabulary.terms or (), index.engine.df[vocabulary.dimensions]
    documents = {
        "top_documents": [
            {**summary(index, document), "weight": weight}
            for document, weight in strongest(index, "concepts", number, top_k)
        ]
    }
    if index.atlas is None:
        counted = {"number": number, "label": labels[number], "documents": int(df[number])}
        return UNDESCRIBED | counted | documents
    concept: Concept = index.atlas[number]
    nearest = [
        {"number": near, "label": labels[near], "cosine": cosine}
        for near, cosine in concept.nearest
    ]
    examples, drawn = (
        [in_context(index, e) for e in of] for of in (concept.examples, concept.drawn)
    )
    contexts = {"examples": examples, "drawn": drawn, "nearest": nearest}
    return concept.to_json() | contexts | documents


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
