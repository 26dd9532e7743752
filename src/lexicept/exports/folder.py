"""The folder of an export: an index with floats or integers as weights, written in resumable files.

RRA's offsets are one more dimension, the last.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Annotated, Protocol

import numpy as np
import scipy.sparse as sp
from annotated_types import Ge, Le

from lexicept.checks import Integer, check
from lexicept.corpora import Query
from lexicept.index.reader import IndexReader
from lexicept.kernels.posting_lists import SEGMENT
from lexicept.progress import Progress, silent
from lexicept.queries.syntax import ParsedQuery
from lexicept.storage.files import fingerprint, fingerprint_json, replacing, replacing_text
from lexicept.storage.workspace import Units, Workspace
from lexicept.vectors import Floats, Integers, Vector, power_of_two, stack_columns

FILE_BYTES = 16 * 2**20
"""Bytes of a file of documents, small enough for a request to a server."""


class ExportFormat(Protocol):
    """A format of exported indexes."""

    name: str
    queries_file: str
    """Name of the file of queries, one per line."""
    has_similarity: bool
    """True if documents and queries have the vectors of their texts."""

    def write(self, exported: ExportedIndex, files: Units, progress: Progress) -> None:
        """Write the documents into the folder of ``files``, except for complete files."""

    def query(self, query: Query, vector: Vector, text_vector: Sequence[float]) -> str:
        """Return a line of ``queries_file``: the query in the syntax of the engine. Without vectors
        of texts, ``text_vector`` is empty."""


@dataclass(frozen=True)
class ExportedIndex:
    """An index with offsets as one more dimension."""

    index: IndexReader
    bits: int = 8
    """Bits of the largest impact of a document, in formats of integers."""
    has_similarity: bool = False
    """True to weigh queries for sums with similarities, else for words and concepts alone."""

    @property
    def num_dimensions(self) -> int:
        """Number of dimensions of the index and, with RRA, one more."""
        return self.index.engine.num_dimensions + (self.offset_scale > 0)

    @cached_property
    def largest(self) -> float:
        """Largest weight of a document, without offsets."""
        return self.index.engine.largest

    @cached_property
    def offset_scale(self) -> float:
        """A power of two that makes the largest offset about as large as the largest weight, so
        that integers hold both; query factors are divided by the scale. 0 without offsets."""
        highest = float(self.index.engine.offsets.max(initial=0))
        if not (highest and self.largest):
            return 0.0
        return power_of_two(self.largest / highest)

    @cached_property
    def offsets(self) -> Floats:
        """Weights of the documents in the last dimension [N]."""
        return (self.index.engine.offsets * self.offset_scale).astype(np.float32)

    @cached_property
    def _segment(self) -> Callable[[int], sp.csr_array]:
        """A reader of the document weights of a segment [n, num_dimensions], which keeps one."""

        def read(segment: int) -> sp.csr_array:
            weights = self.index.engine.segment(segment)
            if not self.offset_scale:
                return weights
            offsets = self.offsets[segment * SEGMENT : (segment + 1) * SEGMENT]
            return stack_columns([weights, sp.csr_array(offsets[:, None])])

        return lru_cache(maxsize=1)(read)

    def document(self, number: int) -> Vector:
        """Return the weights of a document; fast in document order."""
        segment, position = divmod(number, SEGMENT)
        return _row(self._segment(segment), position)

    def text_vector(self, number: int) -> list[float]:
        """Return the vector of a document's text, of unit length; empty for zeros, and for an index
        without vectors."""
        if self.index.vectors is None:
            return []
        (record,) = self.index.vectors.records(np.array([number]))
        return _unit(record["steps"].astype(np.float32))

    def impacts(self, weights: Floats) -> Integers:
        """Round weights of documents to integers from 0 to 2**bits - 1."""
        top = max(self.largest, float(self.offsets.max(initial=0)))
        levels_per_weight = float((2**self.bits - 1) / (top or 1.0))
        return np.rint(weights.astype(float) * levels_per_weight).astype(np.int64)

    def document_impacts(self, number: int) -> Vector:
        """Return the non-zero impacts of a document."""
        vector = self.document(number)
        return at_least(vector._replace(weights=self.impacts(vector.weights)), 1)

    def queries(self, queries: Sequence[str | ParsedQuery]) -> Iterator[tuple[Vector, list[float]]]:
        """Yield the weights of queries, an empty vector without a known word or concept, and the
        vectors of their texts; see ``text_vector``."""
        weights, text_vectors = self.index.weigh(queries)
        factors = weights @ self.index.derived.background  # as in a search: not of counted weights
        if self.has_similarity and self.index.scorer is not None:
            weights = self.index.scorer.counted(weights).copy()
            weights.eliminate_zeros()
        if self.offset_scale:
            # The product of both last dimensions is RRA's summand: the scale cancels out.
            column = (factors / self.offset_scale).astype(np.float32)[:, None]
            weights = stack_columns([weights, sp.csr_array(column)])
        for number in range(len(queries)):
            unit = [] if text_vectors is None else _unit(text_vectors[number])
            yield _row(weights, number), unit

    def vocabulary(self) -> Iterator[str]:
        """Yield tab-separated lines of dimension, vocabulary, number within it, and term."""
        dimension = 0
        for vocabulary in self.index.vocabularies:
            terms = vocabulary.terms
            for number in range(vocabulary.size):
                term = str(number) if terms is None else " ".join(terms[number].split())
                yield f"{dimension}\t{vocabulary.name}\t{number}\t{term}"
                dimension += 1
        if self.offset_scale:
            yield f"{dimension}\tprior\t0\tRRA's prior of a document"


def export_index(
    index: IndexReader,
    form: ExportFormat,
    out: str | os.PathLike[str],
    bits: int = 8,
    queries: Sequence[Query] = (),
    progress: Progress = silent,
    *,
    restart: bool = False,
) -> None:
    """Write an index, with queries in the syntax and weights of this index, in the format of
    another engine into a new folder. Impacts have ``bits`` in formats of integers. An interrupted
    export is resumed after the last complete file (see ``storage.workspace``). Raises InputError if
    something is at ``out``, for unfinished work with other settings, another writing process, or a
    document or a query that the format can't hold."""
    check("bits", bits, Annotated[Integer, Ge(1), Le(16)])
    settings = {
        "format": form.name,
        "bits": bits,
        "index": fingerprint_json(index.manifest),
        "queries": fingerprint(f"{query.id}\t{query.text}" for query in queries),
    }
    with Workspace(out, "export", settings, restart=restart) as work:
        files = work.units("export")
        exported = ExportedIndex(index, bits, form.has_similarity)
        form.write(exported, files, progress)
        with replacing_text(files.folder / "vocabulary.tsv") as file:
            file.writelines(f"{line}\n" for line in exported.vocabulary())
        if queries:
            with replacing_text(files.folder / form.queries_file) as file:
                vectors = exported.queries([query.text for query in queries])
                for query, (vector, text_vector) in zip(queries, vectors, strict=True):
                    if vector.dimensions.size:
                        file.write(form.query(query, vector, text_vector) + "\n")
        work.publish(files.folder)


def left_out(index: IndexReader, form: ExportFormat) -> str:
    """Return a sentence about the parts of the default search that an export lacks, or ""."""
    if index.vectors is None:
        return ""
    weight = (
        f"its search of all vocabularies adds {index.vectors.settings.scale:g} times the cosine"
    )
    field = "of the fields similarity" if form.has_similarity else "of vectors that are left out"
    whole = ", and counts words of whole documents" if len(index.passages) else ""
    return f"an engine ranks by words and concepts; {weight} {field}{whole}"


def write_numbered_files(
    exported: ExportedIndex,
    files: Units,
    name: str,
    document: Callable[[int], str],
    progress: Progress,
    around: tuple[str, str, str] = ("", "", ""),
) -> None:
    """Write the text of all documents, ``document`` by number, into files of about ``FILE_BYTES``,
    after the complete files. ``name`` has a number to fill in; ``around`` is the text before,
    between and after the documents of a file."""
    begin, between, end = (text.encode() for text in around)
    count = len(exported.index)
    file_number = index = 0
    # Each complete file records the number of the document after the last: a resumed export skips
    # the file.
    while index < count:
        path = files.folder / name.format(file_number)
        following = (files.facts(path.name) or {}).get("next")
        if isinstance(following, int) and index < following <= count:
            index = following
        else:
            with replacing(path) as file:
                written = file.write(begin)
                first = index
                while index < count and written < FILE_BYTES:
                    content = document(index).encode()
                    written += file.write(content if index == first else between + content)
                    index += 1
                file.write(end)
            files.finish(path.name, [path], next=index)
        file_number += 1
        progress("export", index, count)


def at_least(vector: Vector, least: float) -> Vector:
    """Return the entries of a vector with weights of at least ``least``."""
    mask = vector.weights >= least
    return Vector(vector.dimensions[mask], vector.weights[mask])


def _row(matrix: sp.csr_array, number: int) -> Vector:
    start, end = matrix.indptr[number : number + 2]
    return Vector(matrix.indices[start:end], matrix.data[start:end])


def _unit(vector: Floats) -> list[float]:
    """Return a vector of unit length as numbers of few digits; empty for zeros."""
    length = float(np.linalg.norm(vector))
    return np.round(vector / length, 5).tolist() if length else []
