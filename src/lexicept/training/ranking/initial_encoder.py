"""The encoder at the start of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

import torch
from accelerate import PartialState
from torch import Tensor
from torch.utils.data import ConcatDataset

from lexicept.candidates.teachers import Teacher
from lexicept.errors import InputError
from lexicept.neural.backbones.backbone import Backbone
from lexicept.neural.backbones.blocks import check_checkpointing, checkpoint_blocks
from lexicept.neural.backbones.lora import add_adapters
from lexicept.neural.converters.reading import check_backbone, open_encoder
from lexicept.neural.encoders.encoder import Encoder
from lexicept.neural.heads.base import Head
from lexicept.neural.heads.language import language_head
from lexicept.neural.heads.sae import SAEHead
from lexicept.neural.heads.vocabulary import VocabularyHead
from lexicept.neural.sae.cached_states import cached_reader
from lexicept.neural.sae.states import origin_of
from lexicept.neural.sae_formats.pretrained import USUAL_L0, find_pretrained_sae
from lexicept.training.own_parts import OwnPart
from lexicept.training.pretraining.head_kinds import MASKINGS, LanguageHead, new_head
from lexicept.training.pretraining.word_vocabulary import expanded_words
from lexicept.training.ranking.collection import RunFolder
from lexicept.training.ranking.config import TrainingConfig
from lexicept.training.ranking.data import TrainingData
from lexicept.training.ranking.model_settings import ModelSettings
from lexicept.training.ranking.neural_teachers import check_dense
from lexicept.training.sae.trainer import train_on_states, train_sae

CALIBRATION_TOKENS = 1000
"""Number of tokens in the sample for initial biases."""

_HEAD_SETTINGS = (
    "query_k",
    "document_k",
    "pooling",
    "query_max_active_dims",
    "document_max_active_dims",
    "pruning",
)
"""Settings of the head that a configuration may change."""


class Loaded(NamedTuple):
    """The models of a run, loaded before the data are read."""

    backbone: Backbone
    head: Head | None = None
    """Pretrained SAE or language head; None for an SAE that the run trains."""
    inner: VocabularyHead | None = None
    """Language head with the transform before the SAE; see ``sae_input``."""
    start: Encoder | None = None
    """Saved encoder of this backbone and head."""


def load_models(config: TrainingConfig) -> Loaded:
    """Load every model of a configuration, so that errors come before minutes of work on data.
    Raises InputError for a model that can't be loaded, or settings that do not fit the model."""
    settings = config.model
    loaded = _load_start(settings) if settings.start is not None else _load_parts(config)
    backbone = loaded.backbone
    backbone.cut(
        settings.max_query_tokens or backbone.max_query_tokens,
        settings.max_document_tokens or backbone.max_document_tokens,
    )
    if config.optimizer.gradient_checkpointing and settings.trained != "head":
        check_checkpointing(backbone)
    if config.teacher.dense is not None:
        check_dense(config.teacher.dense)
    if config.teacher.own is not None:
        config.teacher.own.make(Teacher)
    return loaded


def _load_start(settings: ModelSettings) -> Loaded:
    assert settings.start is not None
    encoder = open_encoder(settings.start)
    if settings.dtype is not None:
        encoder.backbone.model.to(getattr(torch, settings.dtype))
    for name in ("special_tokens", "bidirectional"):
        saved, wanted = getattr(encoder.backbone, name), getattr(settings, name)
        if wanted not in (None, saved):
            raise InputError(f"model.{name}: {settings.start} was saved with {saved}")
    return Loaded(encoder.backbone, encoder.head, start=encoder)


def _load_parts(config: TrainingConfig) -> Loaded:
    settings, pretrained = config.model, None
    if isinstance(settings.head, OwnPart):
        backbone, head = _load_backbone(settings, settings.layer), settings.head.make(Head)
        Encoder.of(backbone, head)  # refuses another size of states
        return Loaded(backbone, head)
    check_backbone(settings.backbone, own_head=settings.head != "sae")
    layer = settings.layer
    if settings.pretrained is not None:
        pretrained = find_pretrained_sae(
            settings.pretrained,
            layer,
            settings.pretrained_width,
            l0=settings.pretrained_l0 or USUAL_L0,
        )
        layer = layer or pretrained.layer
    backbone = _load_backbone(settings, layer)
    if pretrained is not None:
        return Loaded(backbone, SAEHead(pretrained.load(backbone=backbone)))
    if settings.head != "sae":
        return Loaded(backbone, language_head(settings.backbone))
    if settings.sae_input == "states":
        return Loaded(backbone)
    inner = language_head(settings.backbone)
    if inner.rows.shape[1] != inner.d_in:
        raise InputError(
            f"sae_input: {settings.backbone} transforms states of size {inner.d_in} to "
            f"{inner.rows.shape[1]}, and an SAE has one size"
        )
    return Loaded(backbone, inner=inner)


def _load_backbone(settings: ModelSettings, layer: int | None) -> Backbone:
    return Backbone.from_pretrained(
        settings.backbone,
        layer,
        bidirectional=settings.bidirectional,
        dtype=settings.dtype,
        special_tokens=settings.special_tokens,
    )


def initial_encoder(run: RunFolder, data: TrainingData, loaded: Loaded) -> Encoder:
    """Return the encoder to train; an SAE may be trained first. Raises InputError for settings that
    do not fit the models."""
    settings = run.config.model
    if loaded.start is not None:
        encoder = loaded.start
    elif loaded.head is None:
        encoder = Encoder.of(loaded.backbone, _sae_head(run, loaded.backbone, loaded.inner, data))
    elif isinstance(loaded.head, VocabularyHead) and settings.head in [*MASKINGS]:
        encoder = Encoder.of(loaded.backbone, _language_head(run, loaded, loaded.head, data))
    else:
        encoder = Encoder.of(loaded.backbone, loaded.head)
    backbone, head = encoder.backbone, encoder.head
    weighting = {name: getattr(settings, name) for name in ("weighting", "k1", "b")}
    encoder.index_settings = replace(encoder.index_settings, **weighting)
    # Training starts from a query scale of 1, and may learn another.
    changes: dict[str, Any] = {"query_scale": 1.0}
    for name in _HEAD_SETTINGS:
        if (value := getattr(settings, name)) is not None:
            changes[name] = value or None  # a k of 0 is no constraint
    head.configure(**changes)
    if settings.initial_active_dims is not None:
        head.calibrate(_sample_states(backbone, data.documents), settings.initial_active_dims)
    return encoder


def _sae_head(
    run: RunFolder, backbone: Backbone, inner: VocabularyHead | None, data: TrainingData
) -> Head:
    """Train an SAE on the run's texts; return a head over the SAE."""
    settings = run.config.model
    transform = None if inner is None else inner.transform
    names = ["documents", "queries"] if settings.sae_queries else ["documents"]
    texts = [getattr(data, name) for name in names]
    folder = run.prepared / "sae"
    # The first process trains, and the others read its last checkpoint.
    with PartialState().main_process_first():
        if settings.trained != "head":
            all_texts = cast(Sequence[str], ConcatDataset(texts))
            sae = train_sae(
                backbone, all_texts, settings.sae, folder, run.progress, transform=transform
            )
            return SAEHead(sae, inner=inner)
        # The cached states serve the SAE and the head.
        caches = [run.states(backbone, side, name) for side, name in zip(texts, names, strict=True)]
        device = backbone.model.device
        reader, count = cached_reader(caches, device, transform), sum(map(len, texts))
        sae = train_on_states(reader, count, settings.sae, folder, run.progress, device=device)
        sae.origin = origin_of(backbone, transformed=inner is not None)
        return SAEHead(sae, inner=inner)


def _language_head(
    run: RunFolder, loaded: Loaded, own_head: VocabularyHead, data: TrainingData
) -> Head:
    """Return the backbone's own language head or a new head of the configured kind."""
    settings, size = run.config.model, run.config.model.size or 0
    terms, subwords = own_head.terms, None
    if settings.head == "random":
        terms = [f"#{dimension}" for dimension in range(size)]
    elif settings.head == "expanded":
        terms, subwords = expanded_words(data.documents, loaded.backbone.tokenizer, size)
    kind = cast(LanguageHead, settings.head)
    return new_head(kind, own_head, terms, subwords, run.config.optimizer.seed)


def _sample_states(backbone: Backbone, texts: Sequence[str]) -> Tensor:
    """Return states of about ``CALIBRATION_TOKENS`` tokens of the first texts [n, d]."""
    sample: list[Tensor] = []
    for text in texts:
        sample += (states for _, states in backbone.token_states(backbone.windows([text])))
        if sum(map(len, sample)) >= CALIBRATION_TOKENS:
            break
    return torch.cat(sample)[:CALIBRATION_TOKENS]


def set_trainable(encoder: Encoder, config: TrainingConfig) -> None:
    """Choose the parameters to learn: the head's, adapters of the backbone, or the backbone's; an
    SAE's decoder with the reconstruction loss."""
    settings = config.model
    backbone, head = encoder.backbone, encoder.head
    backbone.requires_grad_(settings.trained == "all")
    if settings.trained == "lora":
        backbone.model = add_adapters(backbone.model, backbone.source, settings.lora_rank)
    if config.optimizer.gradient_checkpointing and settings.trained != "head":
        checkpoint_blocks(backbone)
    head.requires_grad_(not settings.freeze_head)
    head.freeze_unused(decoder=not config.loss.reconstruction)
    if head.autoencoder is not None and settings.trained != "head":
        head.autoencoder.origin.pop("model", None)  # a trained backbone is another model
