"""The configuration of a training run: frozen dataclasses, read from YAML."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from reprlib import repr as shown
from typing import Any, Literal

import yaml

from lexicept.errors import InputError
from lexicept.models.backbone import DEFAULT_BACKBONE
from lexicept.models.sae.pretrained import USUAL_L0
from lexicept.training.sae.settings import SAESettings

DEEPEST = 100
"""Brackets of a configuration that are open at once."""


@dataclass(frozen=True)
class ModelSettings:
    """The encoder that is trained."""

    start: str | None = None
    """A saved encoder to start from; without one it is made as the fields below say."""
    backbone: str = DEFAULT_BACKBONE
    """A hub name or a folder."""
    layer: int | None = None
    """Blocks to run; by default those before a pretrained SAE, or all."""
    bidirectional: bool | None = None
    """Whether a decoder's tokens attend to those after them; null for what the backbone was saved
    with, and yes for any other."""
    dtype: Literal["float32", "bfloat16", "float16"] | None = None
    """Of the backbone's weights; null for what it was saved with, and float32 for any other. A
    frozen backbone, or one under adapters, takes half the memory in bfloat16."""
    head: Literal["sae", "mlm", "expanded", "random"] = "sae"
    """A sparse autoencoder, pretrained or trained on the documents first; the backbone's own
    language head, masked or, of a decoder, causal; one whose rows are means over words' pieces; or
    one with random rows."""
    sae: SAESettings = field(default_factory=SAESettings)
    """For the head ``sae`` where none is pretrained."""
    sae_input: Literal["states", "transformed"] = "states"
    """What it reads: states after the last block, or what the backbone's language head makes of
    them before its rows (SAE-SPLADE, Table 2: "+ T")."""
    sae_queries: bool = False
    """Whether it is trained on the training queries too, after the documents."""
    pretrained: str | None = None
    """A pretrained SAE for the head ``sae``: a folder or a hub's name, of any layout that
    ``lexicept.models.sae.formats`` knows; with ``layer`` where it holds those of several."""
    pretrained_width: int | None = None
    """Its latents, where there are several."""
    pretrained_l0: float = USUAL_L0
    """Of several of a layer and width, that with about so many active latents per token."""
    pretrained_scale: Literal["raw", "normalised"] | None = None
    """Its activations: on raw states, as by default, or s times as large where it was trained on
    s·h. What lexicept saved keeps its scale."""
    size: int | None = None
    """Dimensions of the heads ``expanded`` (the most frequent words of the documents) and
    ``random``."""
    initial_active_dims: int | None = None
    """Biases are shifted alike before training so that so many dimensions of a token are active on
    average. A head without a constraint on k may begin with half of its dimensions active, which
    takes more than a short training to undo. Null leaves them."""
    query: Literal["encoder", "lookup"] | None = None
    """What encodes queries: the encoder, or without inference a weight per sub-word or word, its
    idf at first, learned with the head. Null for what ``start`` has, the encoder by default."""
    pooling: Literal["max", "sum"] | None = None
    """How tokens become a text; the head's own by default, max for a new one."""
    query_k: int | None = None
    """Active dimensions per query token; null for the head's own, 0 for no constraint."""
    document_k: int | None = None
    """Active dimensions per document token; null for the head's own, 0 for no constraint."""
    query_max_active_dims: int | None = None
    """Dimensions left in a query of the trained model, not while it is trained; null keeps all."""
    document_max_active_dims: int | None = None
    """The same for a document."""
    weighting: Literal["splade", "bm25"] = "splade"
    """How an index weighs the trained activations: as they are pooled, or as BM25 weighs words,
    with its idf and length normalisation. Training itself always sees the pooled ones."""
    k1: float = 1.5
    """Of the weighting BM25."""
    b: float = 0.75
    """Of the weighting BM25."""
    query_scale: float = 1.0
    """A factor on the query weights of the trained model, beside words; ``loss.words`` learns it
    instead."""
    trained: Literal["head", "lora", "all"] = "head"
    """The head alone, on cached states of a frozen backbone; the head and low-rank adapters of
    the backbone; or everything."""
    freeze_head: bool = False
    """With ``lora`` or ``all``: the backbone alone learns (SPLARE)."""
    lora_rank: int = 16
    """Rank r of the adapters."""
    lora_alpha: int | None = None
    """What adapters add counts alpha / r; null for twice the rank."""


@dataclass(frozen=True)
class DataSettings:
    """What it is trained on."""

    corpus: str = ""
    """Documents: whatever ``lexicept build`` reads."""
    queries: str | None = None
    """A BEIR folder or an ir_datasets name with queries and judgements. Without one,
    pseudo-queries are made of the documents."""
    split: str = "train"
    """Which judgements of ``queries``."""
    count: int | None = None
    """Queries at most, drawn with the seed; null takes all."""
    pseudo_queries: int = 4
    """Pseudo-queries per document, where there are no others."""
    lists: str | None = None
    """A file of candidate lists (see ``lexicept data mine``); mined where there is none."""
    mining: Literal["words", "teacher"] = "words"
    """Who mines: BM25, or the teacher, which scores every query with every document and so suits
    collections of up to about a million."""
    mining_depth: int = 100
    """Candidates per query, where they are mined."""
    negatives: int = 1
    """Candidates drawn from a query's list besides its relevant document, anew each time."""
    positive_share: float = 1.0
    """Share of samples that hold their query's relevant document; the others have one more
    candidate instead, from which only a teacher can be learned."""
    max_query_tokens: int = 64
    """Longer queries are cut in training."""
    max_document_tokens: int = 256
    """Longer documents are cut in training."""


@dataclass(frozen=True)
class TeacherSettings:
    """Scores for every query and document of a batch: a dense model's similarity and BM25."""

    dense: str | None = None
    """A model for ``SentenceTransformer``; its embeddings are cached on disk."""
    dense_weight: float = 20.0
    """Of its similarity; for a cosine, the inverse of a temperature."""
    bm25_weight: float = 0.0
    """Of BM25 over the words of the documents."""


@dataclass(frozen=True)
class LossSettings:
    """The ranking loss: a weighted sum; see ``lexicept.training.losses``."""

    kl: float = 1.0
    """KL distillation of the teacher over the batch's documents, or, with scored lists and no
    teacher, over each query's candidates."""
    margin_mse: float = 0.0
    """MarginMSE on the candidates of each query that has its relevant document."""
    in_batch: float = 0.0
    """Softmax of the relevant document against all documents of the batch."""
    temperature: float = 1.0
    """Of the student's scores, before the learnable scale."""
    teacher_temperature: float = 1.0
    """Of the teacher's scores in KL."""
    scale: float = 1.0
    """The learnable factor on the student's scores at the start (SAE-SPLADE's code)."""
    scale_learning_rate: float = 0.02
    """Its own; 0 keeps the factor as it is."""
    words: float = 0.0
    """Above 0: a document's score is the student's and this times BM25's, so that the head
    learns what words miss; learnable with the factor."""
    query_top_k: int | None = None
    """q_K: the ranking loss sees only the largest weights of a query (ESPLADE)."""
    document_top_k: int | None = None
    """d_K: the same for a document."""
    dual: bool = True
    """With top_k: the ranking loss counts on masked and on whole vectors (ESPLADE)."""
    mask_divergence: float = 0.0
    """With top_k: weight of the KL from the whole vectors' ranking to the masked ones'."""
    reconstruction: float = 0.0
    """Above 0: an SAE learns to reconstruct the documents' tokens as well as to rank, and its
    decoder learns too (SAE-SPLADE, section 3, which found it harmful); weight of the fraction of
    variance unexplained, which has no gradient of the backbone."""


@dataclass(frozen=True)
class RegularizerSettings:
    """What keeps one side's vectors sparse; see ``lexicept.training.regularizers``."""

    kind: Literal["flops", "l1", "df_flops"] = "flops"
    """Squared mean weights, mean absolute weights, or squared mean weights of the dimensions that
    are frequent."""
    weight: float = 0.0
    """λ at the end of its schedule."""
    schedule: Literal["constant", "linear", "quadratic"] = "quadratic"
    """How λ grows."""
    steps: int = 200
    """Steps until λ is whole."""
    anti_zero: float = 0.0
    """Weight of what keeps vectors from becoming all zero."""


@dataclass(frozen=True)
class JointSettings:
    """Joint FLOPS: what queries and documents share (ESPLADE)."""

    weight: float = 0.0
    """λ at the end of its schedule."""
    schedule: Literal["constant", "linear", "quadratic"] = "quadratic"
    """How λ grows."""
    steps: int = 200
    """Steps until λ is whole."""


@dataclass(frozen=True)
class OptimizerSettings:
    """AdamW and the steps it takes."""

    steps: int = 1000
    """Of the optimiser."""
    batch_size: int = 32
    """Queries of a step and process."""
    accumulation: int = 1
    """Batches whose gradients are added up for one step."""
    mini_batch: int | None = None
    """Texts that go through the model at once: gradient caching, for batches larger than
    memory. Null takes the whole batch."""
    learning_rate: float = 1e-3
    """After warm-up."""
    warmup_steps: int = 30
    """Steps of linear warm-up."""
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    """The learning rate after warm-up."""
    weight_decay: float = 0.0
    """Of AdamW, on matrices."""
    max_grad_norm: float = 1.0
    """The model's gradients are clipped to this norm; 0 leaves them."""
    bf16: bool = False
    """Mixed precision, where the processor has it."""
    seed: int = 0
    """Of samples, dropout, adapters, pseudo-queries and what is held out."""


@dataclass(frozen=True)
class ValidationSettings:
    """Retrieval on judged queries while training, and which checkpoint is the best."""

    queries: str | None = None
    """A BEIR folder or ir_datasets name; without one, pseudo-queries left out of training."""
    corpus: str | None = None
    """Its documents; the training corpus by default."""
    documents: int | None = None
    """So many of them at most: the relevant ones, and others drawn with the seed. Where the
    backbone learns, every validation encodes them all again. Null takes all."""
    split: str = "dev"
    """Which judgements of ``queries``."""
    count: int = 500
    """Queries at most, drawn with the seed."""
    every: int = 250
    """Steps between two validations, and two checkpoints."""
    select: Literal["ndcg", "e2"] = "ndcg"
    """The best checkpoint: by nDCG@10 within ``max_qd_flops``, or by E²."""
    max_qd_flops: float | None = None
    """A budget: within it nDCG@10 decides, above it the nearest to it wins."""
    query_max_active_dims: int | None = None
    """Pruning while validating; the model's own by default."""
    document_max_active_dims: int | None = None
    """The same for documents."""
    patience: int | None = None
    """Validations without a better one after which training stops; null never stops."""


SHORTEST = 8
"""Tokens that a text may be cut to in training."""

_MAY_BE_ZERO = {
    *("positive_share", "query_k", "document_k", "dense_weight", "bm25_weight"),
    *("kl", "margin_mse", "in_batch", "mask_divergence", "words", "scale_learning_rate"),
    "reconstruction",
    *("weight", "anti_zero", "warmup_steps", "weight_decay", "max_grad_norm", "seed"),
    *("max_qd_flops", "k1", "b"),
}
"""All other numbers of a configuration are above 0."""


@dataclass(frozen=True)
class TrainingConfig:
    """One training run."""

    data: DataSettings = field(default_factory=DataSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    teacher: TeacherSettings = field(default_factory=TeacherSettings)
    loss: LossSettings = field(default_factory=LossSettings)
    query_regularizer: RegularizerSettings = field(default_factory=RegularizerSettings)
    document_regularizer: RegularizerSettings = field(default_factory=RegularizerSettings)
    joint_regularizer: JointSettings = field(default_factory=JointSettings)
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    validation: ValidationSettings = field(default_factory=ValidationSettings)

    def __post_init__(self) -> None:
        if not self.data.corpus:
            raise InputError("data.corpus is missing: where the documents are")
        for section, values in to_mapping(self).items():
            for name, value in values.items():
                zero = name in _MAY_BE_ZERO
                if type(value) in (int, float) and not (value > 0 or (zero and value == 0)):
                    lowest = "at least" if zero else "above"
                    raise InputError(f"{section}.{name} must be {lowest} 0, not {value}")
        for name in ("max_query_tokens", "max_document_tokens"):
            if getattr(self.data, name) < SHORTEST:
                raise InputError(f"data.{name} must be at least {SHORTEST}: special tokens count")
        if not self.data.positive_share <= 1:
            raise InputError(f"data.positive_share is 1 at most, not {self.data.positive_share}")
        if not self.optimizer.seed < 2**32:
            raise InputError(f"optimizer.seed must be below 2**32, not {self.optimizer.seed}")
        if self.model.pretrained and self.model.head != "sae":
            raise InputError(f"model.pretrained is an SAE, and model.head {self.model.head!r}")
        if self.model.freeze_head and self.model.trained == "head":
            raise InputError("nothing to learn: model.freeze_head needs model.trained: lora or all")
        if self.loss.reconstruction and (self.model.head != "sae" or self.model.freeze_head):
            raise InputError(
                "loss.reconstruction is of an SAE that learns: model.head sae, not frozen"
            )
        if self.loss.words and self.model.weighting == "bm25":
            raise InputError("loss.words learns how much splade weights are worth beside BM25's")
        if not (self.loss.kl or self.loss.margin_mse or self.loss.in_batch):
            raise InputError("nothing to learn: one of loss.kl, margin_mse, in_batch is above 0")
        self._check_first_dims()
        if self.model.head in ("expanded", "random") and not (self.model.size or self.model.start):
            raise InputError(f"model.size is missing: dimensions of the head {self.model.head!r}")

    def _check_first_dims(self) -> None:
        model, dims = self.model, self.model.initial_active_dims
        if dims is None:
            return
        if model.head == "sae" and model.sae.architecture not in (
            "topk",
            "hierarchical",
            "matryoshka",
        ):
            raise InputError("model.initial_active_dims shifts biases; this SAE has thresholds")
        size = model.sae.num_latents if model.head == "sae" else model.size
        if size is not None and dims >= size:
            raise InputError(f"model.initial_active_dims must be below {size}, not {dims}")


def load_config(path: str | Path, changes: Sequence[str] = ()) -> TrainingConfig:
    """Read a YAML file.

    Args:
        changes: values that take the place of the file's, ``data.corpus=PATH`` say, as YAML.

    Raises:
        InputError: no such file, not YAML, a key or value that is not known, with the nearest
            name that is, or a change of another form.
    """
    try:
        content = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8: {error.reason}") from None
    try:
        values = _yaml(content)
        for assignment in changes:
            _change(values, assignment)
        return typing.cast(TrainingConfig, from_mapping(TrainingConfig, values))
    except ValueError as error:  # ours, or a number with more digits than Python prints
        raise InputError(f"{path}: {error}") from None


def _change(content: Any, assignment: str) -> None:
    name, equals, value = assignment.partition("=")
    if not equals:
        raise InputError(f"{assignment!r} is not of the form data.corpus=PATH")
    *outer, last = name.split(".")
    place = content
    for key in outer:
        place = place.setdefault(key, {}) if isinstance(place, dict) else None
    if not isinstance(place, dict):
        raise InputError(f"{assignment!r}: there is no mapping {'.'.join(outer)!r}")
    try:
        place[last] = _yaml(value)
    except InputError as error:
        raise InputError(f"{assignment!r}: {error}") from None


def _yaml(text: str) -> Any:
    depth = accumulate((c in "[{") - (c in "]}") for c in text)
    if max(depth, default=0) > DEEPEST:  # PyYAML's time is the square of the depth
        raise InputError(f"not YAML of a configuration: more than {DEEPEST} brackets are open")
    try:
        return yaml.safe_load(text)
    except Exception as error:  # PyYAML makes dates and numbers of text, and fails in many ways
        raise InputError(f"not YAML: {' '.join(str(error).split())}") from None


def from_mapping(kind: type[Any], content: Any, place: str = "") -> Any:
    """A dataclass from nested mappings.

    Raises:
        InputError: naming the place of an unknown key, or of a value of another type.
    """
    if not isinstance(content, Mapping):
        raise InputError(f"{place or 'the configuration'} must be a mapping, not {shown(content)}")
    hints = typing.get_type_hints(kind)
    values = {}
    for key, value in content.items():
        where = f"{place}.{key}" if place else str(key)
        if key not in hints:
            near = difflib.get_close_matches(str(key), list(hints), n=1, cutoff=0.4)
            hint = f"; the nearest name is {near[0]!r}" if near else ""
            raise InputError(f"unknown key {where!r}{hint} (known: {', '.join(hints)})")
        values[key] = _value(hints[key], value, where)
    return kind(**values)


def _value(kind: Any, value: Any, place: str) -> Any:
    options = typing.get_args(kind)
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        if value is None and type(None) in options:
            return None
        return _value(next(o for o in options if o is not type(None)), value, place)
    if typing.get_origin(kind) is Literal:
        if value not in options:
            raise InputError(
                f"{place} is one of {', '.join(map(str, options))}, not {shown(value)}"
            )
        return value
    if typing.get_origin(kind) is tuple:
        if not isinstance(value, list | tuple):
            raise InputError(f"{place} must be a list, not {shown(value)}")
        return tuple(_value(options[0], item, f"{place}[{n}]") for n, item in enumerate(value))
    if dataclasses.is_dataclass(kind):
        return from_mapping(typing.cast(type[Any], kind), value, place)
    if kind is float and isinstance(value, str | int) and not isinstance(value, bool):
        with contextlib.suppress(ValueError, OverflowError):
            value = float(value)  # YAML 1.1 reads 1e-3 as a text
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise InputError(f"{place} must be of type {kind.__name__}, not {shown(value)}")
    if kind is float and not math.isfinite(value):
        raise InputError(f"{place} must be a finite number, not {value}")
    return value


def to_mapping(config: Any) -> dict[str, Any]:
    """The whole configuration, defaults included, as nested mappings."""
    return dataclasses.asdict(config)
