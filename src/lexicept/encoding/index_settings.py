"""Index settings: how an index weighs an encoder's activations, and what it lets a query cost."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Literal

from lexicept.checks import NotNegative, Positive, Share, from_mapping, settings
from lexicept.errors import InputError
from lexicept.storage.files import read_json, write_json
from lexicept.weighting import BM25, Splade, Unchanged, Weighting

FILE = "lexicept.json"
"""The file of an encoder's folder that holds its index settings."""


@settings
class IndexSettings:
    """Weighting of an encoder's activations in an index, and limits on a query's cost. Raises
    InputError for a value out of range."""

    weighting: Literal["bm25", "splade"] = "bm25"
    """bm25 weighs activations as BM25 weighs words, which suits concepts that were trained to
    reconstruct only; splade gives the weights that a head was trained for ranking with."""
    k1: NotNegative = 1.5
    """BM25's k1 (term-frequency saturation)."""
    b: Share = 0.75
    """BM25's b (length normalisation)."""
    k3: Positive = 1.0
    """BM25's k3 (saturation in queries)."""
    query_max_qd_flops: Positive | None = None
    """Limit on a query's QD-FLOPs: the sum, over its dimensions, of the share of documents that
    have each; None for no limit."""

    def weigh(self, pooling: str, query_scale: float) -> Weighting:
        """Return the weighting of pooled activations, for the head's pooling and query scale."""
        if self.weighting == "bm25":
            exponent = 2.0 if pooling == "sqrt_sum" else 1.0
            return BM25(self.k1, self.b, self.k3, exponent, query_scale)
        return Splade(query_scale) if pooling == "max" else Unchanged(query_scale)

    def write(self, folder: Path) -> None:
        write_json(folder / FILE, asdict(self))

    @classmethod
    def read(cls, folder: Path) -> IndexSettings:
        """Read the settings of an encoder's folder. Raise InputError for a missing or damaged file,
        or other settings."""
        if not (folder / FILE).exists():
            raise InputError(f"{FILE} is missing, so an index can't tell how to weigh its vectors")
        return from_mapping(cls, read_json(folder / FILE), source=folder / FILE)
