"""Vectors of whole texts beside the postings: the direction of each document or passage.

A search of all vocabularies adds ``SIMILARITY`` times the cosine with the query to the scores. For
another backbone than MiniLM the cosines are brought to the spread of MiniLM's. ``vectors.npy`` of a
part has a record for each document: the components in 8 bits, and their length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from annotated_types import Ge, Le

from lexicept.checks import Count, Positive, settings
from lexicept.errors import IndexFormatError
from lexicept.index.parts import Parts
from lexicept.kernels.dot_products import dot_products
from lexicept.storage.arrays import ArrayWriter, load_array
from lexicept.vectors import Floats, Integers, unit_rows

SIMILARITY = 20.0
"""Weight of the cosine of a document and a query beside their words and concepts."""

LEAST_SIMILAR = 6.0
"""Similarity from which a document is a result without a word or concept of the query, in an index
of at most ``ALL_COMPARED``: a cosine of .3, which 2 to 8 % of all pairs of questions and texts
reach (two documentations, CACM)."""

SPREAD = 0.13
"""Standard deviation of the cosines of two texts by MiniLM, the mean of six collections: .11 to .15
for abstracts, encyclopaedia paragraphs and documentation. Their mean, .15, is about the same."""

SAMPLED = 600
"""Texts whose pairs show the spread of cosines."""

ALL_COMPARED = 2**14
"""Most documents and passages of an index of which all are compared with a query."""

COMPARED = 2**11
"""Documents of larger indexes whose passages are: the best by words and concepts."""

STEPS = 127
"""Largest absolute component in 8 bits."""

QUERY_STEPS = 255
"""Largest absolute component of a query: sums of products stay below 2²⁴ up to a size of 518, and
are exact in single precision."""

READ_TOGETHER = 2**12
"""Vectors in memory at once, in single precision: 6 MB for a size of 384."""


class VectorWriter(ArrayWriter):
    """Writes vectors, in a ``with`` block."""

    def __init__(self, part: Path, d: int) -> None:
        super().__init__(_file(part), _record(d))

    def append(self, vectors: Any) -> None:
        """Add vectors [n, d], a CSR matrix, or records."""
        super().append(rounded(vectors) if sp.issparse(vectors) else vectors)


def rounded(vectors: sp.csr_array) -> Any:
    """Return the records of vectors [n, d]."""
    dense = vectors.toarray()
    largest = np.abs(dense).max(axis=1, keepdims=True, initial=0.0)
    records = np.empty(len(dense), _record(dense.shape[1]))
    records["steps"] = np.rint(dense * (STEPS / np.where(largest > 0, largest, 1)))
    records["length"] = np.linalg.norm(records["steps"].astype(np.float32), axis=1)
    return records


@settings
class VectorSettings:
    """Vectors of an index, and the similarity by their cosines: ``scale * (cosine - origin)``, at
    least 0. Raises InputError for a value out of range."""

    size: Count
    """Components of a vector."""
    scale: Positive = SIMILARITY
    origin: Annotated[float, Ge(-1), Le(1)] = 0.0

    def fitted(self, vectors: TextVectors) -> VectorSettings:
        """Return the settings for which cosines of a collection's texts have the mean and the
        standard deviation of MiniLM's."""
        count = vectors.parts.order.size
        drawn = np.random.default_rng(0).choice(count, min(count, SAMPLED), replace=False)
        units = unit_rows(vectors.records(np.sort(drawn))["steps"].astype(np.float32))
        units = units[units.any(axis=1)]
        cosines = (units @ units.T)[np.triu_indices(len(units), 1)]
        spread = float(cosines.std()) if cosines.size else 0.0
        if spread == 0:
            return self
        origin = float(cosines.mean()) - spread
        return replace(self, scale=SIMILARITY * SPREAD / spread, origin=max(-1.0, origin))


@dataclass(frozen=True)
class TextVectors:
    """The memory-mapped vectors of parts' documents. Raises IndexFormatError for damaged files."""

    parts: Parts
    settings: VectorSettings

    @property
    def d(self) -> int:
        """Size of a vector."""
        return self.settings.size

    @cached_property
    def _stored(self) -> Sequence[Any]:
        arrays = [load_array(_file(part), _record(self.d)) for part in self.parts.folders]
        for array, count, part in zip(arrays, self.parts.counts, self.parts.folders, strict=True):
            if array.size != count:
                raise IndexFormatError(f"{_file(part)}: {array.size} vectors of {count} documents")
        return arrays

    def records(self, documents: Integers) -> Any:
        """Return the records of some documents, by their index among all."""
        stored, order = self._stored, self.parts.order[documents]
        if len(stored) == 1:
            neighbours = len(order) > 1 and order[-1] - order[0] == len(order) - 1
            if neighbours and bool((np.diff(order) == 1).all()):
                return stored[0][order[0] : order[-1] + 1]  # a view, much faster
            return stored[0][order]
        records = np.empty(len(documents), _record(self.d))
        starts = np.cumsum([0, *self.parts.counts])
        part_of = self.parts.part_of(order)
        for part, array in enumerate(stored):
            in_part = part_of == part
            records[in_part] = array[order[in_part] - starts[part]]
        return records

    def similarities(self, query: Floats, documents: Integers) -> Floats:
        """Return the similarity of a query's unit vector [d] and of documents [n]; 0 for zeros."""
        # Whole numbers, whose sums do not depend on the vectors beside a vector.
        largest = np.abs(query).max(initial=0)
        steps = np.rint(query * (QUERY_STEPS / (largest or 1))).astype(np.int16)
        steps_length = np.float32(np.linalg.norm(steps) or 1)
        cosines = np.empty(len(documents), np.float32)
        for start in range(0, len(documents), READ_TOGETHER):
            records = self.records(documents[start : start + READ_TOGETHER])
            # The bytes of all records, of which those of the length have zeros as factors.
            of_bytes = np.asarray(records).view(np.int8).reshape(len(records), -1)
            width = of_bytes.shape[1] - self.d
            products = dot_products(of_bytes, np.pad(steps, (width, 0)))
            lengths = np.maximum(records["length"], 1) * steps_length
            cosines[start : start + len(records)] = products / lengths
        settings = self.settings
        above = np.where(cosines == 0, 0, np.maximum(cosines - np.float32(settings.origin), 0))
        return np.float32(settings.scale) * above

    @property
    def all_compared(self) -> bool:
        """True if a search compares all documents and passages."""
        return self.parts.order.size <= ALL_COMPARED

    @property
    def depth(self) -> int:
        """Number of documents that a search of a large index compares."""
        return COMPARED

    def similar(self, similarities: Floats) -> npt.NDArray[np.bool_]:
        """Return True for ``similarities`` of documents that are results by them alone [n]."""
        return similarities >= np.float32(LEAST_SIMILAR)

    def check(self) -> None:
        """Raise IndexFormatError for records that no vector has."""
        for array, part in zip(self._stored, self.parts.folders, strict=True):
            for start in range(0, array.size, READ_TOGETHER):
                records = array[start : start + READ_TOGETHER]
                lengths = np.linalg.norm(records["steps"].astype(np.float32), axis=1)
                if not np.allclose(records["length"], lengths, rtol=1e-5):
                    raise IndexFormatError(f"{_file(part)}: lengths that are not the vectors'")


def write_vectors(part: Path, vectors: TextVectors) -> None:
    """Write vectors of documents, from any parts, as those of a new part."""
    with VectorWriter(part, vectors.d) as writer:
        for start in range(0, vectors.parts.order.size, READ_TOGETHER):
            stop = min(start + READ_TOGETHER, vectors.parts.order.size)
            writer.append(vectors.records(np.arange(start, stop)))


def _record(d: int) -> np.dtype[Any]:
    return np.dtype([("length", "<f4"), ("steps", "i1", (d,))])


def _file(part: Path) -> Path:
    return part / "vectors.npy"
