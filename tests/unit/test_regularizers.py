import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lexicept.training.ranking.regularizers import (
    DocumentFrequencies,
    df_flops,
    df_penalties,
    flops,
    joint_flops,
    l1,
)

PENALTIES = torch.tensor([0.0, 0.5, 2.0], dtype=torch.float64)


def weights(n, size=3, seed=0):
    return torch.rand(n, size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_flops_and_l1_by_hand():
    vectors = torch.tensor([[1.0, 0.0, 2.0], [3.0, 0.0, 0.0]])
    assert flops(vectors).item() == 2**2 + 1**2
    assert l1(vectors).item() == 2 + 1
    assert l1(-vectors).item() == 3
    queries = torch.tensor([[1.0, 0.0, 2.0], [3.0, 0.0, 0.0]])  # means 2, 0, 1
    documents = torch.tensor([[3.0, 6.0, 0.0], [0.0, 0.0, 3.0], [0.0, 0.0, 12.0]])  # 1, 2, 5
    assert joint_flops(queries, documents).item() == 2 * 1 + 0 * 2 + 1 * 5
    assert joint_flops(queries, queries) == flops(queries)
    assert df_flops(vectors, torch.tensor([0.5, 1.0, 3.0])).item() == 1**2 + 3**2
    assert df_flops(vectors, torch.ones(3)) == flops(vectors)


def test_gradients_of_all_zero_vectors_are_zero():
    for regulariser in (flops, l1, lambda v: joint_flops(v, v), lambda v: df_flops(v, PENALTIES)):
        for n in (0, 2):
            vectors = torch.zeros(n, 3, dtype=torch.float64, requires_grad=True)
            value = regulariser(vectors)
            value.backward()
            assert value.item() == 0
            assert torch.equal(vectors.grad, torch.zeros(n, 3, dtype=torch.float64))


def test_df_penalties_by_hand():
    # x = α³ gives 2³ − 1 = 7, x = α^log₂3 gives 3 − 1 = 2, and x = √α gives √2 − 1.
    ratios = torch.tensor([0.0, 0.1**3, 0.1 ** math.log2(3), 0.1, 0.1**0.5, 1.0]).double()
    expected = [0, 1 / (1 + 7**10), 1 / 1025, 0.5, 1 / (1 + (2**0.5 - 1) ** 10), 1]
    assert df_penalties(ratios).tolist() == pytest.approx(expected, rel=1e-5)
    steeper = df_penalties(torch.tensor([0.25, 0.0625, 0.5**0.5]), alpha=0.25, beta=1)
    assert steeper.tolist() == pytest.approx([1 / 2, 1 / 4, 2**-0.25])
    ratios = torch.linspace(0.01, 0.99, 99, dtype=torch.float64)
    plain = 1 / (1 + (ratios ** (math.log(2) / math.log(0.1)) - 1) ** 10)
    torch.testing.assert_close(df_penalties(ratios), plain)
    ratios = 1 - 2.0 ** -torch.arange(10, 24)
    torch.testing.assert_close(
        df_penalties(ratios, beta=0.5), df_penalties(ratios.double(), beta=0.5).float()
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize(("alpha", "beta"), [(0.1, 10.0), (0.5, 0.1), (0.9, 100.0), (1e-3, 7.0)])
def test_df_penalties_are_defined_everywhere(dtype, alpha, beta):
    edges = [0.0, torch.finfo(dtype).tiny, 1e-30, 1e-10, alpha, 1 - torch.finfo(dtype).eps, 1.0]
    penalties = df_penalties(torch.tensor(edges, dtype=dtype), alpha, beta)
    assert penalties.dtype == dtype
    assert penalties[0] == 0
    assert penalties[-1] == 1
    assert bool((penalties.diff() >= 0).all())  # false for NaN


def active(*documents):
    """Vectors with weights of 0 or some positive number."""
    return 0.3 * torch.tensor(documents, dtype=torch.float32)


def test_document_frequencies_by_hand():
    df = DocumentFrequencies(3, window=4)
    assert df.ratios.tolist() == [0, 0, 0]
    df.update(active([1, 0, 2], [1, 0, 0]))
    assert df.ratios.tolist() == [1, 0, 0.5]
    df.update(active([0, 5, 0]))
    assert df.ratios.tolist() == pytest.approx([2 / 3, 1 / 3, 1 / 3])
    df.update(active([0, 1, 0]))
    assert df.ratios.tolist() == pytest.approx([2 / 4, 2 / 4, 1 / 4])
    # The window is full: two new documents take half of it.
    df.update(active([0, 1, 0], [0, 0, 0]))
    assert df.ratios.tolist() == pytest.approx([1 / 4, 1 / 2, 1 / 8])
    assert df.count.item() == 6
    # Of more than a window, the last ones.
    df.update(active([1, 0, 0], [1, 0, 1], [1, 0, 1], [1, 0, 0], [1, 0, 0]))
    assert df.ratios.tolist() == [1, 0, 0.5]
    assert df.count.item() == 11


def test_document_shares_and_penalties_by_hand():
    df = DocumentFrequencies(2, window=4)
    df.update(active([1, 0]))
    assert df.ratios.tolist() == [1, 0]
    df = DocumentFrequencies(1)
    df.count.fill_(2**24)
    df.update(active([1]))
    assert df.count.item() == 2**24 + 1
    df = DocumentFrequencies(2)
    df.update(active(*[[1, int(i < 1)] for i in range(10)]))
    assert df_penalties(df.ratios).tolist() == pytest.approx([1, 0.5], abs=1e-5)
    assert df_penalties(df.ratios, 0.01, 1)[1].item() == pytest.approx(2**-0.5)


def test_a_recount_replaces_the_shares(monkeypatch):
    """Of 3, 1 and 2 of four documents, and of the documents of another process."""
    df = DocumentFrequencies(3, window=2)
    df.update(active([1, 1, 1]))
    df.recount([active([1, 0, 2], [1, 0, 0], [0, 5, 0]), active([1, 0, 1])])
    assert (df.ratios.tolist(), df.count.item()) == ([3 / 4, 1 / 4, 2 / 4], 4)
    monkeypatch.setattr("torch.distributed.is_initialized", lambda: True)
    others = torch.tensor([0, 3, 4, 4])  # active documents of each dimension, documents
    monkeypatch.setattr("torch.distributed.all_reduce", lambda counts: counts.add_(others))
    df.recount([active([1, 0, 2], [1, 0, 0]), active([1, 1, 0], [0, 0, 1])])
    assert (df.ratios.tolist(), df.count.item()) == ([3 / 8, 4 / 8, 6 / 8], 8)
    monkeypatch.undo()
    df.recount([])
    assert (df.ratios.tolist(), df.count.item()) == ([0, 0, 0], 0)


def test_the_documents_of_all_processes_count(monkeypatch):
    """As in the first of two processes, with the same documents in the second but for the first."""
    monkeypatch.setattr("torch.distributed.is_initialized", lambda: True)
    others = torch.tensor([0, 2, 4, 4])  # active documents, documents, documents seen
    monkeypatch.setattr("torch.distributed.all_reduce", lambda counts: counts.add_(others))
    df = DocumentFrequencies(2, window=6)
    df.update(active([1, 0], [0, 1], [0, 1], [0, 0]))
    assert df.ratios.tolist() == [1 / 8, 4 / 8]  # all eight, more than a window
    assert df.count.item() == 8


@given(sizes=st.lists(st.integers(0, 5), max_size=6), seed=st.integers(0, 99))
def test_shares_are_exact_within_the_window(sizes, seed):
    vectors = (weights(sum(sizes), seed=seed) - 0.5).relu().float()
    df = DocumentFrequencies(3, window=30)
    for batch in vectors.split(sizes):
        df.update(batch)
    expected = (vectors > 0).float().sum(dim=0) / max(len(vectors), 1)
    torch.testing.assert_close(df.ratios, expected)
