"""Settings of pretraining: of a head, a backbone or adapters."""

from __future__ import annotations

from typing import Annotated, Literal

from annotated_types import Ge, Le

from lexicept.checks import Count, NotNegative, Positive, Seed, Whole, settings
from lexicept.encoding.sources import Dtype
from lexicept.errors import InputError
from lexicept.training.pretraining.head_kinds import MASKINGS, LanguageHead, Masking

Trained = Literal["head", "lora", "all"]

HIDDEN_SHARE = 0.9
"""Share of the masked units that are hidden (BERT: 80 % masked, 10 % random, 10 % unchanged)."""

EXPANDED_SIZE = 100_000
"""Words of an expanded vocabulary (ESPLADE, 3.1.1)."""


@settings
class PretrainingSettings:
    """Training on masked texts.

    ESPLADE (3.1): 600,000 steps of 1024 titles of at most 64 tokens, everything learns, a learning
    rate of 1.6e-4 after 10,000 steps of warm-up. SPLARE (4): masking ``mntp``, 10,000 steps,
    adapters.
    """

    masking: Masking = "words"
    """Masked and predicted units: the backbone's sub-words (``subwords``; BERT), the head's words
    (``words``; ESPLADE), or sub-words, predicted from the previous position (``mntp``; SPLARE).
    ``causal`` masks nothing and predicts every sub-word from the previous position, as in a
    decoder's own training."""
    mask_share: Annotated[Positive, Le(1)] | None = None
    """Share of a window's sub-words or words to mask, at least one; by default 0.2 with ``mntp``
    (SPLARE) and 0.15 otherwise (BERT, ESPLADE)."""
    hidden_share: Annotated[NotNegative, Le(1)] = HIDDEN_SHARE
    """Share of the masked sub-words or words to replace, by the mask token or, one in nine, by a
    random token; the remainder is predicted unchanged (BERT: 0.9). With 0 and a ``mask_share`` of 1
    the head learns to name every token, as a frozen backbone without a language head needs."""
    trained: Trained = "head"
    """Parameters to learn: the head on a frozen backbone; low-rank adapters of the backbone under a
    frozen head, merged into the weights at the end; or head and backbone."""
    lora_rank: Count = 64
    """Rank of the adapters (SPLARE, Table 4)."""
    steps: Count = 1000
    """Optimiser steps."""
    schedule_steps: Count | None = None
    """Steps at whose end the learning rate is 0: a checkpoint of a longer training stops before
    (ESPLADE: at 600,000 of 2,900,000); by default ``steps``."""
    batch_size: Count = 32
    """Windows of text in a step."""
    max_tokens: Annotated[Count, Ge(8)] | None = None
    """Length at which texts are cut, special tokens included (ESPLADE's titles: 64); by
    default texts of any length are read, in windows of the backbone's length."""
    learning_rate: Positive = 1e-3
    """AdamW's learning rate after warm-up, with linear decay to 0. A backbone needs less than a
    head, such as 1.6e-4."""
    warmup_steps: Whole = 100
    """Steps of linear warm-up."""
    weight_decay: NotNegative = 0.01
    """AdamW's weight decay, on matrices."""
    bf16: bool = False
    """Multiply matrices in bfloat16; weights stay in ``dtype``."""
    dtype: Dtype | None = None
    """Type of the backbone's weights, trained and saved; by default the saved model's
    type, or float32. Under adapters, always float32, bfloat16 halves the memory."""
    gradient_checkpointing: bool = False
    """Compute the backbone's blocks again in the backward pass instead of keeping activations."""
    seed: Seed = 0
    """Seed of the order of texts, the masks, dropout and random rows."""

    @property
    def rate(self) -> float:
        """Learning rate after warm-up."""
        return self.learning_rate

    @property
    def share(self) -> float:
        """``mask_share`` or its default."""
        return self.mask_share or (0.2 if self.masking == "mntp" else 0.15)

    @property
    def shifted(self) -> bool:
        """True if tokens are predicted from the previous position."""
        return self.masking in ("mntp", "causal")

    def __post_init__(self) -> None:
        if self.schedule_steps is not None and self.schedule_steps < self.steps:
            raise InputError(f"schedule_steps must be at least steps, {self.steps}")

    @property
    def decay_steps(self) -> int:
        """Last steps, in which the learning rate falls to 0: all after the warm-up."""
        return (self.schedule_steps or self.steps) - self.warmup_steps

    @property
    def bidirectional(self) -> bool | None:
        """True if a decoder's tokens attend to later tokens; None for the saved setting."""
        return {"mntp": True, "causal": False}.get(self.masking)


def masking_of(head: LanguageHead, masking: Masking | None) -> Masking:
    """Return the masking, by default the head kind's. Raises InputError for an unknown head kind,
    or a masking that does not fit the head kind."""
    if head not in MASKINGS:
        raise InputError(f"head must be one of {', '.join(MASKINGS)}, not {head!r}")
    maskings = MASKINGS[head]
    if masking is None:
        return maskings[0]
    if masking not in maskings:
        units = "words" if "words" in maskings else "sub-words"
        raise InputError(f"masking {masking} does not go with head {head}, which predicts {units}")
    return masking


def words_of(masking: Masking, size: int | None) -> int | None:
    """Return the largest number of words as dimensions; None for sub-words as dimensions. Raises
    InputError for a size with sub-words as dimensions.

    Args:
        size: the setting; None for ``EXPANDED_SIZE``.
    """
    if masking == "words":
        return EXPANDED_SIZE if size is None else size
    if size is not None:
        raise InputError(f"size, a number of words, requires masking words, not {masking}")
    return None
