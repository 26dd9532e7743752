"""Settings of pretraining of a head or a backbone; the heads that go with each masking."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import Field

from lexicept.errors import InputError
from lexicept.models.sources import AttentionKernel, Dtype
from lexicept.training.settings import Count, Flag, NotNegative, Positive, Seed, Whole, settings

Masking = Literal["subwords", "words", "mntp", "causal"]
HeadKind = Literal["mlm", "expanded", "random"]
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
    """Masked and predicted units: the backbone's sub-words (``subwords``; BERT), the
    words that are the head's terms (``words``; ESPLADE), or sub-words, predicted from the place
    before them (``mntp``; SPLARE). ``causal`` masks nothing: every sub-word is predicted from the
    place before it, as decoders are trained."""
    mask_share: Annotated[Positive, Field(le=1)] | None = None
    """Share of a window's sub-words or words that is masked, at least one of them; null for 0.2
    with ``mntp`` (SPLARE) and 0.15 otherwise (BERT, ESPLADE)."""
    hidden_share: Annotated[NotNegative, Field(le=1)] = HIDDEN_SHARE
    """Share of the masked sub-words or words that are replaced, by the mask token or, one in nine,
    by a random token; the others are unchanged and predicted (BERT: 0.9). With 0 and a
    ``mask_share`` of 1 the head learns to name every token, which a frozen backbone that never had
    a language head needs."""
    trained: Trained = "head"
    """Parameters that learn: the head on a frozen backbone; low-rank adapters of the backbone under
    a frozen head, which are added to its weights at the end; or head and backbone."""
    lora_rank: Count = 64
    """Rank of the adapters (SPLARE, Table 4)."""
    steps: Count = 1000
    """Optimiser steps."""
    batch_size: Count = 32
    """Windows of text in a step."""
    max_tokens: Annotated[Count, Field(ge=8)] | None = None
    """Tokens at which a text is cut, special tokens included, as ESPLADE's titles are at 64; null
    reads texts of any length, in windows as long as the backbone's."""
    learning_rate: Positive = 1e-3
    """AdamW's learning rate after warm-up; it falls linearly to 0. A backbone needs less than a
    head, such as 1.6e-4."""
    warmup_steps: Whole = 100
    """Steps of linear warm-up."""
    weight_decay: NotNegative = 0.01
    """AdamW's weight decay, on matrices."""
    bf16: Flag = False
    """True if matrices are multiplied in bfloat16; weights stay in ``dtype``."""
    dtype: Dtype | None = None
    """Type of the backbone's weights, trained and saved; null for the saved model's, and float32
    where it has none. Under adapters, whose own weights are float32, bfloat16 halves the memory."""
    attn_implementation: AttentionKernel | None = None
    """Implementation of attention; null for transformers' choice, mostly sdpa."""
    gradient_checkpointing: Flag = False
    """True if the backward pass computes the backbone's blocks again instead of keeping their
    activations."""
    seed: Seed = 0
    """Seed of the order of texts, of what is masked, of dropout and of random rows."""

    @property
    def share(self) -> float:
        """``mask_share`` or its default."""
        return self.mask_share or (0.2 if self.masking == "mntp" else 0.15)

    @property
    def shifted(self) -> bool:
        """True if tokens are predicted from the place before them."""
        return self.masking in ("mntp", "causal")

    @property
    def decay_steps(self) -> int:
        """Last steps, in which the learning rate falls to 0: all after the warm-up."""
        return self.steps - self.warmup_steps

    @property
    def bidirectional(self) -> bool | None:
        """True if a decoder's tokens attend to the tokens after them; None as saved."""
        return {"mntp": True, "causal": False}.get(self.masking)


def masking_of(head: HeadKind, masking: Masking | None) -> Masking:
    """Return what is masked for a head: words for ``expanded``, sub-words for the others, where
    ``masking`` is None.

    ``mlm`` is a head over sub-words, ``expanded`` one over words; ``random`` may be either.

    Raises:
        InputError: a masking that the head can't be trained with.
    """
    if head not in get_args(HeadKind):
        raise InputError(f"head must be one of {', '.join(get_args(HeadKind))}, not {head!r}")
    if masking is None:
        return "words" if head == "expanded" else "subwords"
    if head == "mlm" and masking == "words":
        raise InputError("masking words does not go with head mlm, which predicts sub-words")
    if head == "expanded" and masking != "words":
        raise InputError(f"masking {masking} does not go with head expanded, which predicts words")
    return masking


def words_of(masking: Masking, size: int | None) -> int | None:
    """Return the largest number of words that are dimensions; None where sub-words are.

    Args:
        size: the number that was asked for; None for ``EXPANDED_SIZE``.

    Raises:
        InputError: a size where sub-words are the dimensions, or below 1.
    """
    if masking == "words":
        if size is not None and size < 1:
            raise InputError(f"size must be at least 1 word, not {size}")
        return EXPANDED_SIZE if size is None else size
    if size is not None:
        raise InputError(f"size, a number of words, requires masking words, not {masking}")
    return None
