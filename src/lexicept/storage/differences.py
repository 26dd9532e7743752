"""Differences of JSON values, in words."""

from __future__ import annotations

import json
import re
from typing import Any


def first_difference(before: Any, now: Any, name: str = "") -> str | None:
    """Say in a few words which of two JSON values' fields differs first; None if none does."""
    if before == now:
        return None
    if isinstance(before, dict) and isinstance(now, dict):
        for key in {**before, **now}:
            inner = f"{name}.{key}" if name else str(key)
            if said := first_difference(before.get(key, _ABSENT), now.get(key, _ABSENT), inner):
                return said
    if isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for number, (one, other) in enumerate(zip(before, now, strict=True)):
            if said := first_difference(one, other, f"{name}[{number}]"):
                return said
    return f"{name} was {_short(before)} and is now {_short(now)}"


_ABSENT = object()
"""The value of a field that only one side has."""


def _short(value: Any) -> str:
    if value is _ABSENT:
        return "absent"
    if isinstance(value, str) and re.fullmatch(r"[0-9a-f]{64}", value):
        return f"{value[:12]}… (a checksum)"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:79]}…"
