"""OpenSearch and Elasticsearch: bodies of bulk requests, a mapping, and bodies of searches.

Both are built on Lucene's ``FeatureField``, which keeps 9 significant bits of a weight, takes
document weights that are normal floats, and query weights of at most 64.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np

from lexicept.corpora import Document, Query
from lexicept.errors import InputError
from lexicept.exports.conditions import GROUP, elastic_condition
from lexicept.exports.folder import write_numbered_files
from lexicept.exports.source import Source, json_vector
from lexicept.fields.columns import Column
from lexicept.fields.filters import Filter
from lexicept.fields.values import Fields
from lexicept.progress import Progress
from lexicept.storage.files import write_json
from lexicept.storage.workspace import Units
from lexicept.vectors import Vector, power_of_two

LONGEST_ID = 512
"""Largest number of bytes of a document's id."""

LONGEST_TERM = 32_766
"""Largest number of bytes of a keyword."""

LARGEST_WEIGHT = 64.0
"""Largest weight of a query's dimension."""

LEAST_WEIGHT = float(np.finfo(np.float32).tiny)
"""Least weight of a document's dimension; smaller ones are left out."""


class _Bulk(ABC):
    """``documents/*.ndjson`` for ``_bulk``, ``mapping.json``, and ``queries.jsonl``."""

    name: str
    queries_file = "queries.jsonl"
    field: ClassVar[dict[str, Any]]
    """Mapping of the vector field."""

    def __init__(self, filter: Filter | None = None) -> None:  # noqa: A002
        self._filter = filter
        self._condition: dict[str, Any] | None = None

    def write(self, source: Source, parts: Units, progress: Progress) -> None:
        columns = source.index.fields
        if self._filter is not None:
            self._condition = elastic_condition(self._filter, columns)
        properties: dict[str, Any] = {name: {"type": "text"} for name in ("title", "text")}
        if len(columns):
            known = {name: {"type": _type(columns[name])} for name in columns}
            properties[GROUP] = {"properties": known}
        properties["vector"] = self.field
        write_json(parts.folder / "mapping.json", {"mappings": {"properties": properties}})

        def document(number: int) -> str:
            stored = source.index.stored(number)
            if len(stored.id.encode()) > LONGEST_ID:
                raise InputError(f"{self.name} takes ids of up to 512 bytes, not {stored.id!r}")
            action = json.dumps({"index": {"_id": stored.id}})
            fields = f'"title":{json.dumps(stored.title)},"text":{json.dumps(stored.text)}'
            if stored.fields:
                fields += f',"{GROUP}":{json.dumps(_short(self.name, stored))}'
            vector = _at_least(LEAST_WEIGHT, source.document(number))
            if vector.dimensions.size:  # an empty vector is refused
                fields += f',"vector":{json_vector(vector)}'
            return f"{action}\n{{{fields}}}\n"

        write_numbered_files(source, parts, "documents/{:06d}.ndjson", document, progress)

    def query(self, query: Query, vector: Vector) -> str:
        """Return the body of a search, and the scale of its scores.

        All weights of a query are multiplied by one power of two where the largest exceeds
        ``LARGEST_WEIGHT``: the ranking is the same, scores are those of the index times ``scale``.
        """
        top = float(vector.weights.max(initial=0)) or 1.0
        scale = min(1.0, power_of_two(LARGEST_WEIGHT / top))
        scaled = Vector(vector.dimensions, vector.weights * np.float32(scale))
        tokens = json.loads(json_vector(_at_least(LEAST_WEIGHT, scaled)))
        search = self.search(tokens)
        if self._condition is not None:
            search = {"bool": {"must": [search], "filter": [self._condition]}}
        return json.dumps({"id": query.id, "scale": scale, "body": {"query": search}})

    @abstractmethod
    def search(self, tokens: dict[str, float]) -> dict[str, Any]:
        """Return the body of a search for weighted tokens."""


class OpenSearch(_Bulk):
    """Fields of the type ``rank_features``, searched by ``neural_sparse``."""

    name = "opensearch"
    field: ClassVar = {"type": "rank_features"}

    def search(self, tokens: dict[str, float]) -> dict[str, Any]:
        return {"neural_sparse": {"vector": {"query_tokens": tokens}}}


class Elasticsearch(_Bulk):
    """Fields of the type ``sparse_vector``. Without ``prune: false`` a search leaves words out."""

    name = "elasticsearch"
    field: ClassVar = {"type": "sparse_vector"}

    def search(self, tokens: dict[str, float]) -> dict[str, Any]:
        return {"sparse_vector": {"field": "vector", "query_vector": tokens, "prune": False}}


def _type(column: Column) -> str:
    """Return the type of a field in a mapping."""
    if column.kind.kind == "number":
        return "long" if column.values.dtype.kind == "i" else "double"
    return column.kind.kind


def _short(engine: str, document: Document) -> Fields:
    """Return a document's fields. Raises InputError for a text that is too long for Lucene."""
    for name, value in document.fields.items():
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, str) and len(one.encode()) > LONGEST_TERM:
                problem = f"takes texts of up to {LONGEST_TERM:,} bytes in fields, unlike {name!r}"
                raise InputError(f"document {document.id!r}: {engine} {problem}")
    return document.fields


def _at_least(least: float, vector: Vector) -> Vector:
    """Return the entries of a vector that weigh at least ``least``."""
    kept = vector.weights >= least
    return Vector(vector.dimensions[kept], vector.weights[kept])
