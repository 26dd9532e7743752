"""Whether a backbone and its head say what a language model says."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lexicept.errors import InputError
from lexicept.models.backbone import Backbone
from lexicept.models.heads.vocabulary import VocabularyHead

TOLERANCE = 1e-3
"""Of logits, relative to the largest: what an order of summation may change, and no more."""

TOKENS = 16


def require_same_logits(name: str, model: Any, backbone: Backbone, head: VocabularyHead) -> None:
    """Compare the logits of a window of tokens from all over the vocabulary.

    Args:
        name: of the source, for the error.
        model: a masked or causal language model of transformers.

    Raises:
        InputError: they differ: the model does more than backbone and head.
    """
    step = max(1, len(backbone.tokenizer) // TOKENS)
    ids = torch.arange(0, len(backbone.tokenizer), step)[None, :TOKENS]
    mask = torch.ones_like(ids)
    with torch.inference_mode():
        theirs: Tensor = model.eval()(input_ids=ids, attention_mask=mask).logits[0].float()
        own = head.transform(backbone.states(ids, mask)[0]) @ head.rows.T + head.bias
    if theirs.shape != own.shape:
        raise InputError(f"{name}: logits over {theirs.shape[1]} tokens, a head over {head.size}")
    largest = float((theirs - own).abs().max() / theirs.abs().max())
    if not largest <= TOLERANCE:  # a NaN is no match either
        raise InputError(
            f"{name}: {type(model).__name__} computes more than blocks, a dense layer, norms and "
            f"rows: its logits differ by {largest:.1g} of the largest"
        )
