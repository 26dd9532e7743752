"""Formats of servers: OpenSearch, Elasticsearch and Qdrant, as bodies of requests.

OpenSearch and Elasticsearch are built on Lucene's ``FeatureField``, which keeps 9 significant bits
of a weight, takes document weights that are normal floats, and query weights of at most 64.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np

from lexicept.corpora import Document, Query
from lexicept.errors import InputError
from lexicept.exports.folder import ExportedIndex, at_least, write_numbered_files
from lexicept.fields.columns import FieldColumn
from lexicept.progress import Progress
from lexicept.storage.files import write_json
from lexicept.storage.workspace import Units
from lexicept.vectors import Vector, power_of_two

LONGEST_ID = 512
"""Largest number of bytes of a document's id."""

LONGEST_TERM = 32_766
"""Largest number of bytes of a keyword."""

DEFAULT_MOST_FIELDS = 1_000
"""Fields and objects that an index may have unless its settings say otherwise."""

LARGEST_WEIGHT = 64.0
"""Largest weight of a query's dimension."""

LEAST_WEIGHT = float(np.finfo(np.float32).tiny)
"""Least weight of a document's dimension; smaller weights are left out."""

VECTOR = "text"
"""Name of the sparse vector of Qdrant's points."""

SIMILARITY = "similarity"
"""The field, or the vector of Qdrant's points, with the vector of a whole text."""

GROUP = "fields"
"""The object with the fields of an exported document."""

dumps = partial(json.dumps, separators=(",", ":"))


class _Bulk(ABC):
    """``documents/*.ndjson`` for ``_bulk``, ``mapping.json``, and ``queries.jsonl``."""

    name: str
    queries_file = "queries.jsonl"
    has_similarity = True
    field: ClassVar[dict[str, Any]]
    """Mapping of the field of weights."""
    settings: ClassVar[dict[str, Any]] = {}
    """Settings of an index with vectors of texts."""

    def write(self, exported: ExportedIndex, files: Units, progress: Progress) -> None:
        columns = exported.index.fields
        properties: dict[str, Any] = {name: {"type": "text"} for name in ("title", "text")}
        if len(columns):
            types = {name: {"type": _type(columns[name])} for name in columns}
            properties[GROUP] = {"properties": types}
        properties["vector"] = self.field
        mapping: dict[str, Any] = {"mappings": {"properties": properties}}
        settings: dict[str, Any] = {}
        if exported.index.vectors is not None:
            properties[SIMILARITY] = self.similarity(exported.index.vectors.d)
            settings |= self.settings
        # An object for each dot of a name counts too.
        if (
            count := (SIMILARITY in properties) + 4 + sum(1 + name.count(".") for name in columns)
        ) > DEFAULT_MOST_FIELDS:
            settings["index.mapping.total_fields.limit"] = count
        if settings:
            mapping["settings"] = settings
        write_json(files.folder / "mapping.json", mapping)

        def document(number: int) -> str:
            stored = exported.index.stored(number)
            self._check(stored)
            fields: dict[str, Any] = {"title": stored.title, "text": stored.text}
            if stored.fields:
                fields[GROUP] = stored.fields
            vector = at_least(exported.document(number), LEAST_WEIGHT)
            if vector.dimensions.size:  # an empty vector is refused
                fields["vector"] = weights_by_dimension(vector)
            if text_vector := exported.text_vector(number):
                fields[SIMILARITY] = text_vector
            return f"{dumps({'index': {'_id': stored.id}})}\n{dumps(fields)}\n"

        write_numbered_files(exported, files, "documents/{:06d}.ndjson", document, progress)

    def _check(self, document: Document) -> None:
        """Raise InputError for an id or a field that is too long for Lucene."""
        if len(document.id.encode()) > LONGEST_ID:
            raise InputError(f"{self.name} takes ids of up to 512 bytes, not {document.id!r}")
        for name, value in document.fields.items():
            for entry in value if isinstance(value, list) else [value]:
                if isinstance(entry, str) and len(entry.encode()) > LONGEST_TERM:
                    raise InputError(
                        f"document {document.id!r}: {self.name} takes texts of up to "
                        f"{LONGEST_TERM:,} bytes in fields, unlike {name!r}"
                    )

    def query(self, query: Query, vector: Vector, text_vector: Sequence[float]) -> str:
        """Return the body of a search, the scale of the scores, and the vector of the text."""
        scale, search = self.scaled_search(vector)
        vectors = {SIMILARITY: text_vector} if text_vector else {}
        return dumps({"id": query.id, "scale": scale, "body": {"query": search}, **vectors})

    def scaled_search(self, vector: Vector) -> tuple[float, dict[str, Any]]:
        """Return the scale of the scores, and the body of a search for the weights of a query."""
        # One power of two for all weights of a query: the ranking of the index stays the same.
        top = float(vector.weights.max(initial=0)) or 1.0
        scale = min(1.0, power_of_two(LARGEST_WEIGHT / top))
        scaled = vector._replace(weights=vector.weights * np.float32(scale))
        return scale, self.search(weights_by_dimension(at_least(scaled, LEAST_WEIGHT)))

    @abstractmethod
    def similarity(self, d: int) -> dict[str, Any]:
        """Return the mapping of the field of vectors of this size, compared by their cosine."""

    @abstractmethod
    def search(self, tokens: dict[str, float]) -> dict[str, Any]:
        """Return the body of a search for weighted tokens."""


class OpenSearch(_Bulk):
    """Fields of the type ``rank_features``, searched by ``neural_sparse``."""

    name = "opensearch"
    field: ClassVar = {"type": "rank_features"}
    settings: ClassVar = {"index.knn": True}

    def similarity(self, d: int) -> dict[str, Any]:
        return {"type": "knn_vector", "dimension": d, "space_type": "cosinesimil"}

    def search(self, tokens: dict[str, float]) -> dict[str, Any]:
        return {"neural_sparse": {"vector": {"query_tokens": tokens}}}


class Elasticsearch(_Bulk):
    """Fields of the type ``sparse_vector``. Without ``prune: false`` a search leaves words out."""

    name = "elasticsearch"
    field: ClassVar = {"type": "sparse_vector"}

    def similarity(self, d: int) -> dict[str, Any]:
        return {"type": "dense_vector", "dims": d, "similarity": "cosine"}

    def search(self, tokens: dict[str, float]) -> dict[str, Any]:
        return {"sparse_vector": {"field": "vector", "query_vector": tokens, "prune": False}}


class Qdrant:
    """``collection.json``, ``points/*.json`` and ``queries.jsonl``; a point's id is its number."""

    name = "qdrant"
    queries_file = "queries.jsonl"
    has_similarity = True

    def write(self, exported: ExportedIndex, files: Units, progress: Progress) -> None:
        collection: dict[str, Any] = {"vectors": {}, "sparse_vectors": {VECTOR: {}}}
        if (vectors := exported.index.vectors) is not None:
            collection["vectors"] = {SIMILARITY: {"size": vectors.d, "distance": "Cosine"}}
        write_json(files.folder / "collection.json", collection)

        def point(number: int) -> str:
            stored = exported.index.stored(number)
            payload: dict[str, Any] = {"id": stored.id, "title": stored.title, "text": stored.text}
            if stored.fields:
                payload[GROUP] = stored.fields
            vector: dict[str, Any] = {VECTOR: indices_and_values(exported.document(number))}
            if text_vector := exported.text_vector(number):
                vector[SIMILARITY] = text_vector
            return dumps({"id": number, "vector": vector, "payload": payload})

        around = ('{"points":[', ",\n", "]}\n")
        write_numbered_files(exported, files, "points/{:06d}.json", point, progress, around)

    def query(self, query: Query, vector: Vector, text_vector: Sequence[float]) -> str:
        body = {"query": indices_and_values(vector), "using": VECTOR, "with_payload": True}
        vectors = {SIMILARITY: text_vector} if text_vector else {}
        return dumps({"id": query.id, "body": body, **vectors})


def weights_by_dimension(vector: Vector) -> dict[str, float]:
    """Return weights by dimension, with the digits of single precision."""
    return dict(zip(vector.dimensions.astype(str).tolist(), _digits(vector), strict=True))


def indices_and_values(vector: Vector) -> dict[str, Any]:
    """Return weights as Qdrant takes a sparse vector."""
    return {"indices": vector.dimensions.tolist(), "values": _digits(vector)}


def _digits(vector: Vector) -> list[float]:
    """Return weights as doubles with the shortest digits of single precision."""
    digits: list[float] = vector.weights.astype(str).astype(float).tolist()
    return digits


def _type(column: FieldColumn) -> str:
    if column.type.name == "number":
        return "long" if column.values.dtype.kind == "i" else "double"
    return column.type.name
