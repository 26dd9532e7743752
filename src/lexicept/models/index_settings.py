"""Index settings: how an index weighs an encoder's activations, and what it lets a query cost."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from lexicept.errors import InputError
from lexicept.storage.files import read_json, write_json
from lexicept.weighting import BM25, Splade, Unchanged, Weighting

FILE = "lexicept.json"
"""The file of an encoder's folder that holds its index settings."""


@dataclass(frozen=True)
class IndexSettings:
    """Weighting of an encoder's activations in an index, and limits on a query's cost.

    Raises:
        InputError: a value out of range.
    """

    weighting: Literal["bm25", "splade"] = "bm25"
    """bm25 weighs activations as BM25 weighs words, which suits concepts that were trained to
    reconstruct only; splade gives the weights that a head was trained for ranking with."""
    k1: float = 1.5
    """BM25's k1 (term-frequency saturation), at least 0."""
    b: float = 0.75
    """BM25's b (length normalisation), 0 to 1."""
    k3: float = 1.0
    """BM25's k3 (saturation in queries), above 0."""
    query_max_qd_flops: float | None = None
    """Limit on a query's QD-FLOPs: the sum, over its dimensions, of the share of documents that
    have each; None for no limit."""

    def __post_init__(self) -> None:
        if self.weighting not in ("bm25", "splade"):
            raise InputError(f"weighting is bm25 or splade, not {self.weighting!r:.40}")
        for name in ("k1", "b", "k3"):
            value = getattr(self, name)
            if type(value) not in (int, float):
                raise InputError(f"{name} must be a number, not {value!r:.40}")
        BM25(self.k1, self.b, self.k3)
        budget = self.query_max_qd_flops
        if budget is not None and not (type(budget) in (int, float) and 0 < budget < math.inf):
            raise InputError(f"query_max_qd_flops must be above 0 or null, not {budget!r:.40}")

    def weigh(self, pooling: str, query_scale: float) -> Weighting:
        """Return the weighting of pooled activations.

        Args:
            pooling: the head's, max, sum or sqrt_sum.
            query_scale: the head's factor on query weights.
        """
        if self.weighting == "bm25":
            exponent = 2.0 if pooling == "sqrt_sum" else 1.0
            return BM25(self.k1, self.b, self.k3, exponent, query_scale)
        return Splade(query_scale) if pooling == "max" else Unchanged(query_scale)

    def write(self, folder: Path) -> None:
        """Write the settings into an encoder's folder."""
        write_json(folder / FILE, asdict(self))

    @classmethod
    def read(cls, folder: Path) -> IndexSettings:
        """Read the settings of an encoder's folder.

        Raises:
            InputError: the file is missing or damaged, or holds other settings.
        """
        if not (folder / FILE).exists():
            raise InputError(f"{FILE} is missing, so an index can't tell how to weigh its vectors")
        content = read_json(folder / FILE)
        try:
            return cls(**content)
        except TypeError:
            raise InputError(f"{folder / FILE}: not the settings of an index") from None
