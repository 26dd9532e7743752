"""Files of tensors: shapes are read from headers, values when they are needed, and checked."""

from __future__ import annotations

import math
import zipfile
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from torch import Tensor

from lexicept.errors import InputError

Shape = tuple[int, ...]

DEFLATE = 1032
"""Largest ratio of deflate compression; a header that claims more is damaged."""


class Tensors(ABC):
    """The tensors of one file.

    Raises:
        InputError: the file is missing, damaged, or of another type.
    """

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
        """Return the shape of a tensor, from the header.

        Raises:
            InputError: the tensor is missing or empty, or has another number of dimensions.
        """
        shape = self._present(name)
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
        """Read a tensor, as float32.

        Raises:
            InputError: the tensor is missing or damaged, or holds a value that is not finite.
        """
        self._present(name)
        try:
            tensor = self._read(name).to(torch.float32, copy=True)
        except Exception as error:
            raise self._unreadable(error) from None
        if not bool(torch.isfinite(tensor).all()):
            raise InputError(f"{self.path}: {name} holds values that are not finite")
        return tensor

    def _present(self, name: str) -> Shape:
        if name not in self.shapes:
            there = ", ".join(sorted(self.shapes)) or "nothing"
            raise InputError(f"{self.path}: {name} is missing; there is {there}")
        return self.shapes[name]

    def _unreadable(self, error: Exception) -> InputError:
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        return InputError(f"{self.path}: can't be read: {reason:.200}")

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
                    shape, dtype = _npy_header(member)
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
        self._state: dict[Any, Any] = state
        return {name: tuple(t.shape) for name, t in state.items() if _is_number(name, t)}

    def _read(self, name: str) -> Tensor:
        tensor: Tensor = self._state[name]
        return tensor


def _npy_header(member: Any) -> tuple[Shape, np.dtype[Any]]:
    version = np.lib.format.read_magic(member)
    if version == (1, 0):
        shape, _, dtype = np.lib.format.read_array_header_1_0(member)
    else:
        shape, _, dtype = np.lib.format.read_array_header_2_0(member)
    return shape, dtype


def _is_number(name: Any, value: Any) -> bool:
    return (
        isinstance(name, str)
        and isinstance(value, Tensor)
        and value.layout == torch.strided
        and value.device.type == "cpu"
        and not value.is_quantized
        and not value.is_complex()
    )
