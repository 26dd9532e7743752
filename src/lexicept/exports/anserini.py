"""Anserini and Pyserini: JSON vectors of integer impacts, and queries of repeated words.

``JsonVectorCollection`` repeats a word as often as its impact says. Documents are indexed with
``--impact --pretokenized`` and searched with ``--impact``.
"""

from __future__ import annotations

import json

from lexicept.corpora import Query
from lexicept.exports.folder import write_numbered_files
from lexicept.exports.source import Source, json_vector, repeated
from lexicept.progress import Progress
from lexicept.storage.workspace import Units
from lexicept.vectors import Vector


class Anserini:
    """``documents/*.jsonl`` with ``id``, ``contents`` and ``vector``; ``queries.tsv``."""

    name = "anserini"
    queries_file = "queries.tsv"

    def write(self, source: Source, parts: Units, progress: Progress) -> None:
        def document(number: int) -> str:
            stored = source.index.stored(number)
            fields = f'"id":{json.dumps(stored.id)},"contents":{json.dumps(stored.content)}'
            return f'{{{fields},"vector":{json_vector(source.document_impacts(number))}}}\n'

        write_numbered_files(source, parts, "documents/{:06d}.jsonl", document, progress)

    def query(self, query: Query, vector: Vector) -> str:
        return repeated(query, vector)
