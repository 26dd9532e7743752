"""Losses and FLOPS are those of sentence-transformers, on random sparse embeddings."""

import pytest
import torch
from sentence_transformers.sparse_encoder.losses import (
    FlopsLoss,
    SparseDistillKLDivLoss,
    SparseMarginMSELoss,
    SparseMultipleNegativesRankingLoss,
)
from torch import Tensor, nn

from lexicept.training.ranking.losses import in_batch_softmax, kl_divergence, margin_mse
from lexicept.training.ranking.regularizers import flops

BATCH, DIMENSIONS, CANDIDATES = 6, 50, 4
MODEL = nn.Identity()  # the losses keep it for encoding texts, and are given embeddings here


@pytest.fixture(params=range(3))
def embeddings(request: pytest.FixtureRequest) -> list[Tensor]:
    """Queries, then each query's candidates column by column: [BATCH, DIMENSIONS] each."""
    generator = torch.Generator().manual_seed(request.param)
    texts = torch.randn(1 + CANDIDATES, BATCH, DIMENSIONS, generator=generator)
    return [column.requires_grad_() for column in texts.sub(0.5).relu()]


def list_scores(embeddings: list[Tensor]) -> Tensor:
    """Every query with its own candidates [BATCH, CANDIDATES]."""
    return torch.einsum("bv,nbv->bn", embeddings[0], torch.stack(embeddings[1:]))


def teacher_scores() -> Tensor:
    return 3 * torch.randn(BATCH, CANDIDATES, generator=torch.Generator().manual_seed(9))


def assert_agreement(ours: Tensor, theirs: Tensor, embeddings: list[Tensor]) -> None:
    """The losses, and the gradients of all embeddings."""
    assert theirs.item() > 0.1
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)
    for mine, other in zip(
        torch.autograd.grad(ours, embeddings),
        torch.autograd.grad(theirs, embeddings),
        strict=True,
    ):
        assert other.any()
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("student", "teacher"), [(1.0, 1.0), (2.0, 2.0), (8.0, 1.0), (1.0, 3.0)])
def test_kl_divergence(embeddings, student, teacher):
    loss = SparseDistillKLDivLoss(MODEL, student_temperature=student, teacher_temperature=teacher)
    ours = kl_divergence(list_scores(embeddings) / student, teacher_scores() / teacher)
    # They multiply by the square of the student's temperature; the papers don't.
    theirs = loss.compute_loss_from_embeddings(embeddings, teacher_scores())
    assert_agreement(ours * student**2, theirs, embeddings)


@pytest.mark.parametrize("candidates", [2, CANDIDATES])
def test_margin_mse(embeddings, candidates):
    used, teacher = embeddings[: 1 + candidates], teacher_scores()[:, :candidates]
    theirs = SparseMarginMSELoss(MODEL).compute_loss_from_embeddings(used, teacher)
    assert_agreement(margin_mse(list_scores(used), teacher), theirs, used)


@pytest.mark.parametrize("candidates", [1, CANDIDATES])
@pytest.mark.parametrize("scale", [1.0, 0.25])
def test_in_batch_softmax(embeddings, candidates, scale):
    used = embeddings[: 1 + candidates]
    # All positives, then all first hard negatives, and so on.
    scores = scale * used[0] @ torch.cat(used[1:]).T
    ours = in_batch_softmax(scores, torch.arange(BATCH))
    loss = SparseMultipleNegativesRankingLoss(MODEL, scale=scale)
    assert_agreement(ours, loss.compute_loss_from_embeddings(used, None), used)


def test_flops(embeddings):
    theirs = FlopsLoss(MODEL).compute_loss_from_embeddings(embeddings[1])
    assert_agreement(flops(embeddings[1]), theirs, embeddings[1:2])
