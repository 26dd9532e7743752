"""Qdrant: bodies of requests that make a collection, upsert its points and query it."""

from __future__ import annotations

import json

from lexicept.corpora import Query
from lexicept.exports.conditions import GROUP, qdrant_condition
from lexicept.exports.folder import write_numbered_files
from lexicept.exports.source import Source
from lexicept.fields.filters import Filter
from lexicept.progress import Progress
from lexicept.storage.files import write_json
from lexicept.storage.workspace import Units
from lexicept.vectors import Vector

VECTOR = "text"
"""Name of the points' sparse vector."""


class Qdrant:
    """``collection.json``, ``points/*.json`` and ``queries.jsonl``; a point's id is its number."""

    name = "qdrant"
    queries_file = "queries.jsonl"

    def __init__(self, filter: Filter | None = None) -> None:  # noqa: A002
        self._filter = filter
        self._condition = ""

    def write(self, source: Source, parts: Units, progress: Progress) -> None:
        if self._filter is not None:
            condition = qdrant_condition(self._filter, source.index.fields)
            self._condition = f',"filter":{json.dumps(condition)}'
        write_json(
            parts.folder / "collection.json", {"vectors": {}, "sparse_vectors": {VECTOR: {}}}
        )

        def point(number: int) -> str:
            stored = source.index.stored(number)
            known = {GROUP: stored.fields} if stored.fields else {}
            texts = {"id": stored.id, "title": stored.title, "text": stored.text}
            payload = json.dumps({**texts, **known})
            vector = f'{{"{VECTOR}":{_sparse(source.document(number))}}}'
            return f'{{"id":{number},"vector":{vector},"payload":{payload}}}'

        around = ('{"points":[', ",\n", "]}\n")
        write_numbered_files(source, parts, "points/{:06d}.json", point, progress, around)

    def query(self, query: Query, vector: Vector) -> str:
        asked = f'"query":{_sparse(vector)},"using":"{VECTOR}","with_payload":true'
        return f'{{"id":{json.dumps(query.id)},"body":{{{asked}{self._condition}}}}}'


def _sparse(vector: Vector) -> str:
    indices, values = vector.dimensions.astype(str), vector.weights.astype(str)
    return f'{{"indices":[{",".join(indices)}],"values":[{",".join(values)}]}}'
