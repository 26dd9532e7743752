"""Generations: numbered folders beside a manifest that names the current one.

Their names have a word in them: a folder that a user keeps there, such as ``2024``, is never taken
for one.
"""

from __future__ import annotations

import re
from pathlib import Path

_NAME = re.compile(r"generation-(\d{6,})")


def generation_name(number: int) -> str:
    """Return the name of a generation's folder."""
    return f"generation-{number:06d}"


def generation_number(name: object) -> int | None:
    """Return the number in a generation's name; None for anything else."""
    match = _NAME.fullmatch(name) if isinstance(name, str) else None
    return None if match is None else int(match[1])


def generations(folder: Path) -> list[Path]:
    """Return the generations in a folder, in order."""
    numbered = ((generation_number(entry.name), entry) for entry in folder.iterdir())
    return [entry for _, entry in sorted((n, e) for n, e in numbered if n is not None)]
