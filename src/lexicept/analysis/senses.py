"""The senses of a word: its occurrences, grouped by the latents that fire on them.

SAE-SPLADE's table 9 shows latents that tell the meanings of 'spring' and 'bank' apart. Here the
occurrences of one word are clustered, so that each group has its latents and its contexts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import pdist, squareform

from lexicept.errors import InputError
from lexicept.vectors import Floats, Integers

MOST = 2000
"""Largest number of occurrences that are clustered; of more, evenly spread ones are taken."""


class Occurrence(NamedTuple):
    """One occurrence of a word."""

    document_id: str
    start: int
    """First and last character + 1 in the document's content."""
    end: int
    active: Mapping[int, float]
    """Activations (above 0) of the latents that fire on it."""


class Telling(NamedTuple):
    """A latent that distinguishes a sense from the others."""

    latent: int
    share: float
    """Share of the sense's occurrences it fires on."""
    elsewhere: float
    """Share of the other occurrences it fires on."""


class Sense(NamedTuple):
    """A group of occurrences."""

    occurrences: tuple[Occurrence, ...]
    """Occurrences, the most typical first."""
    latents: tuple[Telling, ...]
    """Latents that fire more often here than elsewhere, largest difference first."""
    silhouette: float
    """Mean silhouette: near 1 the group is well separated, near 0 it is not."""


def find_senses(occurrences: Sequence[Occurrence], num_senses: int = 5) -> list[Sense]:
    """Cluster the occurrences of one word by the latents that fire on them.

    An occurrence is the vector of its activations × ln(occurrences / those with the latent), which
    drops the latents of the word itself that fire always, normalised to length 1; Ward's method
    joins these vectors. It finds ``num_senses`` groups whenever there are as many different
    vectors: the silhouette (Rousseeuw 1987; Euclidean) says how well separated they are.

    Args:
        occurrences: of one word.
        num_senses: groups, at least 1.

    Returns:
        The largest group first. None without occurrences, and one where all have the same latents.

    Raises:
        InputError: ``num_senses`` below 1.
    """
    if num_senses < 1:
        raise InputError(f"num_senses must be at least 1, not {num_senses}")
    if len(occurrences) > MOST:
        spread = np.linspace(0, len(occurrences) - 1, MOST).astype(int)
        occurrences = [occurrences[i] for i in spread]
    if not occurrences:
        return []
    numbers = sorted({latent for occurrence in occurrences for latent in occurrence.active})
    fires, vectors = _vectors(occurrences, numbers)
    groups = _groups(vectors, num_senses)
    silhouettes = _silhouettes(vectors, groups)
    senses = []
    for group in np.unique(groups):
        inside = groups == group
        share = fires[inside].mean(axis=0)
        elsewhere = fires[~inside].mean(axis=0) if not inside.all() else np.zeros(len(numbers))
        best = np.argsort(elsewhere - share, kind="stable")
        telling = [
            Telling(numbers[i], float(share[i]), float(elsewhere[i]))
            for i in best
            if share[i] > elsewhere[i]
        ]
        members = np.flatnonzero(inside)
        typical = np.argsort(-(vectors[members] @ vectors[members].mean(axis=0)), kind="stable")
        chosen = tuple(occurrences[i] for i in members[typical])
        senses.append(Sense(chosen, tuple(telling), float(silhouettes[inside].mean())))
    return sorted(senses, key=lambda sense: -len(sense.occurrences))


def _vectors(occurrences: Sequence[Occurrence], numbers: Sequence[int]) -> tuple[Floats, Floats]:
    """Return which latents fire (0 or 1) and the unit vectors to cluster, both [n, latents]."""
    column = {latent: i for i, latent in enumerate(numbers)}
    acts = np.zeros((len(occurrences), len(numbers)))
    for row, occurrence in enumerate(occurrences):
        for latent, act in occurrence.active.items():
            acts[row, column[latent]] = act
    fires = (acts > 0).astype(np.float64)
    vectors = acts * np.log(len(occurrences) / fires.sum(axis=0))
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return fires, vectors / np.where(lengths > 0, lengths, 1)


def _groups(vectors: Floats, num_senses: int) -> Integers:
    different = len(np.unique(vectors.round(9), axis=0))
    if min(different, num_senses) == 1:
        return np.ones(len(vectors), np.int64)
    groups: Integers = fcluster(linkage(vectors, "ward"), min(different, num_senses), "maxclust")
    return groups


def _silhouettes(vectors: Floats, groups: Integers) -> Floats:
    """Return (b − a) / max(a, b) of every occurrence; 0 in a group of one and for one group.

    a is the mean distance to the others of the group, b that to the nearest other group.
    """
    distances = squareform(pdist(vectors))
    names, own = np.unique(groups, return_inverse=True)
    sums = np.stack([distances[:, own == group].sum(axis=1) for group in range(names.size)], axis=1)
    sizes = np.bincount(own)
    rows = np.arange(len(vectors))
    a = sums[rows, own] / np.maximum(sizes[own] - 1, 1)
    means = sums / sizes
    means[rows, own] = np.inf
    b = means.min(axis=1)
    apart = (sizes[own] > 1) & np.isfinite(b)
    values = np.where(apart, b, 0) - np.where(apart, a, 0)
    silhouettes: Floats = values / np.where(apart, np.maximum(np.maximum(a, b), 1e-12), 1)
    return silhouettes
