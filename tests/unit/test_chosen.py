import pytest
import torch

from lexicept.ops import sparse_linear
from lexicept.ops.sparse_linear import (
    chosen_outputs,
    chosen_outputs_reference,
    sum_by_group,
    sum_chosen,
    sum_chosen_reference,
)


def draw(n=5, d=3, size=7, k=2, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    x, rows, bias, weights = (
        torch.randn(*shape, generator=generator, dtype=dtype).requires_grad_()
        for shape in ((n, d), (size, d), (size,), (n, k))
    )
    return x, rows, bias, weights, torch.randint(size, (n, k), generator=generator)


def assert_same(fast, reference, inputs, *rest):
    ours, expected = fast(*inputs, *rest), reference(*inputs, *rest)
    assert ours.dtype == expected.dtype
    assert torch.allclose(ours, expected, atol=1e-5)
    direction = torch.linspace(-1, 2, ours.numel(), dtype=ours.dtype).view_as(ours)
    for a, b in zip(
        torch.autograd.grad((ours * direction).sum(), inputs),
        torch.autograd.grad((expected * direction).sum(), inputs),
        strict=True,
    ):
        assert torch.allclose(a, b, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("gathered", [1, 10**6])
@pytest.mark.parametrize(("n", "size", "k"), [(5, 7, 2), (0, 7, 2), (40, 1, 1), (9, 100, 30)])
def test_the_fast_twins_are_their_references(monkeypatch, dtype, gathered, n, size, k):
    monkeypatch.setattr(sparse_linear, "GATHERED", gathered)
    x, rows, bias, weights, places = draw(n, 3, size, k, dtype=dtype)
    assert_same(chosen_outputs, chosen_outputs_reference, (x, rows, bias), places)

    def fast(weights, rows):
        return sum_chosen(weights, places, rows)

    def reference(weights, rows):
        return sum_chosen_reference(weights, places, rows)

    assert_same(fast, reference, (weights, rows))


def test_tokens_of_lower_precision_are_multiplied_in_that_of_the_rows():
    x, rows, bias, _, places = draw(dtype=torch.float32)
    x = x.bfloat16()
    outputs = chosen_outputs(x, rows, bias, places)
    assert outputs.dtype == torch.float32
    assert torch.allclose(outputs, chosen_outputs_reference(x.float(), rows, bias, places))


def test_gradients_by_finite_differences():
    x, rows, bias, weights, places = draw()
    assert torch.autograd.gradcheck(lambda *a: chosen_outputs(*a, places), (x, rows, bias))
    assert torch.autograd.gradcheck(lambda w, r: sum_chosen(w, places, r), (weights, rows))


def test_rows_that_nobody_chose_get_no_gradient():
    x, rows, bias, _, _ = draw(size=4)
    chosen_outputs(x, rows, bias, torch.tensor([[0, 2]]).expand(5, 2)).sum().backward()
    assert (rows.grad[[1, 3]] == 0).all()
    assert (bias.grad == torch.tensor([5.0, 0, 5, 0])).all()


def test_sums_by_group_by_hand():
    rows = torch.tensor([[1.0, 0], [0, 1], [5, 5]])
    weights, group = torch.tensor([2.0, 3, 4]), torch.tensor([3, 0, 3])
    summed = sum_by_group(weights, group, torch.tensor([0, 1, 1]), rows, 4)
    assert summed.tolist() == [[0.0, 3], [0, 0], [0, 0], [2, 4]]
    assert sum_by_group(weights[:0], group[:0], group[:0], rows, 2).tolist() == [[0.0, 0], [0, 0]]
    assert sum_by_group(weights[:0], group[:0], group[:0], rows, 0).shape == (0, 2)
