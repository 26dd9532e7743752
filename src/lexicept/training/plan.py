"""Plans: the GPU memory and hours of a training, estimated before anything is loaded.

The peak of a step is the sum of what it holds at once, in bytes:

- **weights**: every parameter in its type. Adapters, heads and SAEs are float32.
- **copies**: with ``bf16``, 2 for each trained float32 parameter, which autocast keeps cast.
- **gradients**: trained parameters in their type; **optimizer**: twice that, for AdamW's moments.
- **activations** of the texts that go through at once (``mini_batch``, or the whole batch), all of
  the longest allowed length: ``rest + L · block``. With gradient checkpointing they are
  ``rest + L · input + block``, as one block at a time is computed again. ``block`` and ``rest``
  come from a dry run: a model of one and of two blocks on ``meta`` tensors, which have shapes and
  no storage, counts the bytes that autograd keeps. Attention is counted as fused kernels keep it,
  with queries, keys, values, outputs and one float32 per row.
- **vectors**: ``VECTOR_COPIES`` float32 arrays [texts of the batch, V], one more for each side cut
  by top_k, and ``SCORE_COPIES`` float32 arrays [queries, documents].

The time is that of the matrix products: ``2 P`` a token for a pass through blocks of P parameters,
``2 d V`` for a head. A backward pass takes as much for activations and, where all learns, as much
again for weights; gradient caching and checkpointing each add a forward pass. It is divided by what
a GPU does: ``TERAFLOPS`` times ``UTILISATION``.
"""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AutoModel, PretrainedConfig

from lexicept.models.blocks import find_blocks
from lexicept.models.loading import quiet_transformers
from lexicept.models.lora import adapters_of
from lexicept.models.windows import LONGEST_WINDOW
from lexicept.training.config import TrainingConfig
from lexicept.training.pretraining.settings import PretrainingSettings
from lexicept.training.sae.settings import SAESettings

GB = 1e9
"""Bytes of a gigabyte."""

TERAFLOPS = {"bfloat16": 989.0, "float32": 67.0}
"""10¹² operations a second of an H100 (SXM) in matrix products, by the type of the factors."""

UTILISATION = 0.35
"""Share of these that a training reaches."""

VECTOR_COPIES = 4
"""Arrays of the batch's vectors: pooled, their logarithms, their gradients, and one for losses."""

SCORE_COPIES = 6
"""Arrays of the batch's scores and of what losses and gradients make of them."""

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
"""Bytes of a number, by type."""

MICRO_BATCH = 4096
"""Tokens that a backbone takes at once; see ``backbone.BATCH_TOKENS``."""


class Memory(NamedTuple):
    """Bytes at the peak of a step."""

    weights: float = 0.0
    copies: float = 0.0
    gradients: float = 0.0
    optimizer: float = 0.0
    activations: float = 0.0
    vectors: float = 0.0

    @property
    def total(self) -> float:
        """Their sum."""
        return sum(self)


class Stage(NamedTuple):
    """A stage of a training."""

    name: str
    steps: int
    memory: Memory
    hours: float
    """Hours of one GPU."""


@dataclass(frozen=True)
class Shape:
    """Sizes of a backbone, counted on ``meta`` tensors."""

    d: int
    """Size of a state."""
    vocabulary: int
    """Number of sub-words."""
    layers: int
    """Number of blocks that are run."""
    block: int
    """Parameters of a block."""
    other: int
    """Parameters outside of the blocks."""
    adapters: int
    """Parameters of the adapters of a block; 0 without them."""

    @classmethod
    def of(cls, config: PretrainedConfig, layer: int | None, rank: int | None) -> Shape:
        """Count the parameters of a configuration cut after ``layer`` blocks, all by default."""
        layers = layer or int(config.num_hidden_layers)
        model = model_on_meta(config, 1)
        (block,) = find_blocks(model, 1)
        own = sum(parameter.numel() for parameter in block.parameters())
        pooler = getattr(model, "pooler", None)
        unused = 0 if pooler is None else sum(p.numel() for p in pooler.parameters())
        other = sum(parameter.numel() for parameter in model.parameters()) - own - unused
        linear = [m for m in block.modules() if isinstance(m, nn.Linear)]
        adapters = (rank or 0) * sum(m.in_features + m.out_features for m in linear)
        sizes = (int(config.hidden_size), int(config.vocab_size))
        return cls(*sizes, layers, own, other, adapters)

    @property
    def weights(self) -> int:
        """Parameters of the backbone without adapters."""
        return self.layers * self.block + self.other


class Kept(NamedTuple):
    """Bytes that autograd keeps of a forward pass."""

    rest: int
    """Those of the embeddings and of all that blocks share."""
    block: int
    """Those of one block."""
    input: int
    """Those of a block's input."""

    def of(self, layers: int, *, checkpointed: bool) -> int:
        """Return the bytes of a model of some blocks."""
        if checkpointed:
            return self.rest + layers * self.input + self.block
        return self.rest + layers * self.block


def plan_training(config: TrainingConfig, backbone: PretrainedConfig) -> list[Stage]:
    """Return the stages of a training: that of its SAE, where it trains one, and its own.

    Args:
        backbone: configuration of the backbone, whose weights are not needed.
    """
    model = config.model
    rank = model.lora_rank if model.trained == "lora" else None
    shape = Shape.of(backbone, model.layer, rank)
    stages = []
    if model.head == "sae" and model.pretrained is None and model.start is None:
        stages.append(_sae_stage(model.sae, shape, config))
    return [*stages, _ranking_stage(config, backbone, shape)]


def _ranking_stage(config: TrainingConfig, backbone: PretrainedConfig, shape: Shape) -> Stage:
    model, data, optimizer = config.model, config.data, config.optimizer
    queries = optimizer.batch_size
    documents = queries * (1 + data.negatives)
    size = head_size(config, shape)
    rows = shape.d * size
    learned_head = 0 if model.freeze_head else rows
    memory = _memory(
        shape,
        model.dtype or "float32",
        everything=model.trained == "all",
        head=2 * rows if model.head == "sae" else rows,
        learned_head=learned_head,
        bf16=optimizer.bf16,
    )
    at_once = min(optimizer.mini_batch or documents, documents)
    if model.trained != "head":
        kept = kept_bytes(
            backbone,
            at_once,
            data.max_document_tokens,
            "bfloat16" if optimizer.bf16 else model.dtype or "float32",
            model.lora_rank if model.trained == "lora" else None,
        )
        checkpointed = optimizer.gradient_checkpointing
        kept_now = kept.of(shape.layers, checkpointed=checkpointed)
        if optimizer.mini_batch is None:  # the queries go through as well
            share = queries * data.max_query_tokens / (at_once * data.max_document_tokens)
            kept_now = int(kept_now * (1 + share))
        memory = memory._replace(activations=float(kept_now))
    cut = sum(one is not None for one in (config.loss.query_top_k, config.loss.document_top_k))
    vectors = 4 * (VECTOR_COPIES + cut) * (queries + documents) * size
    scores = 4 * SCORE_COPIES * queries * documents
    memory = memory._replace(vectors=float(vectors + scores))
    tokens = queries * data.max_query_tokens + documents * data.max_document_tokens
    passes = _passes(
        model.trained,
        cached=optimizer.mini_batch is not None,
        again=optimizer.gradient_checkpointing,
    )
    products = tokens * (passes * 2 * shape.layers * shape.block + 2 * 2 * rows)
    steps = optimizer.steps * optimizer.accumulation
    return Stage("training", optimizer.steps, memory, hours(steps * products, optimizer.bf16))


def _passes(trained: str, *, cached: bool, again: bool) -> float:
    """Return how many times a step's products are those of a forward pass through the blocks."""
    if trained == "head":
        return 0.0  # states are cached
    backward = 2.0 if trained == "all" else 1.0
    return 1.0 + backward + cached + again


def head_size(config: TrainingConfig, shape: Shape) -> int:
    """Return the dimensions of the head that a configuration trains with."""
    model = config.model
    if model.head == "sae":
        return model.pretrained_width or PRETRAINED_WIDTHS.get(
            str(model.pretrained).rpartition("/")[2], model.sae.num_latents
        )
    return model.size if model.head in ("expanded", "random") and model.size else shape.vocabulary


PRETRAINED_WIDTHS = {
    "Llama3_1-8B-Base-LXR-8x": 32_768,
    "Llama3_1-8B-Base-LXR-32x": 131_072,
}
"""Latents of released SAEs whose repositories hold one width."""


def _sae_stage(settings: SAESettings, shape: Shape, config: TrainingConfig) -> Stage:
    """Return the training of an SAE over the states of a frozen backbone."""
    learned = 4.0 * 2 * shape.d * settings.num_latents
    dense = 4.0 * settings.batch_size * settings.num_latents
    tiled = settings.architecture in ("topk", "hierarchical", "matryoshka")
    memory = Memory(
        weights=shape.weights * BYTES[config.model.dtype or "float32"] + learned,
        gradients=learned,
        optimizer=2 * learned,
        activations=4.0 * settings.buffer_tokens * shape.d + (0 if tiled else 3 * dense),
    )
    per_token = 2 * shape.layers * shape.block + 6 * shape.d * settings.num_latents
    return Stage(
        "SAE", settings.steps, memory, hours(settings.tokens * per_token, config.optimizer.bf16)
    )


def plan_pretraining(
    settings: PretrainingSettings, backbone: PretrainedConfig, size: int | None = None
) -> Stage:
    """Return the stage of masked pretraining, over the whole backbone.

    Args:
        size: dimensions of the head; those of the sub-words by default.
    """
    rank = settings.lora_rank if settings.trained == "lora" else None
    shape = Shape.of(backbone, None, rank)
    rows = shape.d * (size or shape.vocabulary)
    window = min(LONGEST_WINDOW, int(getattr(backbone, "max_position_embeddings", LONGEST_WINDOW)))
    dtype = settings.dtype or "float32"
    memory = _memory(
        shape,
        dtype,
        everything=settings.trained == "all",
        head=rows,
        learned_head=0 if settings.trained == "lora" else rows,
        bf16=settings.bf16,
    )
    texts = max(1, min(settings.batch_size, MICRO_BATCH // window))
    masked = math.ceil(settings.share * texts * window)
    activations = 3 * 4.0 * masked * (size or shape.vocabulary)  # logits, softmax, gradient
    if settings.trained != "head":
        kept = kept_bytes(backbone, texts, window, "bfloat16" if settings.bf16 else dtype, rank)
        activations += kept.of(shape.layers, checkpointed=settings.gradient_checkpointing)
    passes = _passes(settings.trained, cached=False, again=settings.gradient_checkpointing) or 1.0
    tokens = settings.steps * settings.batch_size * window
    products = tokens * (passes * 2 * shape.layers * shape.block + settings.share * 6 * rows)
    memory = memory._replace(activations=activations)
    return Stage("pretraining", settings.steps, memory, hours(products, settings.bf16))


def _memory(
    shape: Shape, dtype: str, *, everything: bool, head: int, learned_head: int, bf16: bool
) -> Memory:
    """Return what does not depend on the batch.

    Args:
        head: parameters of the head.
        learned_head: those of them that learn.
    """
    adapters = float(shape.layers * shape.adapters)
    full = 4.0 * (adapters + learned_head)
    backbone = float(shape.weights * BYTES[dtype])
    learned = full + (backbone if everything else 0.0)
    cast = adapters + learned_head + (shape.weights if everything and dtype == "float32" else 0)
    return Memory(
        weights=backbone + 4.0 * (adapters + head),
        copies=2.0 * cast if bf16 else 0.0,
        gradients=learned,
        optimizer=2 * learned,
    )


def hours(products: float, bf16: bool) -> float:
    """Return the hours that multiplications and additions take on one GPU."""
    speed = TERAFLOPS["bfloat16" if bf16 else "float32"] * 1e12 * UTILISATION
    return products / speed / 3600


def kept_bytes(
    config: PretrainedConfig, texts: int, tokens: int, dtype: str, rank: int | None = None
) -> Kept:
    """Return the bytes that autograd keeps of a forward pass, by dry runs on ``meta`` tensors.

    Args:
        texts, tokens: texts that go through at once, and the length of each.
        dtype: type of the activations.
        rank: of adapters; None lets all weights learn.
    """
    one, two = (_kept_by(config, layers, texts, tokens, dtype, rank) for layers in (1, 2))
    block = two - one
    return Kept(one - block, block, texts * tokens * int(config.hidden_size) * BYTES[dtype])


def _kept_by(
    config: PretrainedConfig, layers: int, texts: int, tokens: int, dtype: str, rank: int | None
) -> int:
    model: Any = model_on_meta(config, layers, dtype)
    if rank is not None:
        model = adapters_of(model, rank).to(getattr(torch, dtype))
    model.train()
    known = {parameter.untyped_storage()._cdata for parameter in model.parameters()}
    kept: dict[int, Tensor] = {}  # the tensors are held, so that no address comes twice

    def keep(tensor: Tensor) -> Tensor:
        kept.setdefault(tensor.untyped_storage()._cdata, tensor)
        return tensor

    ids = torch.ones(texts, tokens, dtype=torch.long, device="meta")
    # A mask of four dimensions is taken as it is; others are looked into.
    mask = torch.zeros(texts, 1, tokens, tokens, dtype=model.dtype, device="meta")
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model(input_ids=ids, attention_mask=mask)
    sizes = (
        value.untyped_storage().nbytes() for place, value in kept.items() if place not in known
    )
    return sum(sizes)


def model_on_meta(config: PretrainedConfig, layers: int, dtype: str = "float32") -> nn.Module:
    """Return a model of some blocks whose tensors have shapes and no storage."""
    cut = deepcopy(config)
    for kinds in ("layer_types", "mlp_layer_types"):
        if getattr(cut, kinds, None) is not None:
            setattr(cut, kinds, getattr(cut, kinds)[:layers])
    cut.num_hidden_layers = layers
    with quiet_transformers(), torch.device("meta"):
        model: nn.Module = AutoModel.from_config(
            cut, dtype=getattr(torch, dtype), attn_implementation=_FUSED
        )
    return model


class _FusedAttention(torch.autograd.Function):
    """Keeps what a fused kernel of attention keeps, and computes nothing."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        output = torch.empty_like(query)
        rows = query.new_empty(query.shape[:-1], dtype=torch.float32)
        ctx.save_for_backward(query, key, value, output, rows)
        return output


def _attend(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Any, **_: Any
) -> tuple[Tensor, None]:
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    output: Tensor = _FusedAttention.apply(query, key, value)  # type: ignore[no-untyped-call]
    return output.transpose(1, 2).contiguous(), None


_FUSED = "lexicept_fused"
AttentionInterface.register(_FUSED, _attend)
