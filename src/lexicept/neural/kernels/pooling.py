"""A linear map over tokens, pooled to texts, without an array of tokens × vocabulary."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from lexicept.neural.kernels.linear_outputs import (
    fire,
    largest_outputs,
    tokens_at_once,
    top_activations,
    top_columns_reference,
)
from lexicept.neural.kernels.sparse_linear import chosen_outputs, sum_by_group


class Activations(NamedTuple):
    """Operands of activations ``a_i = f(matrix · x_i + bias)`` of tokens, of each token's k
    largest."""

    x: Tensor
    """Tokens [n, d]."""
    text: Tensor
    """The text of each token [n]."""
    num_texts: int
    """Texts, some perhaps without tokens."""
    matrix: Tensor
    """[V, d]."""
    bias: Tensor
    """[V]."""
    k: int | None
    """Entries of a token that count; None for all V."""
    threshold: Tensor | None = None
    """[V], at least 0; f(v) is v above it and 0 elsewhere. None is ReLU. It gets no gradient."""

    @property
    def all_count(self) -> bool:
        """True if all entries of a token count."""
        return self.k is None or self.k >= len(self.matrix)

    def dense(self) -> Tensor:
        """Compute the activations [n, V] in the matrix's precision, which sums need, also under
        autocast."""
        x, _, _, matrix, bias, k, threshold = self
        acts = fire(torch.addmm(bias, x, matrix.T), threshold).to(matrix.dtype)
        if k is None or self.all_count:
            return acts
        columns = top_columns_reference(acts.detach(), k)
        return acts * torch.zeros_like(acts).scatter(1, columns, 1.0)

    def largest(self) -> tuple[Tensor, Tensor]:
        """Compute each token's k largest, without gradient, and their dimensions, both [n, k]."""
        x, _, _, matrix, bias, k, threshold = self
        acts, columns = top_activations(x, matrix, bias, k, threshold)
        return acts.to(x.dtype), columns

    def cells(self, columns: Tensor) -> Tensor:
        """Return the cells [n * k] of tokens' dimensions [n, k] in a result [num_texts * V]."""
        return (self.text[:, None] * len(self.matrix) + columns).ravel()


def pool_sum_reference(tokens: Activations, *, log: bool) -> Tensor:
    """Return ``Σ_i a_i`` over each text's tokens [num_texts, V], or ``Σ_i log(1 + a_i)``."""
    acts = tokens.dense()
    acts = torch.log1p(acts) if log else acts
    return acts.new_zeros(tokens.num_texts, len(tokens.matrix)).index_add(0, tokens.text, acts)


def root_of_sums(sums: Tensor) -> Tensor:
    """Return ``√s`` of sums of activations; where nothing fires the gradient is 0, not infinite."""
    nothing = sums == 0
    return torch.sqrt(sums.masked_fill(nothing, 1.0)).masked_fill(nothing, 0.0)


def pool_max(tokens: Activations) -> Tensor:
    """Return ``max_i a_i`` over each text's tokens [num_texts, V]; zero where nothing fires.

    The gradient reaches one token per maximum: the first among tokens with equal activations.
    Under autocast values are still of the precision of the matrix."""
    tokens = tokens._replace(x=tokens.x.to(tokens.matrix.dtype))  # autocast leaves them different
    if torch.is_grad_enabled():
        pooled: Tensor = _PoolMax.apply(  # type: ignore[no-untyped-call]
            tokens.x, tokens.matrix, tokens.bias, tokens
        )
        return pooled
    if tokens.all_count:
        return _pool_all(tokens)[0]
    return _scattered(tokens)[0].view(tokens.num_texts, len(tokens.matrix))


def pool_sum(tokens: Activations, *, log: bool) -> Tensor:
    """Fast version of ``pool_sum_reference``.

    With k only the k largest of a token are computed, in the precision of the matrix. Without, the
    backward pass recomputes activations.
    """
    if not tokens.all_count:
        return _sum_top(tokens._replace(x=tokens.x.to(tokens.matrix.dtype)), log)
    x, text = tokens.x, tokens.text
    pooled = tokens.matrix.new_zeros(tokens.num_texts, len(tokens.matrix))
    for chunk in torch.arange(len(x), device=x.device).split(tokens_at_once(tokens.matrix)):
        some = tokens._replace(x=x[chunk], text=text[chunk])
        pooled = pooled + checkpoint(pool_sum_reference, some, log=log, use_reentrant=False)
    return pooled


def _sum_top(tokens: Activations, log: bool) -> Tensor:
    x, _, num_texts, matrix, bias, _, threshold = tokens
    acts, columns = tokens.largest()
    if torch.is_grad_enabled():
        with torch.autocast(x.device.type, enabled=False):
            pre = chosen_outputs(x, matrix, bias, columns)
        acts = fire(pre, None if threshold is None else threshold[columns])
    acts = torch.log1p(acts) if log else acts
    # Every activation is added at its text and dimension.
    flat = acts.new_zeros(num_texts * len(matrix)).index_add(0, tokens.cells(columns), acts.ravel())
    return flat.view(num_texts, len(matrix))


class _PoolMax(torch.autograd.Function):
    """The pooled result; x, matrix and bias, which get gradients, are those of the tokens."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, matrix: Tensor, bias: Tensor, tokens: Activations) -> Tensor:
        if tokens.all_count:
            pooled, token = _pool_all(tokens)
            where, dimension = torch.nonzero(pooled, as_tuple=True)  # a NaN must not get lost
            token = token[where, dimension]
        else:
            pooled, (token, where, dimension) = _pool_top(tokens)
        ctx.save_for_backward(x, matrix, token, where, dimension)
        return pooled

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, matrix, token, where, dimension = ctx.saved_tensors
        along = gradient[where, dimension]
        of_x, of_rows, of_bias, _ = ctx.needs_input_grad
        return (
            sum_by_group(along, token, dimension, matrix, len(x)) if of_x else None,
            sum_by_group(along, dimension, token, x, len(matrix)) if of_rows else None,
            matrix.new_zeros(len(matrix)).index_add(0, dimension, along) if of_bias else None,
            None,
        )


Winners = tuple[Tensor, Tensor, Tensor]
"""Token, text and dimension of every entry of the pooled result that is not 0."""


def _pool_all(tokens: Activations) -> tuple[Tensor, Tensor]:
    """Return the pooled result of all dimensions and its tokens, both [num_texts, V]: f is
    monotone, so the maximum may come first."""
    x, text, num_texts, matrix, bias, _, threshold = tokens
    order = torch.argsort(text, stable=True)
    pooled, token = largest_outputs(x[order], text[order], num_texts, matrix, bias)
    if threshold is not None:
        pooled = fire(pooled, threshold)
    return pooled, order[token] if len(order) else token


def _scattered(tokens: Activations) -> tuple[Tensor, Tensor, Tensor]:
    """Return the flat pooled result, and the values of each token's k largest and their cells."""
    largest, columns = tokens.largest()
    acts, cells = largest.ravel(), tokens.cells(columns)
    flat = acts.new_zeros(tokens.num_texts * len(tokens.matrix))
    return flat.scatter_reduce(0, cells, acts, "amax"), acts, cells


def _pool_top(tokens: Activations) -> tuple[Tensor, Winners]:
    assert tokens.k is not None
    flat, acts, cells = _scattered(tokens)
    size = len(tokens.matrix)
    won = torch.nonzero(((acts == flat[cells]) & (acts > 0)) | acts.isnan()).ravel()
    # Several tokens may reach the same maximum: the first one counts.
    distinct, group = torch.unique(cells[won], return_inverse=True)
    first = torch.full_like(distinct, len(cells)).scatter_reduce(0, group, won, "amin")
    return flat.view(tokens.num_texts, size), (first // tokens.k, distinct // size, distinct % size)
