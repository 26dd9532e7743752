"""Settings of a head, and their file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from lexicept.checks import Count, NotNegative, from_mapping, settings
from lexicept.errors import InputError
from lexicept.storage.files import read_json
from lexicept.vectors import Pruning

Pooling = Literal["max", "sum", "sqrt_sum"]
"""Token activations ``a_ij = f(v_ij)`` to a text's weights: ``log1p(max_i a_ij)`` (SPLADE v2),
``Σ_i log1p(a_ij)`` (SPLADE) or ``√(Σ_i a_ij)`` (arXiv 2605.29384)."""


@settings
class HeadSettings:
    """A head's sparsity and pooling, for queries and for documents. Raises InputError for a value
    out of range, or ``double_log`` with another pooling than max."""

    pooling: Pooling = "max"
    """See ``Pooling``."""
    query_k: Count | None = None
    """Active dimensions per query token; None for no constraint."""
    document_k: Count | None = None
    """Active dimensions per document token; None for no constraint."""
    query_max_active_dims: Count | None = None
    """Dimensions kept in a query, the first by ``pruning``; None for all. Unused in training."""
    document_max_active_dims: Count | None = None
    """Dimensions kept in a document, the largest weights; None for all. Not applied in training."""
    query_scale: NotNegative = 1.0
    """Factor on a query's weights, for sums with the scores of other vocabularies."""
    double_log: bool = False
    """True if activations are ``log1p(ReLU(v))`` and so weights ``log1p(log1p(max_i v_ij))``
    (OpenSearch's third generation, arXiv 2504.14839); with max pooling only."""
    pruning: Pruning = "weight"
    """Order in which limits keep a query's dimensions. Impacts are known in an index only: with
    ``impact`` the index prunes queries, not the encoder."""

    def __post_init__(self) -> None:
        if self.double_log and self.pooling != "max":
            raise InputError("double_log goes with max pooling only")

    def k(self, task: str | None) -> int | None:
        """Return the active dimensions per token; None for no constraint."""
        return self.query_k if task == "query" else self.document_k

    def max_active_dims(self, task: str | None) -> int | None:
        """Return the limit of an encoder on a text's dimensions; None (no limit) for an unknown
        task and for queries pruned by impact."""
        query = self.query_max_active_dims if self.pruning == "weight" else None
        return {"query": query, "document": self.document_max_active_dims}.get(task or "")


def read_settings(folder: Path) -> tuple[HeadSettings, dict[str, Any]]:
    """Return a saved head's settings, and all further entries of the configuration. Raises
    InputError for no configuration, or for a setting out of range."""
    path = folder / "config.json"
    config, names = read_json(path, InputError), HeadSettings.__dataclass_fields__
    values = {name: config.pop(name) for name in list(config) if name in names}
    return from_mapping(HeadSettings, values, source=path), config
