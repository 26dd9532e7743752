"""CIFF, the Common Index File Format (Lin et al. 2020): posting lists of integer impacts.

A file is a sequence of Protocol Buffers messages, each after its length: a header, a list per
term in the order of their bytes, a record per document. Lists have gaps instead of document
numbers. PISA, Terrier, Anserini and others read it.
"""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt

from lexicept.corpora import Query
from lexicept.exports.source import Source, repeated
from lexicept.progress import Progress
from lexicept.storage.files import replacing
from lexicept.storage.workspace import Units
from lexicept.vectors import Integers, Vector

VERSION = 1
VARINT, DOUBLE, BYTES = 0, 1, 2  # wire types

Octets = npt.NDArray[np.uint8]


class CIFF:
    """``index.ciff``, and ``queries.tsv`` in Anserini's form; PISA has a colon for the tab."""

    name = "ciff"
    queries_file = "queries.tsv"

    def write(self, source: Source, parts: Units, progress: Progress) -> None:
        lengths = np.zeros(len(source.index), np.int64)
        lists = 0
        terms = sorted(range(source.num_dimensions), key=str)
        for dimension in terms:
            documents, impacts = postings(source, dimension)
            lengths[documents] += impacts
            lists += bool(documents.size)
        with replacing(parts.folder / "index.ciff") as file:
            file.write(delimited(header(lists, lengths)))
            for done, dimension in enumerate(terms, 1):
                documents, impacts = postings(source, dimension)
                if documents.size:
                    file.write(delimited(postings_list(str(dimension), documents, impacts)))
                if done % 1000 == 0 or done == len(terms):
                    progress("export", done, len(terms))
            for number, length in enumerate(lengths.tolist()):
                record = field(1, number) + text(2, source.index.ids[number]) + field(3, length)
                file.write(delimited(record))

    def query(self, query: Query, vector: Vector) -> str:
        return repeated(query, vector)


def postings(source: Source, dimension: int) -> tuple[Integers, Integers]:
    """Return documents and impacts of a dimension, without those that round to 0."""
    engine = source.index.engine
    if dimension < engine.num_dimensions:
        documents, weights = engine.postings(slice(dimension, dimension + 1))
        impacts = source.impacts(weights)
    else:
        documents, impacts = np.arange(len(source.index)), source.impacts(source.offsets)
    return documents[impacts > 0], impacts[impacts > 0]


def header(num_lists: int, lengths: Integers) -> bytes:
    """Return the message ``Header``; a document's length is the sum of its impacts."""
    counts = (VERSION, num_lists, lengths.size, num_lists, lengths.size, int(lengths.sum()))
    content = b"".join(field(number, value) for number, value in enumerate(counts, 1))
    mean = float(lengths.mean()) if lengths.size else 0.0
    return (
        content + bytes([7 << 3 | DOUBLE]) + struct.pack("<d", mean) + text(8, "lexicept: impacts")
    )


def postings_list(term: str, documents: Integers, impacts: Integers) -> bytes:
    """Return the message ``PostingsList`` of one term."""
    gaps = np.diff(documents, prepend=0).astype(np.int64)
    # Every posting is a message: a tag and a length, then a tag and a number twice.
    gap, gap_kept = varints(gaps)
    impact, impact_kept = varints(impacts)
    tags = np.empty((documents.size, 1), np.uint8)
    always = np.ones((documents.size, 1), bool)
    sizes = 2 + gap_kept.sum(axis=1, keepdims=True) + impact_kept.sum(axis=1, keepdims=True)
    parts = [
        (np.full_like(tags, 4 << 3 | BYTES), always),
        (sizes.astype(np.uint8), always),
        (np.full_like(tags, 1 << 3 | VARINT), always),
        (gap, gap_kept),
        (np.full_like(tags, 2 << 3 | VARINT), always),
        (impact, impact_kept),
    ]
    octets: Octets = np.hstack([part for part, _ in parts])
    kept = np.hstack([counts for _, counts in parts])
    totals = field(2, documents.size) + field(3, int(impacts.sum()))
    return text(1, term) + totals + bytes(octets[kept])


def varints(numbers: Integers) -> tuple[Octets, npt.NDArray[np.bool_]]:
    """Return numbers below 2**35 as varints: octets [n, 5], and which of them are used."""
    shifts = 7 * np.arange(5)
    rest = numbers.astype(np.int64)[:, None] >> shifts
    more = (rest >> 7) > 0
    octets = (rest & 127 | np.where(more, 128, 0)).astype(np.uint8)
    return octets, (rest > 0) | (shifts == 0)


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
    """Return a message with its length in front."""
    return varint(len(message)) + message
