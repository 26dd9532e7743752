"""The configuration of a training run."""

from __future__ import annotations

from dataclasses import field
from typing import Annotated, Literal

from pydantic import Field

from lexicept.errors import InputError
from lexicept.evaluation.effectiveness import depth_of
from lexicept.models.heads.settings import Pooling
from lexicept.models.sources import DEFAULT_BACKBONE, AttentionKernel, Dtype
from lexicept.training.head_kinds import HEAD_KINDS, LanguageHead
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
    settings,
)
from lexicept.vectors import Pruning

E2 = "E2"
"""E² (SAE-SPLADE) as a measure of checkpoints."""

Length = Annotated[Count, Field(ge=8)]
"""Tokens that a text may be cut to; special tokens count."""

Schedule = Literal["constant", "linear", "quadratic"]


@settings
class ModelSettings:
    """The encoder to train."""

    start: Text | None = None
    """Saved encoder to start from: a folder or a hub name. Without one, the fields below say how
    to make it."""
    backbone: Text = DEFAULT_BACKBONE
    """Backbone: a hub name or a folder."""
    layer: Count | None = None
    """Number of blocks to run; null for those before a pretrained SAE, or all."""
    bidirectional: Flag | None = None
    """True if a decoder's tokens attend to the tokens after them; null for the saved model's
    setting, and true where it has none."""
    dtype: Dtype | None = None
    """Type of the backbone's weights, trained and saved; null for the saved model's, and float32
    where it has none. A frozen backbone, or one under adapters, takes half the memory in
    bfloat16."""
    attn_implementation: AttentionKernel | None = None
    """Implementation of attention; null for transformers' choice, mostly sdpa. flash_attention_2
    requires a GPU, half precision and the package ``flash-attn``."""
    special_tokens: Flag | None = None
    """True if special tokens, such as [CLS] and [SEP], count like any other token in SAE training,
    pooling and the saved model (SAE-SPLADE, section 3); null for the saved model's setting, and
    false where it has none."""
    head: Literal["sae", LanguageHead] = "sae"
    """Head: a sparse autoencoder, pretrained or first trained on the documents (``sae``); the
    backbone's own language head, masked or, for a decoder, causal (``mlm``); a language head over
    whole words, with means over the words' sub-words as rows (``expanded``); or a language head
    with random rows (``random``)."""
    sae: SAESettings = field(default_factory=SAESettings)
    """Training of the SAE for the head ``sae``, where it is not pretrained."""
    sae_input: Literal["states", "transformed"] = "states"
    """Input of the SAE: states after the last block, or these states after the backbone's
    language head without its rows (SAE-SPLADE, Table 2: "+ T")."""
    sae_queries: Flag = False
    """True if the SAE is trained on the training queries too, after the documents."""
    pretrained: Text | None = None
    """Pretrained SAE for the head ``sae``: a folder or a hub name, of any layout that
    ``lexicept.models.sae.formats`` knows; requires ``layer`` where it holds several layers."""
    pretrained_width: Count | None = None
    """Number of latents of the pretrained SAE, where there are several."""
    pretrained_l0: Positive | None = None
    """Active latents per token of the pretrained SAE: among several SAEs of a layer and width, the
    nearest is taken; null for 100."""
    size: Count | None = None
    """Dimensions of the heads ``expanded`` (the most frequent words of the documents) and
    ``random``."""
    initial_active_dims: Count | None = None
    """Mean number of active dimensions per token before training, set by shifting all biases
    alike. Without a constraint on k a head may begin with half of its dimensions active, which
    takes more than a short training to undo. Null leaves the biases."""
    query: Literal["encoder", "lookup"] | None = None
    """Query encoder: the same encoder, or a table of one weight per sub-word or word, which starts
    at its idf and is learned with the head. Null for that of ``start``, or ``encoder``."""
    pooling: Pooling | None = None
    """Pooling of token activations to a text's: max, sum (of logarithms) or sqrt_sum (the root of
    the sum); null for the head's own, max for a new head."""
    query_k: Whole | None = None
    """Active dimensions per query token; null for the head's own, 0 for no constraint."""
    document_k: Whole | None = None
    """Active dimensions per document token; null for the head's own, 0 for no constraint."""
    query_max_active_dims: Count | None = None
    """Largest number of dimensions of a query of the trained model; training itself does not prune.
    Null keeps all."""
    document_max_active_dims: Count | None = None
    """Largest number of dimensions of a document of the trained model; null keeps all."""
    max_query_tokens: Length | None = None
    """Tokens, special ones included, at which the trained model cuts queries, as papers do when
    they evaluate. Null reads whole queries, in windows, or as the model to start from does."""
    max_document_tokens: Length | None = None
    """Tokens at which it cuts documents, also while its SAE is trained; null likewise."""
    pruning: Pruning | None = None
    """Dimensions of a query that its limit keeps: those of the largest ``weight`` or, in an index,
    of the largest ``impact``, the weight times the dimension's largest document weight; null for
    the head's own, weight for a new head."""
    weighting: Literal["splade", "bm25"] = "splade"
    """Weighting of pooled activations in an index: as in training, or as BM25 weighs words, with
    idf and length normalisation. Training itself never uses BM25's."""
    k1: NotNegative = 1.5
    """BM25's k1 (saturation)."""
    b: Share = 0.75
    """BM25's b (length normalisation), 0 to 1."""
    query_scale: Positive = 1.0
    """Factor on the trained model's query weights where it is searched beside words; learned
    instead where ``loss.words`` is above 0."""
    trained: Literal["head", "lora", "all"] = "head"
    """Parameters that learn: the head, on cached states of a frozen backbone; the head and
    low-rank adapters of the backbone; or all."""
    freeze_head: Flag = False
    """True if the backbone alone learns (SPLARE); requires ``trained: lora`` or ``all``."""
    lora_rank: Count = 16
    """Rank r of the adapters, which are multiplied by 2."""

    def __post_init__(self) -> None:
        if self.pretrained and self.head != "sae":
            raise InputError(f"pretrained requires head: sae, not {self.head!r}")
        if self.freeze_head and self.trained == "head":
            raise InputError("freeze_head requires trained: lora or all; nothing learns otherwise")
        sized = self.head != "sae" and HEAD_KINDS[self.head].dimensions != "subwords"
        if sized and not (self.size or self.start):
            raise InputError(f"size is missing: dimensions of the head {self.head!r}")
        if self.initial_active_dims is not None:
            self._check_initial_active_dims(self.initial_active_dims)

    def _check_initial_active_dims(self, dims: int) -> None:
        if self.head == "sae" and self.sae.has_thresholds:
            raise InputError(
                "initial_active_dims shifts biases and so requires an SAE with k; "
                f"{self.sae.architecture} has thresholds"
            )
        size = self.sae.num_latents if self.head == "sae" else self.size
        if size is not None and dims >= size:
            raise InputError(f"initial_active_dims must be below {size}, not {dims}")


@settings
class DataSettings:
    """The documents, queries and candidates to train on."""

    corpus: Text = ""
    """Documents: a path or name that ``lexicept build`` reads."""
    queries: Text | None = None
    """Queries with judgements: a BEIR folder or an ir_datasets name. Null makes pseudo-queries from
    the documents."""
    split: Text = "train"
    """Split of the judgements."""
    count: Count | None = None
    """Largest number of queries, drawn with the seed; null takes all."""
    pseudo_queries: Count = 4
    """Pseudo-queries per document, where ``queries`` is null."""
    lists: Text | None = None
    """File of candidate lists (see ``lexicept data mine``); null mines them."""
    mining: Literal["words", "teacher", "both"] = "words"
    """Source of mined candidates: BM25; the teacher, which scores every query with every document
    and so suits collections of up to about a million (its MaxSim, which would take too long, is
    left out); or both."""
    mining_depth: Count = 100
    """Mined candidates per query, from each source."""
    negatives: Whole = 1
    """Candidates drawn from a query's list besides its relevant document, anew in each pass. With
    0, a query is compared with other queries' documents only (ESPLADE, equation 1), and no
    candidates are mined."""
    positive_share: Share = 1.0
    """Share of samples with their query's relevant document; the others have one more candidate
    instead, from which only a teacher can be learned."""
    max_query_tokens: Length = 64
    """Tokens at which training cuts queries; see also ``model.max_query_tokens``."""
    max_document_tokens: Length = 256
    """Tokens at which training cuts documents; see also ``model.max_document_tokens``."""
    seed: Seed | None = None
    """Seed of what is drawn once: pseudo-queries, held-out queries and documents; null for the
    optimizer's, in which case trainings with different seeds share no prepared data."""


@settings
class TeacherSettings:
    """Teacher scores of a batch's queries and documents: a weighted sum of a dense model's
    similarity, BM25 and MaxSim."""

    dense: Text | None = None
    """Dense model for ``SentenceTransformer``; its embeddings are cached on disk."""
    dense_weight: NotNegative = 20.0
    """Weight of its similarity; for a cosine, the inverse of a temperature."""
    bm25_weight: NotNegative = 0.0
    """Weight of BM25 over the documents' words."""
    max_sim: NotNegative = 0.0
    """Weight of MaxSim: late interaction over token states of the backbone as it was before
    training, centred by their mean and normalised, cut as ``data`` says. The states are cached on
    disk."""


@settings
class LossSettings:
    """The ranking loss, a weighted sum; see ``lexicept.training.losses``."""

    kl: NotNegative = 1.0
    """Weight of KL distillation from the teacher over the batch's documents or, with scored lists
    and no teacher, over each query's candidates."""
    margin_mse: NotNegative = 0.0
    """Weight of MarginMSE on the candidates of each query that has its relevant document."""
    in_batch: NotNegative = 0.0
    """Weight of the softmax of the relevant document against all documents of the batch."""
    in_batch_known: Flag = False
    """True if other documents of the batch that are known to be relevant count as negatives there
    (ESPLADE, equation 1)."""
    temperature: Positive = 1.0
    """Temperature of the student's scores, before the learnable scale."""
    scale: Positive = 1.0
    """Initial value of the learnable factor on the student's scores (SAE-SPLADE's code)."""
    scale_learning_rate: NotNegative = 0.02
    """Learning rate of that factor; 0 keeps it as it is."""
    words: NotNegative = 0.0
    """Initial weight of BM25 in a document's score; learnable, as the factor is. Above 0, the head
    learns what words miss."""
    query_top_k: Count | None = None
    """Number of largest query weights that the ranking loss uses, q_K (ESPLADE); null uses all."""
    document_top_k: Count | None = None
    """Number of largest document weights that the ranking loss uses, d_K; null uses all."""
    dual: Flag = True
    """True if the ranking loss counts on whole vectors as well as on vectors cut by top_k
    (ESPLADE)."""
    mask_divergence: NotNegative = 0.0
    """Weight of the KL from the whole vectors' ranking to that of vectors cut by top_k."""
    reconstruction: NotNegative = 0.0
    """Weight of the SAE's fraction of variance unexplained on the documents' tokens. Above 0, the
    decoder learns too (SAE-SPLADE, section 3, which found it harmful); the backbone gets no
    gradient of it."""


@settings
class RegularizerSettings:
    """Sparsity regulariser of queries or documents; see ``lexicept.training.regularizers``."""

    kind: Literal["flops", "l1", "df_flops"] = "flops"
    """Regulariser: squared mean weights, mean absolute weights, or squared mean weights of the
    dimensions that are frequent."""
    weight: NotNegative = 0.0
    """λ at the end of its schedule."""
    schedule: Schedule = "quadratic"
    """Growth of λ."""
    steps: Count = 200
    """Steps until λ is reached."""
    alpha: Annotated[Positive, Field(lt=1)] = 0.1
    """Share of texts from which ``df_flops`` takes a dimension for frequent: its α."""
    beta: Positive = 10.0
    """Steepness of that penalty: β of ``df_flops``."""
    df_source: Literal["batches", "sample"] = "batches"
    """Texts that ``df_flops`` counts: those of recent batches, or a sample of all queries or
    documents, drawn once, which is encoded again every ``df_every`` steps (Porco et al. 2025 count
    the texts of their validation)."""
    df_texts: Count = 10_000
    """Number of these texts: the window over batches, or the size of the sample."""
    df_every: Count = 100
    """Steps between two counts of the sample."""
    anti_zero: NotNegative = 0.0
    """Weight of the regulariser that keeps vectors from becoming all zero."""


@settings
class JointSettings:
    """Joint FLOPS: a regulariser of dimensions that queries and documents share (ESPLADE)."""

    weight: NotNegative = 0.0
    """λ at the end of its schedule."""
    schedule: Schedule = "quadratic"
    """Growth of λ."""
    steps: Count = 200
    """Steps until λ is reached."""


@settings
class OptimizerSettings:
    """AdamW and its steps."""

    steps: Count = 1000
    """Optimiser steps."""
    batch_size: Count = 32
    """Queries of a batch, in each process."""
    accumulation: Count = 1
    """Batches whose gradients are added up for one step."""
    mini_batch: Count | None = None
    """Texts that go through the model at once (gradient caching, for batches larger than memory);
    null for the whole batch."""
    workers: Whole = 0
    """Processes that read and tokenise the next batches while the model works, two batches each, at
    most one for each core; 0 does it between steps. The batches are the same."""
    gradient_checkpointing: Flag = False
    """True if the backward pass computes the backbone's blocks again instead of keeping their
    activations: about a third more time, for far less memory."""
    sharded: Flag = False
    """True if the processes of a launcher divide the backbone among them (FSDP): each keeps a part
    of its weights, their gradients and AdamW's moments, and gathers a block's weights while it
    runs; for a backbone that is too large for one GPU. Requires ``model.trained: lora`` or ``all``.
    The head is whole in every process, and so is the model of one process alone."""
    learning_rate: Positive = 1e-3
    """Learning rate after warm-up."""
    warmup_steps: Whole = 30
    """Steps of linear warm-up."""
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    """Learning rate after warm-up."""
    weight_decay: NotNegative = 0.0
    """AdamW's weight decay, on matrices."""
    max_grad_norm: NotNegative = 1.0
    """Norm that the model's gradients are clipped to; 0 does not clip."""
    bf16: Flag = False
    """True trains in mixed precision, where the processor has it."""
    seed: Seed = 0
    """Seed of samples, dropout and adapters, and of the data if ``data.seed`` is null."""


@settings
class ValidationSettings:
    """Retrieval on judged queries during training, which selects the best checkpoint."""

    queries: Text | None = None
    """Queries with judgements: a BEIR folder or an ir_datasets name. Null holds training queries
    out."""
    corpus: Text | None = None
    """Documents of ``queries``; null for the training corpus."""
    documents: Count | None = None
    """Largest number of documents: the relevant ones, and others drawn with the seed. Where the
    backbone learns, every validation encodes all of them again. Null takes all."""
    split: Text = "dev"
    """Split of the judgements."""
    count: Count = 500
    """Largest number of queries, drawn with the seed."""
    every: Count = 250
    """Steps between two validations, and two checkpoints."""
    checkpoint: Literal["last", "best"] = "best"
    """Checkpoint that becomes the model: the last, as in the papers, or the best."""
    select: Text = "nDCG@10"
    """Measure of the best checkpoint: one of ir_measures', such as ``R@10``, or ``E2``."""
    max_qd_flops: NotNegative | None = None
    """Budget of QD-FLOPs: within it the largest value of ``select`` wins, above it the nearest to
    it; not with ``E2``, which counts the cost itself."""
    query_max_active_dims: Count | None = None
    """Largest number of dimensions of a query in validation; null for the model's own."""
    document_max_active_dims: Count | None = None
    """Largest number of dimensions of a document in validation; null for the model's own."""
    patience: Count | None = None
    """Validations without a better one after which training stops; null never stops."""

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
        """The seed of pseudo-queries, held-out queries and their documents."""
        return self.optimizer.seed if self.data.seed is None else self.data.seed

    def __post_init__(self) -> None:
        if not self.data.corpus:
            raise InputError("data.corpus is missing: the documents to train on")
        if not (self.loss.kl or self.loss.margin_mse or self.loss.in_batch):
            raise InputError(
                "nothing to learn: one of loss.kl, loss.margin_mse, loss.in_batch must be above 0"
            )
        self._check_negatives()
        frozen = self.model.head != "sae" or self.model.freeze_head
        if self.loss.reconstruction and frozen:
            raise InputError(
                "loss.reconstruction requires an SAE that learns: model.head: sae without "
                "model.freeze_head"
            )
        if self.optimizer.sharded and self.model.trained == "head":
            raise InputError("optimizer.sharded requires model.trained: lora or all")
        if self.loss.words and self.model.weighting == "bm25":
            raise InputError("loss.words requires model.weighting: splade")

    def _check_negatives(self) -> None:
        if self.data.negatives:
            return
        if self.loss.margin_mse:
            raise InputError("loss.margin_mse requires data.negatives of at least 1")
        teacher = self.teacher
        if self.loss.kl and not (teacher.dense or teacher.bm25_weight or teacher.max_sim):
            raise InputError(
                "loss.kl requires data.negatives of at least 1, or a teacher of the whole batch"
            )

    @property
    def has_teacher(self) -> bool:
        """True if anything scores documents for KL and MarginMSE; scored lists may."""
        teacher = self.teacher
        return bool(teacher.dense or teacher.bm25_weight or teacher.max_sim or self.data.lists)
