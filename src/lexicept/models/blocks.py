"""Blocks of a model of transformers: finding them, and getting their outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, get_args

import torch
from torch import Tensor, nn

from lexicept.errors import InputError
from lexicept.models.sources import AttentionKernel, Dtype
from lexicept.models.windows import UNLIMITED

if TYPE_CHECKING:
    from lexicept.models.backbone import Backbone

MOST_BLOCKS = 1000
"""Limit on the blocks of a model: a damaged configuration could ask for billions."""

_POSITIONS = ("position_embeddings", "embed_positions", "wpe")

Change = Callable[[Tensor], Tensor | None]

_LISTENERS: ContextVar[tuple[tuple[nn.Module, Change], ...]] = ContextVar("listeners", default=())
"""The functions that get the outputs of blocks, by block; every thread has its own."""


def find_blocks(model: nn.Module, num_layers: int) -> nn.ModuleList:
    """Return the model's list of transformer blocks. Raises InputError if it has none."""
    for module in model.modules():
        if isinstance(module, nn.ModuleList) and len(module) == num_layers:
            return module
    raise InputError(f"{type(model).__name__} has no list of {num_layers} transformer blocks")


def count_positions(model: nn.Module) -> int:
    """Return the number of positions that a model's table of position embeddings has rows for.

    It is ``UNLIMITED`` for a model without such a table.
    """
    for name, module in model.named_modules():
        if name.endswith(_POSITIONS) and isinstance(module, nn.Embedding):
            # Some count from the row after the padding's, as RoBERTa's, or from a fixed row.
            padding = -1 if module.padding_idx is None else module.padding_idx
            return module.num_embeddings - int(getattr(module, "offset", padding + 1))
    return UNLIMITED


def tell(block: nn.Module, _args: Any, output: Any) -> Any:
    """Pass a block's output to this thread's listeners; return what they replace it with.

    It is a forward hook that a block always keeps, so that listening changes no shared module.
    """
    for listened, change in _LISTENERS.get():
        if listened is block:
            alone = isinstance(output, Tensor)
            changed = change(output if alone else output[0])
            if changed is not None:
                output = changed if alone else (changed, *output[1:])
    return output


@contextmanager
def listening(block: nn.Module, change: Change) -> Iterator[None]:
    """Pass this thread's outputs of a block that has the hook ``tell`` to a function.

    Args:
        change: takes the output [windows, length, d] and returns its replacement, or None to keep
            it.
    """
    added = _LISTENERS.set((*_LISTENERS.get(), (block, change)))
    try:
        yield
    finally:
        _LISTENERS.reset(added)


def trim(config: Any, num_layers: int) -> None:
    """Shorten the lists of a configuration that still have an entry for each block that was cut,
    which transformers can't save."""
    for kinds in ("layer_types", "mlp_layer_types"):
        if getattr(config, kinds, None) is not None:
            setattr(config, kinds, getattr(config, kinds)[:num_layers])


def check_blocks(name: str, config: Any) -> None:
    """Raise InputError for a configuration of more than ``MOST_BLOCKS`` blocks."""
    blocks = getattr(config.get_text_config(), "num_hidden_layers", 0)
    if not isinstance(blocks, int) or blocks > MOST_BLOCKS:
        raise InputError(f"{name}: a model of {blocks!r:.40} blocks")


def sees_ahead(backbone: Any, padding: int) -> bool:
    """Return whether a state depends on the token after it, tested on three tokens.

    Args:
        backbone: with a ``tokenizer``, and ``states`` of token ids and an attention mask.
        padding: places of padding after the three tokens.
    """
    special = set(backbone.tokenizer.all_special_ids)
    ordinary = [token for token in range(len(backbone.tokenizer)) if token not in special]
    one, other = ordinary[len(ordinary) // 3], ordinary[2 * len(ordinary) // 3]
    ids = torch.full((2, 3 + padding), one, device=backbone.model.device)
    ids[1, 2] = other
    mask = torch.ones_like(ids)
    mask[:, 3:] = 0
    with torch.no_grad():
        states = backbone.states(ids, mask)
    _, middle, last, *_ = (states[0] - states[1]).norm(dim=1).tolist()
    return bool(middle > 1e-3 * last)  # rounding may differ between the rows of a batch


def check_attention(backbone: Any) -> None:
    """Switch causal masking on or off where a backbone does not attend as it should.

    Args:
        backbone: as for ``sees_ahead``, with a ``model``, and ``bidirectional``: True if tokens
            shall attend to those after them.

    Raises:
        InputError: the model can't attend so.
    """
    if not _attends_as_wanted(backbone):
        backbone.model.config.is_causal = not backbone.bidirectional
        if not _attends_as_wanted(backbone):
            kind = "bidirectional" if backbone.bidirectional else "causal"
            raise InputError(f"{type(backbone.model).__name__} has no {kind} attention")


def _attends_as_wanted(backbone: Any) -> bool:
    # Both are tested: without padding the library may leave masking to the kernel.
    return all(sees_ahead(backbone, padding) == backbone.bidirectional for padding in (0, 1))


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


def cast_weights(backbone: Backbone, dtype: Dtype) -> None:
    """Change the type of a backbone's weights, which is also the type that it is saved in."""
    backbone.model.to(getattr(torch, dtype))
