"""Formats of integer impacts: CIFF, which many engines read, and Anserini's JSON vectors.

CIFF, the Common Index File Format (Lin et al. 2020), is a sequence of Protocol Buffers messages,
each after its length: a header, a list per term in the order of bytes, a record per document.
Lists have gaps instead of document numbers. PISA, Terrier, Anserini and others read CIFF.

Anserini and Pyserini index ``JsonVectorCollection`` with ``--impact --pretokenized`` and search
with ``--impact``. Queries of both formats repeat a word as often as the impact says.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from lexicept.corpora import Query
from lexicept.exports.folder import ExportedIndex, at_least, write_numbered_files
from lexicept.progress import Progress
from lexicept.storage.files import replacing
from lexicept.storage.workspace import Units
from lexicept.vectors import Integers, Vector

QUERY_LEVELS = 100
"""The impact of a query's largest weight."""

VERSION = 1
VARINT, DOUBLE, BYTES = 0, 1, 2  # wire types

Octets = npt.NDArray[np.uint8]


class _ImpactFormat:
    """Queries of repeated words: Anserini's form; PISA has a colon for the tab."""

    queries_file = "queries.tsv"
    has_similarity = False

    def query(self, query: Query, vector: Vector, text_vector: Sequence[float]) -> str:
        dimensions, impacts = query_impacts(vector)
        words = np.repeat(dimensions, impacts).astype(str)
        return f"{query.id}\t{' '.join(words)}"


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
        lengths = np.zeros(len(exported.index), np.int64)
        lists = 0
        terms = sorted(range(exported.num_dimensions), key=str)
        # The header holds counts of the lists: impacts are computed twice, never all at once.
        for dimension in terms:
            documents, impacts = postings(exported, dimension)
            lengths[documents] += impacts
            lists += bool(documents.size)
        with replacing(files.folder / "index.ciff") as file:
            file.write(delimited(header(lists, lengths)))
            for done, dimension in enumerate(terms, 1):
                documents, impacts = postings(exported, dimension)
                if documents.size:
                    file.write(delimited(postings_list(str(dimension), documents, impacts)))
                if done % 1000 == 0 or done == len(terms):
                    progress("export", done, len(terms))
            for number, length in enumerate(lengths.tolist()):
                record = field(1, number) + text(2, exported.index.ids[number]) + field(3, length)
                file.write(delimited(record))


def query_impacts(vector: Vector) -> Vector:
    """Return the non-zero weights of a query as integers up to ``QUERY_LEVELS``."""
    top = float(vector.weights.max(initial=0)) or 1.0
    impacts = np.rint(vector.weights.astype(float) * (QUERY_LEVELS / top)).astype(np.int64)
    return at_least(vector._replace(weights=impacts), 1)


def postings(exported: ExportedIndex, dimension: int) -> tuple[Integers, Integers]:
    """Return documents and impacts above 0 of a dimension."""
    engine = exported.index.engine
    if dimension < engine.num_dimensions:
        documents, weights = engine.postings(slice(dimension, dimension + 1))
        impacts = exported.impacts(weights)
    else:
        documents, impacts = np.arange(len(exported.index)), exported.impacts(exported.offsets)
    return documents[impacts > 0], impacts[impacts > 0]


def header(num_lists: int, lengths: Integers) -> bytes:
    """Return the message ``Header``; a document's length is the sum of its impacts."""
    counts = (VERSION, num_lists, lengths.size, num_lists, lengths.size, int(lengths.sum()))
    content = b"".join(field(number, value) for number, value in enumerate(counts, 1))
    mean = float(lengths.mean()) if lengths.size else 0.0
    content += bytes([7 << 3 | DOUBLE]) + struct.pack("<d", mean)
    return content + text(8, "lexicept: impacts")


def postings_list(term: str, documents: Integers, impacts: Integers) -> bytes:
    """Return the message ``PostingsList`` of one term."""
    gaps = np.diff(documents, prepend=0).astype(np.int64)
    # Every posting is a message: a tag and a length, then a tag and a number twice.
    gap, gap_used = varints(gaps)
    impact, impact_used = varints(impacts)
    always = np.ones((documents.size, 1), bool)
    sizes = 2 + gap_used.sum(axis=1, keepdims=True) + impact_used.sum(axis=1, keepdims=True)
    posting_tag, gap_tag, impact_tag = (
        np.full((documents.size, 1), number << 3 | kind, np.uint8)
        for number, kind in ((4, BYTES), (1, VARINT), (2, VARINT))
    )
    octets: Octets = np.hstack(
        [posting_tag, sizes.astype(np.uint8), gap_tag, gap, impact_tag, impact]
    )
    used = np.hstack([always, always, always, gap_used, always, impact_used])
    totals = field(2, documents.size) + field(3, int(impacts.sum()))
    return text(1, term) + totals + bytes(octets[used])


def varints(numbers: Integers) -> tuple[Octets, npt.NDArray[np.bool_]]:
    """Return numbers below 2**35 as varints: octets [n, 5], and a mask of the used octets."""
    shifts = 7 * np.arange(5)
    shifted = numbers.astype(np.int64)[:, None] >> shifts
    continued = (shifted >> 7) > 0
    octets = (shifted & 127 | np.where(continued, 128, 0)).astype(np.uint8)
    return octets, (shifted > 0) | (shifts == 0)


def field(number: int, value: int) -> bytes:
    """Return an integer as a field of a message."""
    return bytes([number << 3 | VARINT]) + varint(value)


def text(number: int, value: str) -> bytes:
    """Return a string as a field of a message."""
    content = value.encode()
    return bytes([number << 3 | BYTES]) + varint(len(content)) + content


def varint(value: int) -> bytes:
    content = bytearray()
    while value > 127:
        content.append(value & 127 | 128)
        value >>= 7
    content.append(value)
    return bytes(content)


def delimited(message: bytes) -> bytes:
    """Return a message after the length of the message."""
    return varint(len(message)) + message
