"""Names of a model's latents that still hold after its SAE was trained further."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F

from lexicept.explanation.contributions import unnamed
from lexicept.index.atlas import SOURCES, Findings, unique_labels
from lexicept.interpretation.word_labels import SIGNIFICANT
from lexicept.vectors import row_numbers

ITSELF = 0.8
"""Smallest cosine of the encoder rows of one latent, before and after."""


def names_for(
    found: Findings, known: Sequence[str], before: torch.Tensor, after: torch.Tensor
) -> Findings:
    """Return findings with the known names of latents that changed little and can't be described.

    A latent that was described has the name that describes it in this collection, or none where
    its documents share no word. One that fires too little for a description, on no word more
    than by chance, keeps its known name if the cosine of its encoder rows before and after the
    training is at least ``ITSELF``.

    Args:
        found: what ``describe`` found out about the M latents.
        known: the names of the model's latents.
        before: the model's encoder rows, latent by latent.
        after: the encoder rows of the M latents [M, d]; latents beyond the model's are new.
    """
    size = min(len(before), len(after))
    cosines = F.cosine_similarity(before[:size].float(), after[:size].float(), dim=1)
    seen = np.zeros(len(found.labels), bool)
    seen[row_numbers(found.log_odds)[found.log_odds.data >= SIGNIFICANT]] = True
    labels, sources = list(found.labels), found.sources.copy()
    kept = []
    for latent in torch.nonzero(cosines >= ITSELF).ravel().tolist():
        nameless = SOURCES[sources[latent]] == "none"
        if nameless and not seen[latent] and known[latent] != unnamed(latent):
            labels[latent], sources[latent] = known[latent], SOURCES.index("words")
            kept.append(latent)
    return replace(found, labels=unique_labels(labels, kept), sources=sources)
