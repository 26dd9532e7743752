"""An SAE's files: a JSON configuration with checked types, and tensors with checked shapes."""

from __future__ import annotations

import math
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from safetensors import safe_open
from torch import Tensor

from lexicept.checks import Count, check
from lexicept.errors import InputError, first_line_of
from lexicept.storage.files import read_json

T = TypeVar("T")
Shape = tuple[int, ...]

DEFLATE = 1032
"""Largest ratio of deflate compression; a header that claims more is damaged."""


@dataclass(frozen=True)
class Config:
    """A JSON object, or one of its sections."""

    source: str
    values: dict[str, Any]

    @classmethod
    def read(cls, path: Path) -> Config:
        """Read a file. Raise InputError unless it holds a JSON object."""
        return cls(str(path), read_json(path, InputError))

    def get(self, name: str, value_type: type[T], default: T | None = None) -> T:
        """Return a value. Raise InputError for another type, a whole number below 1, or a missing
        value without a default."""
        value = self.values.get(name)  # null counts as missing: SAELens writes it for defaults
        if value is None:
            value = default
        if value is None:
            raise InputError(f"{self.source}: {name} is missing")
        try:
            checked: T = check(name, value, Count if value_type is int else value_type)
        except InputError as error:
            raise InputError(f"{self.source}: {error}") from None
        return checked

    def section(self, name: str) -> Config:
        """Return a nested object; an empty one if it is missing."""
        return Config(f"{self.source}, {name}", self.get(name, dict, {}))

    def text(self, *names: str) -> str | None:
        """Return the first of several values that is a string; None if none is."""
        values = (self.values.get(name) for name in names)
        return next((value for value in values if isinstance(value, str)), None)

    def require(self, name: str, supported: Iterable[Any], default: Any = None) -> None:
        """Raise InputError unless a value is supported."""
        value, supported = self.values.get(name, default), tuple(supported)
        if value not in supported:
            names = " or ".join(map(repr, supported))
            raise InputError(f"{self.source}: {name} is {value!r}; only {names} can be loaded")


class Tensors(ABC):
    """The tensors of one file. Shapes are read from the header, values when they are needed. Raises
    InputError if the file is missing, damaged, or of another type."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_file():
            raise InputError(f"{path}: there is no such file")
        # For damaged files, each library raises errors of many types.
        try:
            self.shapes = self._shapes()
        except Exception as error:
            raise self._unreadable(error) from None

    def __contains__(self, name: str) -> bool:
        return name in self.shapes

    def shape(self, name: str, dimensions: int = 2) -> Shape:
        """Return the shape of a tensor. Raise InputError for a missing or empty tensor, or another
        number of dimensions."""
        if name not in self.shapes:
            there = ", ".join(sorted(self.shapes)) or "nothing"
            raise InputError(f"{self.path}: {name} is missing; there is {there}")
        shape = self.shapes[name]
        if len(shape) != dimensions or 0 in shape:
            raise InputError(
                f"{self.path}: {name} is {list(shape)}, expected {dimensions} dimensions above 0"
            )
        return shape

    def expect(self, name: str, *shape: int) -> None:
        """Raise InputError unless a tensor has the expected shape."""
        actual = self.shape(name, len(shape))
        if actual != shape:
            raise InputError(f"{self.path}: {name} is {list(actual)}, expected {list(shape)}")

    def read(self, name: str) -> Tensor:
        """Read a tensor of ``shapes`` as float32. Raises InputError for damaged values."""
        try:
            tensor = self._read(name).to(torch.float32, copy=True)
        except Exception as error:
            raise self._unreadable(error) from None
        if not bool(torch.isfinite(tensor).all()):
            raise InputError(f"{self.path}: {name} holds values that are not finite")
        return tensor

    def _unreadable(self, error: Exception) -> InputError:
        return InputError(f"{self.path}: can't be read: {first_line_of(error):.200}")

    @abstractmethod
    def _shapes(self) -> dict[str, Shape]:
        """Return the shapes of all tensors of real numbers; may raise any error."""

    @abstractmethod
    def _read(self, name: str) -> Tensor:
        """Return a tensor of any floating-point type; may raise any error."""


class Safetensors(Tensors):
    """A ``.safetensors`` file."""

    def _shapes(self) -> dict[str, Shape]:
        with safe_open(self.path, "pt") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            real = ("F16", "BF16", "F32", "F64")
            return {n: tuple(s.get_shape()) for n, s in slices.items() if s.get_dtype() in real}

    def _read(self, name: str) -> Tensor:
        with safe_open(self.path, "pt") as file:
            tensor: Tensor = file.get_tensor(name)
        return tensor


class Npz(Tensors):
    """NumPy's ``.npz`` file, without pickled objects."""

    def _shapes(self) -> dict[str, Shape]:
        shapes = {}
        with zipfile.ZipFile(self.path) as archive:
            for info in archive.infolist():
                if not info.filename.endswith(".npy"):
                    continue
                with archive.open(info) as member:
                    version = np.lib.format.read_magic(member)
                    name = f"read_array_header_{1 if version == (1, 0) else 2}_0"
                    shape, _, dtype = getattr(np.lib.format, name)(member)
                    claimed = member.tell() + math.prod(shape) * dtype.itemsize
                if claimed != info.file_size or claimed > DEFLATE * info.compress_size:
                    raise ValueError(f"{info.filename} claims {claimed} bytes")
                if dtype.kind == "f":
                    shapes[info.filename.removesuffix(".npy")] = shape
        return shapes

    def _read(self, name: str) -> Tensor:
        with np.load(self.path, allow_pickle=False) as arrays:
            return torch.from_numpy(arrays[name])


class Pickled(Tensors):
    """A state dict that ``torch.save`` wrote, loaded with ``weights_only``."""

    def _shapes(self) -> dict[str, Shape]:
        state = torch.load(self.path, "cpu", weights_only=True, mmap=zipfile.is_zipfile(self.path))
        if not isinstance(state, dict):
            raise TypeError(f"a {type(state).__name__}, not a state dict")
        self._state = {str(name): t for name, t in state.items() if isinstance(t, Tensor)}
        return {name: tuple(t.shape) for name, t in self._state.items() if not t.is_complex()}

    def _read(self, name: str) -> Tensor:
        return self._state[name]
