"""Where in a model an SAE reads its states, as releases name it."""

from __future__ import annotations

import re

_BLOCK = re.compile(r"(?:^|\.)(?:blocks|layers|layer|h)\.(\d+)((?:\.\w+)*)$")
_AFTER_A_BLOCK = ("", ".output", ".hook_resid_post")


def block_of(hook: str | None) -> int | None:
    """The block that a hook is in, counted from 0, as releases count; None where it names none."""
    found = _BLOCK.search(hook or "")
    return int(found[1]) if found else None


def layer_of(hook: str | None) -> int | None:
    """Blocks that are run before the state at a hook: ``blocks.8.hook_resid_post``, the output of
    block 8, is the state after 9 blocks. None where it is not a state between blocks."""
    found = _BLOCK.search(hook or "")
    if found and found[2] in _AFTER_A_BLOCK:
        return int(found[1]) + 1
    return int(found[1]) if found and found[2] == ".hook_resid_pre" else None
