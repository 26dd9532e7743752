"""Chosen outputs and sums over them equal their references."""

import pytest
import torch
from torch import Tensor

from lexicept.neural.kernels.sparse_linear import chosen_outputs, sum_by_group, sum_chosen


def chosen_outputs_reference(x: Tensor, matrix: Tensor, bias: Tensor, columns: Tensor) -> Tensor:
    """``chosen_outputs``, over gathered rows."""
    return (x[:, None] * matrix[columns]).sum(dim=2) + bias[columns]


def sum_chosen_reference(weights: Tensor, columns: Tensor, matrix: Tensor) -> Tensor:
    """``sum_chosen``, over gathered rows."""
    return (weights[:, :, None] * matrix[columns]).sum(dim=1)


def draw(n, d, size, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    shapes = ((n, d), (size, d), (size,), (size,))
    return [torch.randn(*shape, generator=generator, dtype=dtype) for shape in shapes]


def test_by_hand():
    x = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    weights, bias = torch.tensor([[1.0, 1.0], [-1.0, 3.0]]), torch.tensor([0.5, 0.0])
    chosen_columns = torch.tensor([[0, 0], [1, 0]])
    outputs = chosen_outputs(x, weights, bias, chosen_columns)
    assert outputs.tolist() == [[1.5, 1.5], [6.0, 2.5]]
    assert sum_chosen(outputs, chosen_columns, weights).tolist() == [
        [3.0, 3.0],
        [2.5 - 6.0, 2.5 + 18.0],
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("k", [1, 30])
@pytest.mark.parametrize(("n", "size"), [(6, 9), (70, 100), (0, 9)])
def test_outputs_and_sums_with_gradients(dtype, k, n, size):
    """Of as many outputs of every token, also twice the same."""
    x, weights, bias, other = draw(n, 5, size, dtype=dtype)
    columns = torch.randint(size, (n, k), generator=torch.Generator().manual_seed(1))
    results = []
    for outputs_of, sums_of in (
        (chosen_outputs, sum_chosen),
        (chosen_outputs_reference, sum_chosen_reference),
    ):
        inputs = [
            tensor.clone().requires_grad_()
            for tensor in (x, weights, bias, weights + other[:, None])
        ]
        outputs = outputs_of(*inputs[:3], columns)  # type: ignore[call-arg]
        sums = sums_of(outputs.square(), columns, inputs[3])
        direction = torch.linspace(-1, 2, sums.numel(), dtype=dtype).view_as(sums)
        results.append([outputs, sums, *torch.autograd.grad((sums * direction).sum(), inputs)])
    for ours, expected in zip(*results, strict=True):
        assert ours.dtype == expected.dtype
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-4)
    assert n == 0 or results[0][2].any()


def test_tokens_of_lower_precision_are_multiplied_in_that_of_the_rows():
    x, weights, bias, _ = draw(5, 3, 7)
    columns = torch.arange(10).view(5, 2) % 7
    outputs = chosen_outputs(x.bfloat16(), weights, bias, columns)
    assert outputs.dtype == torch.float32
    expected = chosen_outputs_reference(x.bfloat16().float(), weights, bias, columns)
    assert torch.allclose(outputs, expected)


def test_rows_that_nobody_chose_get_no_gradient():
    x, weights, bias, _ = (tensor.requires_grad_() for tensor in draw(5, 3, 4))
    chosen_outputs(x, weights, bias, torch.tensor([[0, 2]]).expand(5, 2)).sum().backward()
    assert (weights.grad[[1, 3]] == 0).all()
    assert (bias.grad == torch.tensor([5.0, 0, 5, 0])).all()


def test_sums_by_group_by_hand():
    directions = torch.tensor([[1.0, 0], [0, 1], [5, 5]])
    weights, group = torch.tensor([2.0, 3, 4]), torch.tensor([3, 0, 3])
    summed = sum_by_group(weights, group, torch.tensor([0, 1, 1]), directions, 4)
    assert summed.tolist() == [[0.0, 3], [0, 0], [0, 0], [2, 4]]
    assert sum_by_group(weights[:0], group[:0], group[:0], directions, 2).tolist() == [
        [0.0, 0],
        [0, 0],
    ]
    assert sum_by_group(weights[:0], group[:0], group[:0], directions, 0).shape == (0, 2)
