"""Training of concepts from texts alone, without labels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lexicept.models.backbone import Backbone
from lexicept.models.encoder import Encoder
from lexicept.models.heads.sae import SAEHead
from lexicept.progress import Progress, silent
from lexicept.training.sae.settings import SAESettings
from lexicept.training.sae.trainer import train_sae
from lexicept.vectorizers.concepts import ConceptVectorizer


def train_concepts(
    texts: Sequence[str],
    backbone: Backbone,
    sae: SAESettings,
    checkpoints: Path | None = None,
    progress: Progress = silent,
) -> ConceptVectorizer:
    """Train a sparse autoencoder on the texts' token states; its latents are the concepts.

    Args:
        checkpoints: folder of the checkpoint, from which interrupted training resumes.

    Raises:
        InputError, NotFiniteError: see ``train_on_states``.
    """
    trained = train_sae(backbone, texts, sae, checkpoints, progress)
    return ConceptVectorizer(Encoder.of(backbone, SAEHead.of_concepts(trained)))
