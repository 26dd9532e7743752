"""Adaptation of a concept model to one collection, from its documents alone."""

from __future__ import annotations

from pathlib import Path

from lexicept.models.encoder import Encoder
from lexicept.models.loading import DEFAULT_BACKBONE
from lexicept.progress import Progress, silent
from lexicept.storage.files import move, sync_folder
from lexicept.training.config import (
    DataSettings,
    LossSettings,
    ModelSettings,
    OptimizerSettings,
    RegularizerSettings,
    TeacherSettings,
    TrainingConfig,
    ValidationSettings,
)
from lexicept.training.run import train

QUERIES = 8000
"""Largest number of pseudo-queries, drawn from those of all documents."""

STEPS = 200
"""Optimiser steps, on the head alone."""


def adapt(encoder: Encoder, corpus: str, folder: Path, progress: Progress = silent) -> Encoder:
    """Continue training an encoder's head on pseudo-queries of a corpus, with the cosines of
    ``DEFAULT_BACKBONE`` and BM25 as teachers. Calling it again resumes an interrupted run.

    The backbone, the weighting, pruning and the scale beside words stay as they are.

    Args:
        corpus: a path or name that ``corpora.read_documents`` reads.
        folder: the folder of the run.

    Raises:
        InputError: a corpus that no pseudo-queries can be made of.
    """
    model = folder / "run" / "model"
    if not model.exists():
        start = folder / "start"
        if not start.exists():
            encoder.save(str(folder / "unfinished"), create_model_card=False)
            sync_folder(folder / "unfinished")
            move(folder / "unfinished", start)
        train(_config(encoder, str(start), corpus), folder / "run", progress)
    return Encoder.load(model)


def _config(encoder: Encoder, start: str, corpus: str) -> TrainingConfig:
    settings = encoder.index_settings
    flops = RegularizerSettings("flops", 0.02, "quadratic", 100)
    return TrainingConfig(
        data=DataSettings(
            corpus=corpus,
            pseudo_queries=2,
            count=QUERIES,
            mining="teacher",
            mining_depth=40,
            negatives=2,
            positive_share=0.3,
            max_query_tokens=48,
            max_document_tokens=128,
        ),
        model=ModelSettings(
            start=start,
            weighting=settings.weighting,
            k1=settings.k1,
            b=settings.b,
            query_scale=encoder.head.settings.query_scale,
        ),
        teacher=TeacherSettings(DEFAULT_BACKBONE, 20.0, 0.5),
        loss=LossSettings(kl=1.0, scale=0.4),
        query_regularizer=flops,
        document_regularizer=flops,
        optimizer=OptimizerSettings(steps=STEPS, bf16=True),
        validation=ValidationSettings(count=300, every=100),
    )
