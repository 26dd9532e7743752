"""The configuration of a training run."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field

from lexicept.encoding.head_settings import Pooling
from lexicept.encoding.sources import DEFAULT_BACKBONE, Dtype
from lexicept.errors import InputError
from lexicept.evaluation.effectiveness import depth_of
from lexicept.storage.files import replace_file
from lexicept.storage.yaml_text import parse_yaml, read_yaml
from lexicept.training.pretraining.head_kinds import HEAD_KINDS, LanguageHead
from lexicept.training.sae.settings import SAESettings
from lexicept.training.settings import (
    Count,
    Flag,
    NotNegative,
    Positive,
    Seed,
    Share,
    Text,
    Whole,
    from_mapping,
    settings,
    to_mapping,
)
from lexicept.vectors import Pruning

E2 = "E2"
"""E² (SAE-SPLADE) as a measure of checkpoints."""

Length = Annotated[Count, Field(ge=8)]
"""Length of cut texts in tokens, special tokens included."""


@settings
class ModelSettings:
    """The encoder to train."""

    start: Text | None = None
    """Saved encoder to start from: a folder or a hub name; null makes an encoder of the settings
    below."""
    backbone: Text = DEFAULT_BACKBONE
    """Backbone: a hub name or a folder."""
    layer: Count | None = None
    """Number of blocks to run; null for the blocks before a pretrained SAE, or all."""
    bidirectional: Flag | None = None
    """Let a decoder's tokens attend to later tokens; null for the saved setting, or true."""
    dtype: Dtype | None = None
    """Type of the backbone's weights, trained and saved; null for the saved type, or float32.
    bfloat16 halves the memory of a frozen backbone, also under adapters."""
    special_tokens: Flag | None = None
    """Treat special tokens, such as [CLS] and [SEP], like any token in SAE training, pooling and
    the saved model (SAE-SPLADE, section 3); null for the saved setting, or false."""
    head: Literal["sae", LanguageHead] = "sae"
    """Head: a sparse autoencoder, pretrained or first trained on the documents (``sae``); the
    backbone's own language head, masked or, for a decoder, causal (``mlm``); a language head over
    whole words, with means over the words' sub-words as rows (``expanded``); or a language head
    with random rows (``random``)."""
    sae: SAESettings = field(default_factory=SAESettings)
    """Training of the SAE for the head ``sae`` without ``pretrained``."""
    sae_input: Literal["states", "transformed"] = "states"
    """Input of the SAE: states after the last block, or these states after the transform of the
    backbone's language head (SAE-SPLADE, Table 2: "+ T")."""
    sae_queries: Flag = False
    """Train the SAE on the training queries too, after the documents."""
    pretrained: Text | None = None
    """Pretrained SAE for the head ``sae``: a folder or a hub name, of any layout of
    ``lexicept.neural.sae_formats``; for several layers, ``layer`` is required."""
    pretrained_width: Count | None = None
    """Number of latents of the pretrained SAE, to choose among several."""
    pretrained_l0: Positive | None = None
    """Active latents per token of the pretrained SAE: among several SAEs of a layer and width, the
    nearest is taken; null for 100."""
    size: Count | None = None
    """Dimensions of the heads ``expanded`` (the documents' most frequent words) and ``random``."""
    initial_active_dims: Count | None = None
    """Mean number of active dimensions per token before training, by an equal shift of all biases;
    null leaves the biases. Without k a head may begin with half of the dimensions active, too many
    for a short training to undo."""
    pooling: Pooling | None = None
    """Pooling of token activations to a text's: max, sum (of logarithms) or sqrt_sum (the root of
    the sum); null for the head's setting, max for a new head."""
    query_k: Whole | None = None
    """Active dimensions per query token; null for the head's setting, 0 for no constraint."""
    document_k: Whole | None = None
    """Active dimensions per document token; null for the head's setting, 0 for no constraint."""
    query_max_active_dims: Count | None = None
    """Largest number of dimensions of a query of the trained model, unused in training; null for
    all."""
    document_max_active_dims: Count | None = None
    """Largest number of dimensions of a document of the trained model; null for all."""
    max_query_tokens: Length | None = None
    """Length at which the trained model cuts queries, special tokens included, as in papers'
    evaluations; null reads whole queries, in windows, or follows ``start``."""
    max_document_tokens: Length | None = None
    """Length at which the trained model cuts documents, also in SAE training; null likewise."""
    pruning: Pruning | None = None
    """Order of a query's dimensions under a limit: the largest ``weight`` or, in an index, the
    largest ``impact``, the weight times the dimension's largest document weight; null for the
    head's setting, weight for a new head."""
    weighting: Literal["splade", "bm25"] = "splade"
    """Weighting of pooled activations in an index: as in training, or by BM25 with idf and length
    normalisation, which training never uses."""
    k1: NotNegative = 1.5
    """BM25's k1 (saturation)."""
    b: Share = 0.75
    """BM25's b (length normalisation), 0 to 1."""
    query_scale: Positive = 1.0
    """Factor on the trained model's query weights beside words; learned with ``loss.words``."""
    trained: Literal["head", "lora", "all"] = "head"
    """Parameters to learn: the head, on cached states of a frozen backbone; the head and low-rank
    adapters of the backbone; or all."""
    freeze_head: Flag = False
    """Train the backbone alone (SPLARE); requires ``trained: lora`` or ``all``."""
    lora_rank: Count = 16
    """Rank r of the adapters, with a factor of 2."""

    def __post_init__(self) -> None:
        if self.pretrained and self.head != "sae":
            raise InputError(f"pretrained requires head: sae, not {self.head!r}")
        if self.freeze_head and self.trained == "head":
            raise InputError("freeze_head requires trained: lora or all; nothing learns otherwise")
        sized = self.head != "sae" and HEAD_KINDS[self.head].dimensions != "subwords"
        if sized and not (self.size or self.start):
            raise InputError(f"size is missing: dimensions of the head {self.head!r}")
        dims = self.initial_active_dims
        if dims is not None and self.head == "sae" and self.sae.has_thresholds:
            raise InputError(
                "initial_active_dims shifts biases and so requires an SAE with k; "
                f"{self.sae.architecture} has thresholds"
            )
        size = self.sae.num_latents if self.head == "sae" else self.size
        if None not in (dims, size) and dims >= size:  # type: ignore[operator]
            raise InputError(f"initial_active_dims must be below {size}, not {dims}")


@settings
class DataSettings:
    """The documents, queries and candidates to train on."""

    corpus: Text = ""
    """Documents: a path or name for ``lexicept build``."""
    queries: Text | None = None
    """Queries with judgements: a BEIR folder or an ir_datasets name; null makes pseudo-queries of
    the documents."""
    split: Text = "train"
    """Split of the judgements."""
    count: Count | None = None
    """Largest number of queries, drawn by the seed; null for all."""
    pseudo_queries: Count = 4
    """Pseudo-queries per document, without ``queries``."""
    lists: Text | None = None
    """File of candidate lists (see ``lexicept data mine``); null mines candidates."""
    mining: Literal["words", "teacher", "both"] = "words"
    """Source of mined candidates: BM25; the teacher's scores of every query and document, for up
    to about a million documents; or both."""
    mining_depth: Count = 100
    """Mined candidates per query and source."""
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
    seed: Seed | None = None
    """Seed of pseudo-queries, held-out queries and documents; null for the optimizer's seed, so
    that trainings with different seeds share no prepared data."""


@settings
class TeacherSettings:
    """Teacher scores of a batch's queries and documents: a weighted sum of a dense model's
    similarity and BM25."""

    dense: Text | None = None
    """Dense model for ``SentenceTransformer``, with embeddings cached on disk."""
    dense_weight: NotNegative = 20.0
    """Weight of the dense similarity; for a cosine, the inverse of a temperature."""
    bm25_weight: NotNegative = 0.0
    """Weight of BM25 over the documents' words."""

    @property
    def scores_all(self) -> bool:
        """True with a source of scores for any query and any document."""
        return bool(self.dense or self.bm25_weight)


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
    in_batch_known: Flag = False
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
    dual: Flag = True
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
    """Sparsity regulariser of queries or documents; see ``lexicept.training.ranking.regularizers``."""

    kind: Literal["flops", "l1", "df_flops"] = "flops"
    """Regulariser: squared mean weights, mean absolute weights, or squared mean weights of frequent
    dimensions."""
    alpha: Annotated[Positive, Field(lt=1)] = 0.1
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
    gradient_checkpointing: Flag = False
    """Compute the backbone's blocks again in the backward pass instead of keeping activations:
    about a third more time, for far less memory."""
    sharded: Flag = False
    """Divide the backbone among the processes of a launcher (FSDP), with gradients and AdamW's
    moments, for a backbone too large for one GPU; a block's weights are gathered while the block
    runs. Requires ``model.trained: lora`` or ``all``. The head is whole in every process."""
    learning_rate: Positive = 1e-3
    """Learning rate after warm-up."""
    warmup_steps: Whole = 30
    """Steps of linear warm-up."""
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    """Decay of the learning rate after warm-up."""
    weight_decay: NotNegative = 0.0
    """AdamW's weight decay, on matrices."""
    max_grad_norm: NotNegative = 1.0
    """Largest norm of the model's gradients; 0 does not clip."""
    bf16: Flag = False
    """Train in mixed precision, on processors with bfloat16."""
    seed: Seed = 0
    """Seed of samples, dropout and adapters, and of the data without ``data.seed``."""


@settings
class ValidationSettings:
    """Retrieval on judged queries during training, which selects the best checkpoint."""

    queries: Text | None = None
    """Queries with judgements: a BEIR folder or an ir_datasets name; null holds training queries
    out."""
    corpus: Text | None = None
    """Documents of ``queries``; null for the training corpus."""
    documents: Count | None = None
    """Largest number of documents: relevant documents, and others drawn by the seed; null for all.
    With a trained backbone, every validation encodes all of these documents."""
    split: Text = "dev"
    """Split of the judgements."""
    count: Count = 500
    """Largest number of queries, drawn by the seed."""
    every: Count = 250
    """Steps between two validations, and two checkpoints."""
    checkpoint: Literal["last", "best"] = "best"
    """Checkpoint to publish: the last, as in the papers, or the best."""
    select: Text = "nDCG@10"
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
    """The configuration of one training run."""

    data: DataSettings = field(default_factory=DataSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    teacher: TeacherSettings = field(default_factory=TeacherSettings)
    loss: LossSettings = field(default_factory=LossSettings)
    query_regularizer: RegularizerSettings = field(default_factory=RegularizerSettings)
    document_regularizer: RegularizerSettings = field(default_factory=RegularizerSettings)
    joint_regularizer: JointSettings = field(default_factory=JointSettings)
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    validation: ValidationSettings = field(default_factory=ValidationSettings)

    @property
    def data_seed(self) -> int:
        """Seed of pseudo-queries, held-out queries and documents."""
        return self.optimizer.seed if self.data.seed is None else self.data.seed

    def __post_init__(self) -> None:
        data, loss, model = self.data, self.loss, self.model
        if not data.corpus:
            raise InputError("data.corpus is missing: the documents to train on")
        if not (loss.kl or loss.margin_mse or loss.in_batch):
            names = "loss.kl, loss.margin_mse, loss.in_batch"
            raise InputError(f"nothing to learn: one of {names} must be above 0")
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
        if self.optimizer.sharded and model.trained == "head":
            raise InputError("optimizer.sharded requires model.trained: lora or all")
        if loss.words and model.weighting == "bm25":
            raise InputError("loss.words requires model.weighting: splade")


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
        source = to_mapping(source)
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
    replace_file(path, yaml.safe_dump(to_mapping(config), sort_keys=False).encode())
