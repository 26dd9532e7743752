"""Adapters of third-party engines, which search vectors without offsets."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from lexicept.engines.interface import Engine, checked_offsets, single_precision
from lexicept.engines.mask import Mask
from lexicept.errors import IndexFormatError, InputError
from lexicept.storage.arrays import load_array, save_array
from lexicept.vectors import Floats, Integers, stack_columns

LARGEST = 2.0**15
"""Largest weight given to an engine: some keep weights in half precision (at most 65,504)."""


USED = "used.npy"


Found = tuple[list[int], list[float]]
"""Document numbers and scores."""


class Vector(NamedTuple):
    """The non-zeros of a document or a query, in the order of their dimensions."""

    dimensions: Integers
    weights: Any
    """f32, or whole numbers."""


@dataclass(frozen=True)
class Extension:
    """The representation of offsets as one more dimension of documents and queries.

    A document's offset is its weight there, and a query's factor the query's. Scales are powers of
    two, so that they change no digit of a score.
    """

    num_documents: int
    used: npt.NDArray[np.bool_]
    """True if any document has each dimension [V]."""
    scale: float
    """Factor on all document weights, so that none exceeds ``LARGEST``."""
    offset_scale: float
    """Further factor on offsets, and divisor of queries' factors, that makes the largest offset
    about as large as the largest weight; 0 without offsets."""

    @classmethod
    def of(cls, documents: Any, offsets: npt.ArrayLike | None) -> tuple[Extension, sp.csr_array]:
        """Return the extension and the extended documents [N, V + 1].

        Raises:
            InputError: NaN, infinite or negative weights or offsets, or offsets of another length.
        """
        matrix = single_precision(documents)
        prior = checked_offsets(offsets, matrix.shape[0])
        if (prior < 0).any():
            raise InputError(f"document offsets must be at least 0, not {prior.min()}")
        largest = float(matrix.data.max(initial=0))
        highest = float(prior.max(initial=0))
        offset_scale = 0.0
        if highest:
            offset_scale = power_of_two(largest / highest) if largest else 1.0
        scale = min(1.0, power_of_two(LARGEST / max(largest, highest * offset_scale, 1.0)))
        used = np.zeros(matrix.shape[1], bool)
        used[matrix.indices] = True
        extension = cls(matrix.shape[0], used, scale, offset_scale)
        column = sp.csr_array((prior.astype(float) * offset_scale).astype(np.float32)[:, None])
        extended = stack_columns([matrix, column])
        weights = (extended.data * np.float32(scale), extended.indices, extended.indptr)
        return extension, sp.csr_array(weights, shape=extended.shape)

    def queries(self, queries: sp.csr_array, factors: Floats) -> list[Vector | None]:
        """Return queries [n, V] and factors [n] as vectors; None for one that matches nothing.

        Raises:
            InputError: a factor that is too large for single precision.
        """
        with np.errstate(over="ignore"):
            shares = factors / self.offset_scale if self.offset_scale else 0 * factors
            shares = shares.astype(np.float32)
        if not np.isfinite(shares).all():
            raise InputError(f"query offset {factors.max()} is too large for single precision")
        return [
            self._query(queries.indices[a:b], queries.data[a:b], share)
            for (a, b), share in zip(pairwise(queries.indptr), shares, strict=True)
        ]

    def _query(self, dimensions: Integers, weights: Floats, share: np.float32) -> Vector | None:
        if not self.used[dimensions].any():
            return None
        if not share:
            return Vector(dimensions, weights)
        return Vector(np.append(dimensions, self.used.size), np.append(weights, share))

    def save(self, folder: Path) -> dict[str, Any]:
        """Write the array; return the numbers, as JSON values."""
        save_array(folder / USED, self.used)
        return {
            "documents": self.num_documents,
            "scale": self.scale,
            "offset_scale": self.offset_scale,
        }

    @classmethod
    def load(cls, folder: Path, numbers: Mapping[str, Any]) -> Extension:
        """Load what ``save`` wrote. Raises IndexFormatError for anything else."""
        used = load_array(folder / USED, np.bool_)
        try:
            return cls(
                int(numbers["documents"]),
                used,
                float(numbers["scale"]),
                float(numbers["offset_scale"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise IndexFormatError(f"{folder}: its manifest is damaged ({error})") from None


def power_of_two(number: float) -> float:
    """Return the largest power of two that is not larger."""
    return float(2.0 ** np.floor(np.log2(number)))


class WrappedEngine(Engine):
    """An engine around one that takes valid, non-empty vectors only, without offsets."""

    files: ClassVar[tuple[str, ...]]
    """Names of the immutable files in its folder, whose checksums are stored."""

    def __init__(self, extension: Extension) -> None:
        self.extension = extension

    @staticmethod
    @abstractmethod
    def discard(folder: Path) -> None:
        """Remove what a build into this folder keeps elsewhere."""

    @property
    def num_documents(self) -> int:
        return self.extension.num_documents

    @property
    def num_dimensions(self) -> int:
        return int(self.extension.used.size)

    def _rank(
        self,
        queries: sp.csr_array,
        factors: Floats,
        top_k: int,
        _threads: int | None,
        mask: Mask | None,
    ) -> list[tuple[Integers, Floats]]:
        if (factors < 0).any():
            raise InputError(f"query offsets must be at least 0, not {factors.min()}")
        vectors = self.extension.queries(queries, factors)
        nothing: tuple[Integers, Floats] = (np.empty(0, np.int64), np.empty(0, np.float32))
        results = [nothing] * len(vectors)
        matching = [number for number, vector in enumerate(vectors) if vector is not None]
        if matching:
            asked = [vector for vector in vectors if vector is not None]
            depth = min(top_k, self.num_documents)
            if mask is None:
                rankings = self._search(asked, depth)
            else:
                rankings = self._search_allowed(asked, depth, mask)
            for query, (numbers, scores) in zip(matching, rankings, strict=True):
                results[query] = self._ranked(np.array(numbers), np.array(scores))
        return results

    def _ranked(self, numbers: Integers, scores: Floats) -> tuple[Integers, Floats]:
        if numbers.size and not 0 <= numbers.min() <= numbers.max() < self.num_documents:
            raise IndexFormatError(f"the engine {self.name} returns a document that is not there")
        order = np.lexsort((numbers, -scores))
        order = order[scores[order] > 0]
        scaled = scores[order] / self.extension.scale
        return numbers[order].astype(np.int64), scaled.astype(np.float32)

    def _search_allowed(self, queries: Sequence[Vector], top_k: int, mask: Mask) -> list[Found]:
        """Return the best allowed documents of non-empty queries, at most ``top_k``.

        The engine is asked for more and more results, until enough of them are allowed.

        Raises:
            InputError: it prunes, so that its results may lack allowed documents, or it gives no
                more results.
        """
        if not self.exact:
            problem = f"the engine {self.name} prunes, so that a filter would miss documents"
            raise InputError(f"{problem}; search with the exact engine")
        found: list[Found] = [([], [])] * len(queries)
        waiting = list(range(len(queries))) if mask.count else []
        depth = 2 * top_k * self.num_documents // max(mask.count, 1)
        while waiting:
            depth = max(min(depth, self.deepest), top_k)
            asked, waiting = waiting, []
            rankings = self._search([queries[place] for place in asked], depth)
            for place, (numbers, scores) in zip(asked, rankings, strict=True):
                kept = [pair for pair in zip(numbers, scores, strict=True) if mask.allowed[pair[0]]]
                if len(kept) < top_k and len(numbers) == depth < self.num_documents:
                    waiting.append(place)
                    continue
                best = sorted(kept, key=lambda pair: (-pair[1], pair[0]))[:top_k]
                found[place] = [number for number, _ in best], [score for _, score in best]
            if waiting and depth >= self.deepest:
                problem = f"of the {depth:,} results that {self.name} gives, a filter allows fewer"
                raise InputError(f"{problem} than {top_k:,}; search with the exact engine")
            depth *= 4
        return found

    @abstractmethod
    def _search(self, queries: Sequence[Vector], top_k: int) -> list[Found]:
        """Return document numbers and scores, in any order, of non-empty queries."""
