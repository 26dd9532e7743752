"""Time of one RRA re-weighting."""

from __future__ import annotations

from statistics import median

from benchmarks.collections import zipf_collection
from benchmarks.common import Table, interleaved
from lexicept.rra import reweight


def run(
    num_documents: int = 3_633, num_dimensions: int = 30_522, nonzeros: int = 276, rounds: int = 9
) -> list[Table]:
    """Time a synthetic collection of NFCorpus' size under SPLADE: one million non-zeros."""
    X = zipf_collection(num_documents, num_dimensions, nonzeros, seed=0)
    times = interleaved(
        {
            "1 iteration": lambda: reweight(X, alpha=1.25),
            "2 iterations": lambda: reweight(X, alpha=1.25, iterations=2),
        },
        rounds,
    )
    rows = [[name, f"{X.nnz:,}", f"{median(took):.3f} s"] for name, took in times.items()]
    return [Table("rra", ["RRA", "non-zeros", "time"], rows)]
