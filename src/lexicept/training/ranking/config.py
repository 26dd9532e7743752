"""The configuration of a training run."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from annotated_types import Lt

from lexicept.checks import (
    Count,
    Items,
    NotNegative,
    Positive,
    Seed,
    Share,
    Whole,
    from_mapping,
    settings,
)
from lexicept.errors import InputError
from lexicept.evaluation.effectiveness import depth_of
from lexicept.storage.files import replace_file
from lexicept.storage.yaml_text import parse_yaml, read_yaml
from lexicept.training.own_parts import OR_OWN, OwnLoss, OwnPart
from lexicept.training.ranking.model_settings import Length, ModelSettings

E2 = "E2"
"""E² (SAE-SPLADE) as a measure of checkpoints."""


@settings
class DataSettings:
    """The documents, queries and candidates to train on."""

    corpus: Annotated[str | OwnPart, OR_OWN] = ""
    """Documents: a path or name for ``lexicept build``, or a class of your own, an iterable of
    ``Document``."""
    queries: str | None = None
    """Judged queries: a BEIR folder or an ir_datasets name; null makes queries of the documents."""
    split: str = "train"
    """Split of the judgements."""
    count: Count | None = None
    """Largest number of queries, drawn by the seed; null for all."""
    pseudo_queries: Count = 4
    """Pseudo-queries per document, without ``queries``."""
    lists: str | None = None
    """File of candidate lists (see ``lexicept data mine``); null mines candidates."""
    mining: Literal["words", "teacher"] = "words"
    """Source of mined candidates: BM25, or the teacher's scores of every query and document, for up
    to about a million documents."""
    mining_depth: Count = 100
    """Mined candidates per query."""
    negatives: Whole = 1
    """Candidates drawn from a query's list beside the relevant document, anew in each pass. 0
    compares with other queries' documents only (ESPLADE, equation 1) and mines nothing."""
    positive_share: Share = 1.0
    """Share of samples with a relevant document of the query; the other samples have one more
    candidate, for distillation alone."""
    max_query_tokens: Length = 64
    """Length at which training cuts queries; see also ``model.max_query_tokens``."""
    max_document_tokens: Length = 256
    """Length at which training cuts documents; see also ``model.max_document_tokens``."""
    weight: Positive = 1.0
    """Share of the batches, beside the weights of ``more_data``."""
    seed: Seed | None = None
    """Seed of pseudo-queries, held-out queries and documents; null for the optimizer's seed, so
    that trainings with different seeds share no prepared data."""


@settings
class TeacherSettings:
    """Teacher scores of a batch's queries and documents: a weighted sum of a dense model's
    similarity and BM25."""

    dense: str | None = None
    """Dense model for ``SentenceTransformer``, with embeddings cached on disk."""
    dense_weight: NotNegative = 20.0
    """Weight of the dense similarity; for a cosine, the inverse of a temperature."""
    bm25_weight: NotNegative = 0.0
    """Weight of BM25 over the documents' words."""
    own: OwnPart | None = None
    """A ``candidates.teachers.Teacher`` of your own."""
    own_weight: NotNegative = 1.0
    """Weight of the own teacher's scores."""

    @property
    def scores_all(self) -> bool:
        """True with a source of scores for any query and any document."""
        return bool(self.dense or self.bm25_weight or self.own)


@settings
class LossSettings:
    """The ranking loss, a weighted sum; see ``lexicept.training.ranking.losses``."""

    kl: NotNegative = 1.0
    """Weight of KL distillation from the teacher over the batch's documents or, with scored lists
    and no teacher, over each query's candidates."""
    margin_mse: NotNegative = 0.0
    """Weight of MarginMSE on the candidates of each query with a relevant document."""
    in_batch: NotNegative = 0.0
    """Weight of the softmax of the relevant document against all documents of the batch."""
    own: Items[OwnLoss] = ()
    """Losses of your own: from ``losses.Ranked`` to a number, added by weight."""
    in_batch_known: bool = False
    """Count the batch's further relevant documents as in-batch negatives (ESPLADE, equation 1)."""
    temperature: Positive = 1.0
    """Temperature of the student's scores, before the learnable scale."""
    scale: Positive = 1.0
    """Initial value of the learnable factor on the student's scores (SAE-SPLADE's code)."""
    scale_learning_rate: NotNegative = 0.02
    """Learning rate of the factor; 0 freezes the factor."""
    words: NotNegative = 0.0
    """Initial weight, learnable like the factor, of BM25 in a document's score. Above 0, the head
    complements words."""
    query_top_k: Count | None = None
    """Number of largest query weights in the ranking loss, q_K (ESPLADE); null for all."""
    document_top_k: Count | None = None
    """Number of largest document weights in the ranking loss, d_K; null for all."""
    dual: bool = True
    """With top_k, apply the ranking loss to whole vectors as well as to cut vectors (ESPLADE)."""
    mask_divergence: NotNegative = 0.0
    """Weight of the KL from the whole vectors' ranking to the cut vectors' ranking."""
    reconstruction: NotNegative = 0.0
    """Weight of the SAE's error on the documents' token states. Above 0, the decoder learns too
    (SAE-SPLADE, section 3, found it harmful); the backbone gets no gradient of this loss. Not with
    ``optimizer.mini_batch``."""
    reconstruction_error: Literal["fraction", "squared"] = "fraction"
    """The fraction of variance unexplained, or ‖ĥ − h‖², mean over tokens (SAE-SPLADE, eq. 2)."""


@settings
class JointSettings:
    """Joint FLOPS: a regulariser of dimensions shared by queries and documents (ESPLADE)."""

    weight: NotNegative = 0.0
    """λ at the end of the schedule."""
    schedule: Literal["constant", "linear", "quadratic"] = "quadratic"
    """Growth of λ over T = ``steps`` steps: λ at once, λ·min(1, t/T) or λ·min(1, (t/T)²)."""
    steps: Count = 200
    """Steps of the growth."""

    def weight_at(self, step: int) -> float:
        """Return the weight after ``step`` steps."""
        if self.schedule == "constant":
            return self.weight
        share = min(1.0, step / self.steps)
        return self.weight * (share if self.schedule == "linear" else share**2)


@settings
class RegularizerSettings(JointSettings):
    """Sparsity regulariser of queries or documents; see ``training.ranking.regularizers``."""

    kind: Annotated[Literal["flops", "l1", "df_flops"] | OwnPart, OR_OWN] = "flops"
    """Regulariser: squared mean weights, mean absolute weights, squared mean weights of frequent
    dimensions, or a class of your own, from vectors [n, V] to a number."""
    alpha: Annotated[Positive, Lt(1)] = 0.1
    """α of ``df_flops``: share of texts of a frequent dimension."""
    beta: Positive = 10.0
    """β of ``df_flops``: steepness of the penalty."""
    df_source: Literal["batches", "sample"] = "batches"
    """Texts for the document frequencies: recent batches, or a fixed sample of all queries or
    documents, encoded again every ``df_every`` steps (Porco et al. 2025: the validation texts)."""
    df_texts: Count = 10_000
    """Number of texts: the window over batches, or the size of the sample."""
    df_every: Count = 100
    """Steps between two counts of the sample."""


@settings
class OptimizerSettings:
    """AdamW and its steps."""

    steps: Count = 1000
    """Optimiser steps."""
    batch_size: Count = 32
    """Queries of a batch, in each process."""
    accumulation: Count = 1
    """Batches of a step, with accumulated gradients."""
    mini_batch: Count | None = None
    """Texts through the model at once (gradient caching, for batches larger than memory); null for
    the whole batch."""
    workers: Whole = 0
    """Processes that read and tokenise the next batches during a step, at most one for each core; 0
    for none. The batches are the same."""
    gradient_checkpointing: bool = False
    """Compute the backbone's blocks again in the backward pass instead of keeping activations:
    about a third more time, for far less memory."""
    learning_rate: Positive | None = None
    """Learning rate after warm-up; null for a network's, 2e-5, with ``model.trained: all``, and a
    head's, 1e-3, otherwise."""
    warmup_steps: Whole = 30
    """Steps of linear warm-up."""
    schedule: str = "linear"
    """Decay of the learning rate after warm-up: ``linear``, ``cosine``, ``constant`` or another
    schedule of transformers, with ``trainer.lr_scheduler_kwargs``."""
    weight_decay: NotNegative = 0.0
    """AdamW's weight decay, on matrices."""
    max_grad_norm: NotNegative = 1.0
    """Largest norm of the model's gradients; 0 does not clip."""
    bf16: bool = False
    """Train in mixed precision, on processors with bfloat16."""
    seed: Seed = 0
    """Seed of samples, dropout and adapters, and of the data without ``data.seed``."""


@settings
class ValidationSettings:
    """Retrieval on judged queries during training, which selects the best checkpoint."""

    queries: str | None = None
    """Judged queries: a BEIR folder or an ir_datasets name; null holds training queries out."""
    corpus: str | None = None
    """Documents of ``queries``; null for the training corpus."""
    documents: Count | None = None
    """Largest number of documents: relevant documents, and others drawn by the seed; null for all
    or, with a trained backbone, whose every validation encodes them, as many as a tenth of the
    training reads, at least 500."""
    split: str = "dev"
    """Split of the judgements."""
    count: Count = 500
    """Largest number of queries, drawn by the seed."""
    every: Count | None = None
    """Steps between two validations, and two checkpoints; null for 250 or, if validation would
    take more than a tenth of the training, for more."""
    checkpoint: Literal["last", "best"] = "best"
    """Checkpoint to publish: the last, as in the papers, or the best."""
    select: str = "nDCG@10"
    """Measure of the best checkpoint: a measure of ir_measures, such as ``R@10``, or ``E2``."""
    query_max_active_dims: Count | None = None
    """Largest number of dimensions of a query in validation; null for the model's setting."""
    document_max_active_dims: Count | None = None
    """Largest number of dimensions of a document in validation; null for the model's setting."""

    def __post_init__(self) -> None:
        if self.select not in (E2, "nDCG@10"):
            depth_of(self.select)


@settings
class TrainingConfig:
    """The configuration of one training run.

    ``callbacks`` are classes of ``TrainerCallback``, such as
    ``transformers.EarlyStoppingCallback``. ``trainer`` has further arguments of
    sentence-transformers' trainer by name, such as ``report_to: tensorboard``, ``fp16`` or
    ``optim: adafactor``; see ``arguments.PASSED_ON``.

    ``more_data`` are further collections to learn from. A batch is of one collection, drawn by
    ``data.weight``. An SAE, a vocabulary and held-out queries are of ``data`` alone.
    """

    data: DataSettings = field(default_factory=DataSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    teacher: TeacherSettings = field(default_factory=TeacherSettings)
    loss: LossSettings = field(default_factory=LossSettings)
    query_regularizer: RegularizerSettings = field(default_factory=RegularizerSettings)
    document_regularizer: RegularizerSettings = field(default_factory=RegularizerSettings)
    joint_regularizer: JointSettings = field(default_factory=JointSettings)
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    validation: ValidationSettings = field(default_factory=ValidationSettings)
    more_data: Items[DataSettings] = ()
    callbacks: Items[OwnPart] = ()
    trainer: dict[str, Any] = field(default_factory=dict)

    @property
    def learning_rate(self) -> float:
        """Learning rate after warm-up."""
        return self.optimizer.learning_rate or (2e-5 if self.model.trained == "all" else 1e-3)

    @property
    def collections(self) -> list[TrainingConfig]:
        """The configuration of each collection, alone."""
        return [replace(self, data=data, more_data=()) for data in (self.data, *self.more_data)]

    @property
    def data_seed(self) -> int:
        """Seed of pseudo-queries, held-out queries and documents."""
        return self.optimizer.seed if self.data.seed is None else self.data.seed

    def __post_init__(self) -> None:
        for index, further in enumerate(self.more_data):
            try:
                replace(self, data=further, more_data=())
            except InputError as error:
                raise InputError(f"more_data[{index}]: {error}") from None
        data, loss, model = self.data, self.loss, self.model
        if not data.corpus:
            raise InputError("data.corpus is missing: the documents to train on")
        if not (loss.kl or loss.margin_mse or loss.in_batch or loss.own):
            names = "loss.kl, loss.margin_mse, loss.in_batch"
            raise InputError(f"nothing to learn: one of {names} must be above 0, or loss.own given")
        if loss.margin_mse and not data.negatives:
            raise InputError("loss.margin_mse requires data.negatives of at least 1")
        if loss.kl and not (data.negatives or self.teacher.scores_all):
            needed = "data.negatives of at least 1, or a teacher of the whole batch"
            raise InputError(f"loss.kl requires {needed}")
        if loss.reconstruction and (model.head != "sae" or model.freeze_head):
            needed = "model.head: sae without model.freeze_head"
            raise InputError(f"loss.reconstruction requires an SAE that learns: {needed}")
        if loss.reconstruction and self.optimizer.mini_batch is not None:
            raise InputError("loss.reconstruction does not go with optimizer.mini_batch")
        if loss.words and model.weighting == "bm25":
            raise InputError("loss.words requires model.weighting: splade")
        try:
            json.dumps(asdict(self))
        except TypeError as error:
            raise InputError(f"a setting is no text, number, list or mapping: {error}") from None


ConfigSource = TrainingConfig | Mapping[str, Any] | str | os.PathLike[str]
"""A configuration, nested mappings as in a YAML file, or the path of a YAML file."""


def load_config(source: ConfigSource, changes: Sequence[str] = ()) -> TrainingConfig:
    """Read a configuration.

    Args:
        changes: ``NAME=VALUE`` each, such as ``data.corpus=PATH``, with the value in YAML; a change
            replaces the source's value.

    Raises:
        InputError: no such file, not YAML, an unknown name, with the nearest name, a value of
            another type or out of range, or a malformed change.
    """
    if isinstance(source, TrainingConfig):
        source = asdict(source)
    if isinstance(source, Mapping):
        return _changed(copy.deepcopy(dict(source)), changes)
    mapping = read_yaml(source)
    try:
        return _changed(mapping, changes)
    except ValueError as error:  # an InputError, or a number with more digits than Python prints
        raise InputError(f"{os.fspath(source)}: {error}") from None


def _changed(mapping: Any, changes: Sequence[str]) -> TrainingConfig:
    for assignment in changes:
        name, equals, value = assignment.partition("=")
        if not equals:
            raise InputError(f"{assignment!r} is not of the form data.corpus=PATH")
        *outer, leaf = name.split(".")
        section = mapping
        for key in outer:
            section = section.setdefault(key, {}) if isinstance(section, dict) else None
        if not isinstance(section, dict):
            raise InputError(f"{assignment!r}: there is no mapping {'.'.join(outer)!r}")
        try:
            section[leaf] = parse_yaml(value)
        except InputError as error:
            raise InputError(f"{assignment!r}: {error}") from None
    return from_mapping(TrainingConfig, mapping)


def write_yaml(config: TrainingConfig, path: Path) -> None:
    """Write a configuration atomically, defaults included."""
    replace_file(path, yaml.safe_dump(asdict(config), sort_keys=False).encode())
