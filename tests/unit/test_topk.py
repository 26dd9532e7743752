import pytest
import torch

from lexicept.neural.kernels.topk import top_columns, top_columns_reference


@pytest.mark.parametrize(
    ("n", "columns", "k"),
    [(5, 2048, 4), (1, 512, 1), (0, 512, 1), (3, 530, 1), (3, 1100, 2), (3, 700, 9), (3, 128, 9)],
)
@pytest.mark.parametrize("scores_type", ["normal", "negative", "equal", "rising"])
def test_two_passes_find_the_values_of_one(n, columns, k, scores_type):
    scores = torch.randn(n, columns, generator=torch.Generator().manual_seed(0))
    if scores_type == "negative":
        scores = -scores.abs() - 1
    elif scores_type != "normal":
        scores = torch.arange(1.0 * columns).expand(n, -1) * (scores_type == "rising")
    fast, plain = top_columns(scores, k), top_columns_reference(scores, k)
    assert fast.shape == plain.shape == (n, k)
    assert torch.equal(
        scores.gather(1, fast).sort(dim=1).values, scores.gather(1, plain).sort(dim=1).values
    )
    assert all(len(set(latents)) == k for latents in fast.tolist())
