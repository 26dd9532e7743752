"""Configurations from YAML files, mappings and ``NAME=VALUE`` changes."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from typing import Any

from lexicept.errors import InputError
from lexicept.storage.yaml_text import parse_yaml, read_yaml
from lexicept.training.config import TrainingConfig
from lexicept.training.settings import from_mapping, to_mapping

ConfigSource = TrainingConfig | Mapping[str, Any] | str | os.PathLike[str]
"""A configuration, nested mappings as in a YAML file, or the path of a YAML file."""


def load_config(source: ConfigSource, changes: Sequence[str] = ()) -> TrainingConfig:
    """Read a configuration.

    Args:
        changes: ``NAME=VALUE`` each, such as ``data.corpus=PATH``, with the value in YAML; a change
            replaces the source's value.

    Raises:
        InputError: no such file, not YAML, an unknown name, with the nearest name, a value of
            another type or out of range, or a malformed change.
    """
    if isinstance(source, TrainingConfig):
        return _changed(to_mapping(source), changes)
    if isinstance(source, Mapping):
        return _changed(copy.deepcopy(dict(source)), changes)
    content = read_yaml(source)
    try:
        return _changed(content, changes)
    except ValueError as error:  # an InputError, or a number with more digits than Python prints
        raise InputError(f"{os.fspath(source)}: {error}") from None


def _changed(values: Any, changes: Sequence[str]) -> TrainingConfig:
    for assignment in changes:
        _change(values, assignment)
    return from_mapping(TrainingConfig, values)


def _change(content: Any, assignment: str) -> None:
    name, equals, value = assignment.partition("=")
    if not equals:
        raise InputError(f"{assignment!r} is not of the form data.corpus=PATH")
    *outer, last = name.split(".")
    section = content
    for key in outer:
        section = section.setdefault(key, {}) if isinstance(section, dict) else None
    if not isinstance(section, dict):
        raise InputError(f"{assignment!r}: there is no mapping {'.'.join(outer)!r}")
    try:
        section[last] = parse_yaml(value)
    except InputError as error:
        raise InputError(f"{assignment!r}: {error}") from None
