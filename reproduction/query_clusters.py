"""Clusters of queries by meaning: k-means over their embeddings."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from lexicept.errors import InputError
from lexicept.progress import Progress, silent
from lexicept.vectors import Floats, Integers

ROWS = 8192
"""Embeddings compared with all centres at once."""

SAMPLE = 256
"""Largest number of embeddings per cluster that centres are learned on."""


FIRST = 10
"""Largest number of embeddings per cluster that centres begin from."""


def query_clusters(
    embeddings: Floats,
    clusters: int,
    seed: int = 0,
    iterations: int = 20,
    progress: Progress = silent,
) -> Integers:
    """Return the cluster of each embedding, by spherical k-means.

    Centres are learned on a sample of at most ``SAMPLE`` embeddings per cluster. They begin as
    embeddings far from each other (k-means++); a centre that no embedding is nearest to moves to
    the embedding that is farthest from its centre. Iteration ends when no embedding changes its
    cluster.

    Args:
        embeddings: [n, d], compared by cosine; may be memory-mapped.
        clusters: number of clusters.
        iterations: most passes over the sample.

    Returns:
        Numbers 0 to clusters − 1 [n].

    Raises:
        InputError: fewer embeddings than clusters, or an iteration or cluster count below 1.
    """
    if clusters < 1 or iterations < 1:
        raise InputError(
            f"clusters and iterations must be at least 1, not {clusters} and {iterations}"
        )
    if len(embeddings) < clusters:
        raise InputError(f"{len(embeddings)} queries can't make {clusters} clusters")
    random = np.random.default_rng(seed)
    size = min(len(embeddings), SAMPLE * clusters)
    rows = np.sort(random.choice(len(embeddings), size, replace=False))
    centres = _first_centres(embeddings, rows, clusters, random)
    before: Integers | None = None
    for done in range(iterations):
        nearest, similarity = _nearest(embeddings, rows, centres)
        progress("clustering", done, iterations)
        if before is not None and np.array_equal(nearest, before):
            break
        centres, before = _centres(embeddings, rows, nearest, similarity, clusters), nearest
    progress("clustering", iterations, iterations)
    return _nearest(embeddings, np.arange(len(embeddings)), centres)[0]


def _first_centres(
    embeddings: Floats, rows: Integers, clusters: int, random: np.random.Generator
) -> Tensor:
    """Draw embeddings, each with a chance that grows with its distance from those before it."""
    some = random.choice(rows, min(len(rows), FIRST * clusters), replace=False)
    points = _unit(embeddings, np.sort(some))
    chosen = [int(random.integers(len(points)))]
    distance = 1 - points @ points[chosen[0]]
    while len(chosen) < clusters:
        chance = distance.double().clamp(min=0).cpu().numpy()
        chance[chosen] = 0
        if not chance.sum():  # the rest are copies
            chance = np.ones(len(points))
            chance[chosen] = 0
        chosen.append(int(random.choice(len(points), p=chance / chance.sum())))
        distance = torch.minimum(distance, 1 - points @ points[chosen[-1]])
    return points[chosen]


def _unit(embeddings: Floats, rows: Integers) -> Tensor:
    device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    values = torch.from_numpy(np.asarray(embeddings[rows], np.float32)).to(device or "cpu")
    return F.normalize(values, dim=1)


def _nearest(embeddings: Floats, rows: Integers, centres: Tensor) -> tuple[Integers, Floats]:
    """Return the centre of the largest cosine of each row, and that cosine."""
    places, cosines = [], []
    for start in range(0, len(rows), ROWS):
        scores = _unit(embeddings, rows[start : start + ROWS]) @ centres.T
        best = scores.max(dim=1)
        places.append(best.indices.cpu().numpy())
        cosines.append(best.values.cpu().numpy())
    return np.concatenate(places), np.concatenate(cosines)


def _centres(
    embeddings: Floats, rows: Integers, nearest: Integers, similarity: Floats, clusters: int
) -> Tensor:
    """Return the mean directions of clusters; an empty one gets the row that is farthest."""
    sums: Tensor | None = None
    for start in range(0, len(rows), ROWS):
        values = _unit(embeddings, rows[start : start + ROWS])
        if sums is None:
            sums = values.new_zeros(clusters, values.shape[1])
        of = torch.from_numpy(nearest[start : start + ROWS]).to(values.device)
        sums.index_add_(0, of, values)
    assert sums is not None
    empty = np.flatnonzero(np.bincount(nearest, minlength=clusters) == 0)
    farthest = np.argsort(similarity, kind="stable")[: len(empty)]
    if len(empty):
        sums[torch.from_numpy(empty).to(sums.device)] = _unit(embeddings, rows[farthest])
    return F.normalize(sums, dim=1)
