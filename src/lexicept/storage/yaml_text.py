"""YAML files, read within limits: a few lines of aliases may stand for more than memory holds."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import yaml

from lexicept.errors import InputError, message_of

LARGEST = 10_000
"""Most values of a file, where an alias counts as all values that it stands for."""

DEEPEST = 100
"""Largest number of values inside each other."""


class _Bounded(yaml.SafeLoader):  # type: ignore[misc]
    """A loader that refuses too many values, or values too deep in each other, as they come."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._values = self._depth = 0
        self._sizes: dict[int, int] = {}

    def compose_node(self, parent: Any, index: Any) -> Any:
        alias = self.check_event(yaml.AliasEvent)
        before = self._values
        self._depth += 1
        if self._depth > DEEPEST:
            raise yaml.YAMLError(f"more than {DEEPEST} values inside each other")
        node = super().compose_node(parent, index)
        self._depth -= 1
        # The values inside a node are those composed since ``before``; an alias repeats them.
        if not alias:
            self._values += 1
            self._sizes[id(node)] = self._values - before
        elif id(node) in self._sizes:
            self._values += self._sizes[id(node)]
        else:
            raise yaml.YAMLError("a value that contains itself")
        if self._values > LARGEST:
            raise yaml.YAMLError(f"more than {LARGEST:,} values")
        return node


def parse_yaml(text: str) -> Any:
    """Return the content of YAML text. Raises InputError for other texts, and for more than the
    limits of this module."""
    try:
        return yaml.load(text, _Bounded)
    except yaml.MarkedYAMLError as error:
        prefix = "" if error.problem_mark is None else f"line {error.problem_mark.line + 1}: "
        raise InputError(f"not YAML: {prefix}{error.problem or error.context}") from None
    except Exception as error:  # PyYAML makes dates and numbers of text, and fails in many ways
        raise InputError(f"not YAML: {message_of(error)}") from None


def read_yaml(path: str | os.PathLike[str]) -> Any:
    """Return a YAML file's content. Raises as ``parse_yaml``, and InputError if unreadable."""
    try:
        return parse_yaml(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8: {error.reason}") from None
    except ValueError as error:  # an InputError, or a NUL in the path
        raise InputError(f"{path}: {error}") from None
