"""Blocks of a model of transformers: finding them, and getting their outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from torch import Tensor, nn

from lexicept.errors import InputError
from lexicept.models.windows import UNLIMITED

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

    It is a forward hook that a block keeps for good, so that listening changes no shared module.
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
