"""Triton kernels of heads, for a GPU. Tests run them in Triton's interpreter and compile them; what
they gain on a GPU is not measured yet (``benchmarks/gpu.py``).

This package imports no Triton; its modules do.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

PRECISIONS = (torch.float32, torch.float16, torch.bfloat16)
"""Precisions of operands. Sums are always in single precision."""


def usable(*tensors: Tensor) -> bool:
    """Return whether the kernels take these: on an NVIDIA GPU since Ampere, with Triton."""
    return all(t.is_cuda and t.dtype in PRECISIONS and _runs(t.device) for t in tensors)


@cache
def _runs(device: torch.device) -> bool:
    nvidia = torch.version.cuda is not None and torch.cuda.get_device_capability(device) >= (8, 0)
    return nvidia and find_spec("triton") is not None
