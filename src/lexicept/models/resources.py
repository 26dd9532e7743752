"""Choices that change the memory and speed of a backbone, and its states only by rounding."""

from __future__ import annotations

from typing import Any, get_args

import torch

from lexicept.errors import InputError
from lexicept.models.backbone import Backbone
from lexicept.models.blocks import check_attention
from lexicept.models.sources import AttentionKernel, Dtype


def use_attention(backbone: Backbone, kernel: AttentionKernel) -> None:
    """Let a backbone compute attention by a kernel, from now on.

    Raises:
        InputError: the model, this machine or the type of the weights does not allow it, or the
            model no longer attends in the wanted directions.
    """
    if kernel not in (known := get_args(AttentionKernel)):
        raise InputError(f"attn_implementation is one of {', '.join(known)}, not {kernel!r:.40}")
    try:
        backbone.model.set_attn_implementation(kernel)
        check_attention(backbone)
    except InputError:
        raise
    except (ImportError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"attn_implementation {kernel} can't be used here: {reason}") from None


def check_checkpointing(backbone: Backbone) -> None:
    """Raise InputError for a model whose class has no gradient checkpointing."""
    if not backbone.model.supports_gradient_checkpointing:
        kind = type(backbone.model).__name__
        raise InputError(f"{backbone.source}: {kind} has no gradient checkpointing")


def checkpoint_blocks(backbone: Backbone) -> None:
    """Let a backbone keep only the inputs of its blocks for the backward pass, which computes the
    rest again (Chen et al. 2016): a third more time for far less memory.

    Raises:
        InputError: the model's class has no gradient checkpointing.
    """
    check_checkpointing(backbone)
    model: Any = backbone.model
    # Reentrant checkpoints would detach the states that the hook of the last block reads.
    arguments = {"use_reentrant": False}
    if hasattr(model, "activation_checkpointing_enable"):  # since transformers 5.23
        model.activation_checkpointing_enable(activation_checkpointing_kwargs=arguments)
    else:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=arguments)


def cast(backbone: Backbone, dtype: Dtype) -> None:
    """Change the type of a backbone's weights, which is also the type that it is saved in."""
    backbone.model.to(getattr(torch, dtype))
