"""What a whole collection's frequencies give: weights, pruning, RRA and postings.

Frequencies are the source of truth; all of this derives from them in well under a second per
100,000 documents, and is made anew by every change of the collection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from lexicept import rra
from lexicept.engines import ExactEngine
from lexicept.errors import IndexFormatError, InputError
from lexicept.storage import load_array, save_array
from lexicept.vectors import Floats, largest_weights, prune_rows, stack_columns
from lexicept.weighting import Weighting, from_settings


@dataclass(frozen=True)
class VocabularySettings:
    """How one vocabulary's frequencies become weights."""

    weighting: Weighting
    query_max_active_dims: int | None = None
    """Dimensions left in a query, those with the largest possible impact; None keeps all."""
    document_max_active_dims: int | None = None
    """Dimensions left in a document, those with the largest weights; None keeps all."""

    def __post_init__(self) -> None:
        for limit in (self.query_max_active_dims, self.document_max_active_dims):
            if limit is not None and (type(limit) is not int or limit < 1):
                raise InputError(f"max_active_dims must be at least 1 or none, not {limit!r:.40}")

    def to_json(self) -> dict[str, Any]:
        return {
            "weighting": self.weighting.settings(),
            "query_max_active_dims": self.query_max_active_dims,
            "document_max_active_dims": self.document_max_active_dims,
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> VocabularySettings:
        return cls(
            from_settings(content["weighting"]),
            content["query_max_active_dims"],
            content["document_max_active_dims"],
        )


@dataclass(frozen=True)
class RRASettings:
    """Arguments of ``rra.reweight`` for a whole index."""

    alpha: float = 1.0
    iterations: int = 1
    transform: str = "1+x"


@dataclass(frozen=True)
class Derived:
    """What the frequencies of a whole collection give: the engine and the query side's numbers."""

    engine: ExactEngine
    bounds: Floats
    """The largest document weight of every dimension [V]: what a query's weight can be worth."""
    background: Floats
    """RRA's query factors on the document offsets [V]; zeros without RRA."""

    @classmethod
    def compute(
        cls,
        frequencies: Sequence[sp.csr_array],
        settings: Sequence[VocabularySettings],
        rra_settings: RRASettings | None,
    ) -> Derived:
        """Frequencies [N, V_i] of each vocabulary → weights → pruning → RRA → postings."""
        weights = []
        for matrix, setting in zip(frequencies, settings, strict=True):
            weighted = setting.weighting.documents(matrix)
            if setting.document_max_active_dims is not None:
                weighted = prune_rows(weighted, setting.document_max_active_dims)
            weights.append(weighted)
        return cls.reweighted(stack_columns(weights), rra_settings)

    @classmethod
    def reweighted(cls, weights: sp.csr_array, rra_settings: RRASettings | None) -> Derived:
        """The same from document weights [N, V]."""
        bounds = largest_weights(weights)
        if rra_settings is None:
            background = np.zeros(weights.shape[1], np.float32)
            return cls(ExactEngine.build(weights), bounds, background)
        result = rra.reweight(
            weights,
            alpha=rra_settings.alpha,
            iterations=rra_settings.iterations,
            transform=rra_settings.transform,
        )
        # A speaker with nothing to say tells a document well: RRA would rank empty ones high.
        offsets = np.where(np.diff(weights.indptr) > 0, result.offsets, 0)
        engine = ExactEngine.build(result.weights, offsets)
        return cls(engine, bounds, result.background.astype(np.float32))

    def save(self, folder: Path) -> None:
        folder.mkdir()
        self.engine.save(folder)
        save_array(folder / "bounds.npy", self.bounds.astype(np.float32))
        save_array(folder / "background.npy", self.background)

    @classmethod
    def load(cls, folder: Path) -> Derived:
        engine = ExactEngine.open(folder)
        bounds = load_array(folder / "bounds.npy", np.float32)
        background = load_array(folder / "background.npy", np.float32)
        if not bounds.size == background.size == engine.num_dimensions:
            raise IndexFormatError(f"{folder}: arrays of different numbers of dimensions")
        return cls(engine, bounds, background)
