import pytest
import torch

from lexicept.ops import topk
from lexicept.ops.topk import top_columns, top_columns_reference


@pytest.mark.parametrize(
    ("rows", "columns", "k"),
    [(5, 512, 8), (1, 64, 1), (3, 640, 9), (0, 512, 4), (3, 130, 1), (3, 128, 9)],
)
@pytest.mark.parametrize("kind", ["normal", "negative", "equal"])
def test_two_passes_find_the_values_of_one(monkeypatch, rows, columns, k, kind):
    monkeypatch.setattr(topk, "LONG_ROW", 1)
    scores = torch.randn(rows, columns, generator=torch.Generator().manual_seed(0))
    if kind == "negative":
        scores = -scores.abs() - 1
    if kind == "equal":
        scores = torch.ones(rows, columns)
    fast, plain = top_columns(scores, k), top_columns_reference(scores, k)
    assert fast.shape == plain.shape == (rows, k)
    assert torch.equal(
        scores.gather(1, fast).sort(dim=1).values, scores.gather(1, plain).sort(dim=1).values
    )
    assert all(len(set(row)) == k for row in fast.tolist())
