"""JumpReLU and the number of active latents over dense arrays, with their pseudo-derivatives."""

from typing import Any

import torch
from torch import Tensor


class Jump(torch.autograd.Function):
    """z [n, M] from p [n, M], θ [M] and ε [M].

    With a rectangle kernel K of bandwidth ε, θ gets ``−(θ/ε) K((p − θ)/ε)`` (equation 11).
    """

    @staticmethod
    def forward(ctx: Any, pre: Tensor, threshold: Tensor, bandwidth: Tensor) -> Tensor:
        ctx.save_for_backward(pre, threshold, bandwidth)
        return pre * (pre > threshold)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        pre, threshold, bandwidth = ctx.saved_tensors
        (gradient,) = gradients
        near = (pre - threshold).abs() < bandwidth / 2
        of_threshold = -threshold / bandwidth * (near * gradient).sum(dim=0)
        return gradient * (pre > threshold), of_threshold, None


class Count(torch.autograd.Function):
    """Number of p [n, M] above θ [M], with bandwidth ε [M]: one number [].

    θ gets ``−(1/ε) K((p − θ)/ε)`` (equation 12), p no gradient.
    """

    @staticmethod
    def forward(ctx: Any, pre: Tensor, threshold: Tensor, bandwidth: Tensor) -> Tensor:
        ctx.save_for_backward(pre, threshold, bandwidth)
        return (pre > threshold).sum().to(pre.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        pre, threshold, bandwidth = ctx.saved_tensors
        near = (pre - threshold).abs() < bandwidth / 2
        return None, -gradients[0] / bandwidth * near.sum(dim=0), None
