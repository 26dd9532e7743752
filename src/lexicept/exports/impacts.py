"""Formats of integer impacts: CIFF, which many engines read, and Anserini's JSON vectors.

CIFF, the Common Index File Format (Lin et al. 2020), is a sequence of Protocol Buffers messages,
each after its length: a header, a list per term in the order of bytes, a record per document.
Lists have gaps instead of document numbers. PISA, Terrier, Anserini and others read CIFF.

Anserini and Pyserini index ``JsonVectorCollection`` with ``--impact --pretokenized`` and search
with ``--impact``. Queries of both formats repeat a word as often as the impact says.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cache
from io import BytesIO
from typing import Any, cast

import numpy as np
from google.protobuf import message_factory
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.proto import serialize_length_prefixed

from lexicept.corpora import Query
from lexicept.exports.folder import ExportedIndex, at_least, write_numbered_files
from lexicept.progress import Progress
from lexicept.storage.files import replacing
from lexicept.storage.workspace import Units
from lexicept.vectors import Integers, Vector

QUERY_LEVELS = 100
"""The impact of a query's largest weight."""

VERSION = 1

MESSAGES = {
    "Header": "int32 version, int32 num_postings_lists, int32 num_docs, "
    "int32 total_postings_lists, int32 total_docs, int64 total_terms_in_collection, "
    "double average_doclength, string description",
    "Posting": "int32 docid, int32 tf",
    "PostingsList": "string term, int64 df, int64 cf, Posting postings",
    "DocRecord": "int32 docid, string collection_docid, int32 doclength",
}
"""The fields of CIFF's messages, numbered from 1."""


class _ImpactFormat:
    """Queries of repeated words: Anserini's form; PISA has a colon for the tab."""

    queries_file = "queries.tsv"
    has_similarity = False

    def query(self, query: Query, vector: Vector, text_vector: Sequence[float]) -> str:
        dimensions, impacts = query_impacts(vector)
        return f"{query.id}\t{' '.join(np.repeat(dimensions, impacts).astype(str))}"


class Anserini(_ImpactFormat):
    """``documents/*.jsonl`` with ``id``, ``contents`` and ``vector``; ``queries.tsv``."""

    name = "anserini"

    def write(self, exported: ExportedIndex, files: Units, progress: Progress) -> None:
        def document(number: int) -> str:
            stored = exported.index.stored(number)
            dimensions, impacts = exported.document_impacts(number)
            vector = dict(zip(dimensions.astype(str).tolist(), impacts.tolist(), strict=True))
            content = {"id": stored.id, "contents": stored.content, "vector": vector}
            return json.dumps(content) + "\n"

        write_numbered_files(exported, files, "documents/{:06d}.jsonl", document, progress)


class CIFF(_ImpactFormat):
    """``index.ciff`` and ``queries.tsv``."""

    name = "ciff"

    def write(self, exported: ExportedIndex, files: Units, progress: Progress) -> None:
        with replacing(files.folder / "index.ciff") as file:
            for message in messages(exported, progress):
                serialize_length_prefixed(message, cast("BytesIO", file))


def messages(exported: ExportedIndex, progress: Progress) -> Iterator[Any]:
    """Yield the header, the list of each term in the order of bytes, and the documents."""
    lengths = np.zeros(len(exported.index), np.int64)
    lists = 0
    terms = sorted(range(exported.num_dimensions), key=str)
    # The header holds counts of the lists: impacts are computed twice, never all at once.
    for dimension in terms:
        documents, impacts = postings(exported, dimension)
        lengths[documents] += impacts
        lists += bool(documents.size)
    classes = message_classes()
    yield classes["Header"](
        version=VERSION,
        num_postings_lists=lists,
        num_docs=lengths.size,
        total_postings_lists=lists,
        total_docs=lengths.size,
        total_terms_in_collection=int(lengths.sum()),
        average_doclength=float(lengths.mean()) if lengths.size else 0.0,
        description="lexicept: impacts",
    )
    for done, dimension in enumerate(terms, 1):
        documents, impacts = postings(exported, dimension)
        if documents.size:
            pairs = zip(np.diff(documents, prepend=0).tolist(), impacts.tolist(), strict=True)
            yield classes["PostingsList"](
                term=str(dimension),
                df=documents.size,
                cf=int(impacts.sum()),
                postings=[classes["Posting"](docid=gap, tf=impact) for gap, impact in pairs],
            )
        if done % 1000 == 0 or done == len(terms):
            progress("export", done, len(terms))
    for number, (name, length) in enumerate(zip(exported.index.ids, lengths.tolist(), strict=True)):
        yield classes["DocRecord"](docid=number, collection_docid=name, doclength=length)


@cache
def message_classes() -> dict[str, Any]:
    file = FileDescriptorProto(name="ciff.proto", package="ciff", syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, typed in enumerate(fields.split(", "), 1):
            type_name, field_name = typed.split()
            added = message.field.add(name=field_name, number=number)
            if type_name in MESSAGES:
                added.label = FieldDescriptorProto.LABEL_REPEATED
                added.type_name = f".ciff.{type_name}"
            else:
                added.label = FieldDescriptorProto.LABEL_OPTIONAL
                added.type = FieldDescriptorProto.Type.Value(f"TYPE_{type_name.upper()}")
    classes = message_factory.GetMessages([file])
    return {name: classes[f"ciff.{name}"] for name in MESSAGES}


def query_impacts(vector: Vector) -> Vector:
    """Return the non-zero weights of a query as integers up to ``QUERY_LEVELS``."""
    top = float(vector.weights.max(initial=0)) or 1.0
    impacts = np.rint(vector.weights.astype(float) * (QUERY_LEVELS / top)).astype(np.int64)
    return at_least(vector._replace(weights=impacts), 1)


def postings(exported: ExportedIndex, dimension: int) -> tuple[Integers, Integers]:
    """Return documents and impacts above 0 of a dimension."""
    engine = exported.index.engine
    if dimension < engine.num_dimensions:
        documents, weights, _ = engine.posting_lists(np.array([dimension]))
        impacts = exported.impacts(weights)
    else:
        documents, impacts = np.arange(len(exported.index)), exported.impacts(exported.offsets)
    return documents[impacts > 0], impacts[impacts > 0]
