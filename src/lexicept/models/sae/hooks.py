"""Hooks: the places in a model whose states SAEs read, as releases name them."""

from __future__ import annotations

import re

_BLOCK = re.compile(r"(?:^|\.)(?:blocks|layers|layer|h)\.(\d+)((?:\.\w+)*)$")
_BEFORE_A_BLOCK = (".hook_resid_pre", ".hook_in")
_AFTER_A_BLOCK = ("", ".output", ".hook_resid_post", ".hook_out")
"""Names of Hugging Face's modules, TransformerLens's, and those of its version 3."""


def block_of(hook: str | None) -> int | None:
    """Return the block of a hook, counted from 0 as releases do; None if it names no block."""
    match = _BLOCK.search(hook or "")
    return int(match[1]) if match else None


def layer_of(hook: str | None) -> int | None:
    """Return the number of blocks before a hook; None if it is not between two blocks.

    ``blocks.8.hook_resid_post``, the output of block 8, is the state after 9 blocks.
    """
    match = _BLOCK.search(hook or "")
    if match and match[2] in _AFTER_A_BLOCK:
        return int(match[1]) + 1
    return int(match[1]) if match and match[2] in _BEFORE_A_BLOCK else None
