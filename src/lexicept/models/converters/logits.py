"""A check that backbone and head compute the logits of a language model."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lexicept.errors import InputError
from lexicept.models.backbone import Backbone
from lexicept.models.heads.vocabulary import VocabularyHead

TOLERANCE = 1e-3
"""Largest difference of logits, relative to the largest logit, that rounding may explain."""

TOKENS = 16


def require_same_logits(name: str, model: Any, backbone: Backbone, head: VocabularyHead) -> None:
    """Compare the logits of a few tokens, evenly spread over the vocabulary.

    Args:
        name: the source's name, for the error.
        model: a masked or causal language model of transformers.

    Raises:
        InputError: the logits differ, so the model computes more than backbone and head do.
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
    if not largest <= TOLERANCE:  # refuses NaN too
        raise InputError(
            f"{name}: {type(model).__name__} computes more than blocks, a dense layer, norms and "
            f"rows: its logits differ by {largest:.1g} of the largest"
        )
