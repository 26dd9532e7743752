"""The JSON file beside an SAE's weights, with values checked for their type."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lexicept.errors import InputError
from lexicept.storage.files import read_json

_KINDS: dict[type, str] = {bool: "true or false", str: "a string", dict: "an object"}


@dataclass(frozen=True)
class Config:
    """A JSON object, or one of its sections.

    Every method but ``optional_text`` raises InputError if a value has another type, or is missing
    and has no default.
    """

    place: str
    values: dict[str, Any]

    @classmethod
    def read(cls, path: Path) -> Config:
        """Read a file. Raise InputError unless it holds a JSON object."""
        return cls(str(path), read_json(path, InputError))

    def section(self, name: str) -> Config:
        """Return a nested object; an empty one if it is missing."""
        return Config(f"{self.place}, {name}", self._of_kind(name, dict, {}))

    def integer(self, name: str, default: int | None = None) -> int:
        """Return a whole number of at least 1."""
        value = self._value(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InputError(f"{self.place}: {name} must be a whole number above 0, not {value!r}")
        return value

    def number(self, name: str) -> float:
        """Return a finite number."""
        value = self._value(name, None)
        real = isinstance(value, int | float) and not isinstance(value, bool)
        if not real or not abs(value) <= sys.float_info.max:  # JSON has NaN, and any integer
            raise InputError(f"{self.place}: {name} must be a number, not {value!r}")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        """Return True or False."""
        return bool(self._of_kind(name, bool, default))

    def text(self, name: str, default: str | None = None) -> str:
        """Return a string."""
        return str(self._of_kind(name, str, default))

    def optional_text(self, *names: str) -> str | None:
        """Return the first of several values that is a string; None if none is."""
        values = (self.values.get(name) for name in names)
        return next((value for value in values if isinstance(value, str)), None)

    def require(self, name: str, *supported: Any, default: Any = None) -> None:
        """Raise InputError unless a value is supported."""
        value = self.values.get(name, default)
        if value not in supported:
            names = " or ".join(map(repr, supported))
            raise InputError(f"{self.place}: {name} is {value!r}; only {names} can be loaded")

    def _of_kind(self, name: str, kind: type, default: Any) -> Any:
        value = self._value(name, default)
        if not isinstance(value, kind):
            raise InputError(f"{self.place}: {name} must be {_KINDS[kind]}, not {value!r}")
        return value

    def _value(self, name: str, default: Any) -> Any:
        value = self.values.get(name)  # null counts as missing: SAELens writes it for defaults
        if value is None:
            value = default
        if value is None:
            raise InputError(f"{self.place}: {name} is missing")
        return value
