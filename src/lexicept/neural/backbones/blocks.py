"""Blocks of a model of transformers: outputs, attention, memory, mixed precision."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from lexicept.encoding.windows import UNLIMITED
from lexicept.errors import InputError

MOST_BLOCKS = 1000
"""Limit on the blocks of a model: a damaged configuration could ask for billions."""

_POSITIONS = ("position_embeddings", "embed_positions", "wpe")

Change = Callable[[Tensor], Tensor | None]

_LISTENERS: ContextVar[tuple[tuple[nn.Module, Change], ...]] = ContextVar("listeners", default=())
"""Listeners to the outputs of blocks, with the block; a tuple for each thread."""


def find_blocks(model: nn.Module, num_layers: int) -> nn.ModuleList:
    """Return the model's list of transformer blocks. Raises InputError for a model without."""
    for module in model.modules():
        if isinstance(module, nn.ModuleList) and len(module) == num_layers:
            return module
    raise InputError(f"{type(model).__name__} has no list of {num_layers} transformer blocks")


def count_positions(model: nn.Module) -> int:
    """Return the size of a model's table of position embeddings; ``UNLIMITED`` without it."""
    for name, module in model.named_modules():
        if name.endswith(_POSITIONS) and isinstance(module, nn.Embedding):
            # RoBERTa counts from the row after the padding's, other models from a fixed row.
            padding = -1 if module.padding_idx is None else module.padding_idx
            return module.num_embeddings - int(getattr(module, "offset", padding + 1))
    return UNLIMITED


def tell(block: nn.Module, _args: Any, output: Any) -> Any:
    """Pass a block's output to this thread's listeners; return the last replacement.

    A permanent forward hook of a block: listening changes no shared module.
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
    """Pass this thread's outputs [windows, length, d] of a block with the hook ``tell`` to a
    function, which returns a replacement or None."""
    added = _LISTENERS.set((*_LISTENERS.get(), (block, change)))
    try:
        yield
    finally:
        _LISTENERS.reset(added)


def trim(config: Any, num_layers: int) -> None:
    """Shorten a configuration's lists to the run blocks; transformers can't save longer lists."""
    for setting in ("layer_types", "mlp_layer_types"):
        if getattr(config, setting, None) is not None:
            setattr(config, setting, getattr(config, setting)[:num_layers])


def check_blocks(name: str, config: Any) -> None:
    """Raise InputError for a configuration of more than ``MOST_BLOCKS`` blocks."""
    blocks = getattr(config.get_text_config(), "num_hidden_layers", 0)
    if not isinstance(blocks, int) or blocks > MOST_BLOCKS:
        raise InputError(f"{name}: a model of {blocks!r:.40} blocks")


def sees_ahead(backbone: Any, padding: int) -> bool:
    """Return whether a state of a backbone depends on the next token, tested on three tokens and
    ``padding`` places of padding."""
    special = set(backbone.tokenizer.all_special_ids)
    ordinary = [token for token in range(len(backbone.tokenizer)) if token not in special]
    filler, substitute = ordinary[len(ordinary) // 3], ordinary[2 * len(ordinary) // 3]
    ids = torch.full((2, 3 + padding), filler, device=backbone.model.device)
    ids[1, 2] = substitute
    mask = torch.ones_like(ids)
    mask[:, 3:] = 0
    with torch.no_grad():
        states = backbone.states(ids, mask)
    _, middle, changed, *_ = (states[0] - states[1]).norm(dim=1).tolist()
    return bool(middle > 1e-3 * changed)  # rounding may differ between the rows of a batch


def check_attention(backbone: Any) -> None:
    """Switch causal masking on or off until attention agrees with ``backbone.bidirectional``.
    Raises InputError for a model without such attention."""
    if not _attends_as_wanted(backbone):
        backbone.model.config.is_causal = not backbone.bidirectional
        if not _attends_as_wanted(backbone):
            direction = "bidirectional" if backbone.bidirectional else "causal"
            raise InputError(f"{type(backbone.model).__name__} has no {direction} attention")


def _attends_as_wanted(backbone: Any) -> bool:
    # Both are tested: without padding the library may leave masking to the kernel.
    return all(sees_ahead(backbone, padding) == backbone.bidirectional for padding in (0, 1))


def check_checkpointing(backbone: Any) -> None:
    """Raise InputError for a model whose class has no gradient checkpointing."""
    if not backbone.model.supports_gradient_checkpointing:
        class_name = type(backbone.model).__name__
        raise InputError(f"{backbone.source}: {class_name} has no gradient checkpointing")


def checkpoint_blocks(backbone: Any) -> None:
    """Keep only the inputs of blocks for the backward pass, which computes all else again (Chen et
    al. 2016): a third more time for far less memory. Raises InputError for a model without gradient
    checkpointing."""
    check_checkpointing(backbone)
    model = backbone.model
    # Reentrant checkpoints would detach the states that the hook of the last block reads.
    arguments = {"use_reentrant": False}
    if hasattr(model, "activation_checkpointing_enable"):  # since transformers 5.23
        model.activation_checkpointing_enable(activation_checkpointing_kwargs=arguments)
    else:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=arguments)


@cache
def multiplies_bfloat16() -> bool:
    """Return whether this CPU has instructions that multiply bfloat16; torch 2.6 knows none."""
    capabilities: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    return any(capabilities.get(name) for name in ("avx512_bf16", "amx_bf16"))


def has_bfloat16(device: torch.device) -> bool:
    """Return whether a device multiplies bfloat16: emulation is slower than single precision."""
    return multiplies_bfloat16() if device.type == "cpu" else torch.cuda.is_bf16_supported(False)


def autocast(device: torch.device, bf16: bool) -> AbstractContextManager[object]:
    """Multiply matrices in bfloat16, if ``bf16`` is true and the device multiplies bfloat16."""
    if not (bf16 and has_bfloat16(device)):
        return nullcontext()
    return torch.autocast(device.type, torch.bfloat16)
