"""Every architecture's loss, gradients and inference follow its paper's equations."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from lexicept.neural.kernels import linear_outputs
from lexicept.neural.sae.model import SAE
from lexicept.training.sae.objectives import OBJECTIVES
from lexicept.training.sae.settings import SAESettings
from lexicept.training.sae.trainer import SAELoop, initial_sae, train_on_states
from support.processes import KilledError

ARCHITECTURES = list(OBJECTIVES)
M, D, K = 24, 6, 3
NONE = torch.zeros(0, dtype=torch.long)


def states(n=20, d=D, seed=0):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def objective(architecture, **settings):
    """In double precision, with biases."""
    sae_settings = SAESettings(M, K, architecture=architecture, **settings)
    criterion = OBJECTIVES[architecture](
        initial_sae(states().float(), sae_settings), sae_settings
    ).double()
    with torch.no_grad():
        criterion.sae.b_enc.copy_(torch.linspace(-0.2, 0.2, M))
        criterion.sae.b_dec.copy_(torch.linspace(-1, 1, D))
        criterion.sae.W_enc.mul_(torch.linspace(0.8, 1.2, M)[:, None])
    return criterion


def pre_acts(sae, x):
    return (x - sae.b_dec) @ sae.W_enc.T + sae.b_enc


def largest(p, k):
    """ReLU of the k largest of each row, and zeros."""
    return p.relu() * torch.zeros_like(p).scatter(1, p.topk(k, dim=1).indices, 1.0)


def loss_of(sae, x, z, latents=M):
    return (z[:, :latents] @ sae.W_dec[:latents] + sae.b_dec - x).square().sum(1).mean()


def topk(criterion, x):
    z = largest(pre_acts(criterion.sae, x), K)
    return loss_of(criterion.sae, x, z), z


def batch_topk(criterion, x):
    p = pre_acts(criterion.sae, x)
    z = p.relu() * (p >= p.ravel().topk(K * len(x)).values[-1])
    return loss_of(criterion.sae, x, z), z


def hierarchical(criterion, x):
    p = pre_acts(criterion.sae, x)
    losses = [loss_of(criterion.sae, x, largest(p, k)) for k in (1, 2, 3)]
    return sum(losses) / 3, largest(p, K)


def matryoshka(criterion, x):
    z = largest(pre_acts(criterion.sae, x), K)
    return sum(loss_of(criterion.sae, x, z, m) for m in (2, 5, 11, M)), z


DENSE = {
    "topk": (topk, {}),
    "batch_topk": (batch_topk, {}),
    "hierarchical": (hierarchical, {}),
    "matryoshka": (matryoshka, {"prefixes": (2, 5, 11, M)}),
}
"""Textbook implementations: loss and activations, by autograd through dense arrays."""


@pytest.mark.parametrize("architecture", DENSE)
@pytest.mark.parametrize("shift", [0.0, -50.0])
def test_loss_and_gradients_are_the_textbook_s(architecture, shift):
    dense, settings = DENSE[architecture]
    criterion, x = objective(architecture, **settings), states()
    with torch.no_grad():
        criterion.sae.b_enc.add_(shift)  # by -50 nothing is active
    expected, z = dense(criterion, x)
    z = z.relu()
    gradients = torch.autograd.grad(expected, list(criterion.parameters()), allow_unused=True)
    outcome = criterion(x, NONE)
    assert torch.allclose(outcome.loss, expected, atol=1e-12)
    assert torch.equal(outcome.active, (z > 0).sum(0))
    error = x - z @ criterion.sae.W_dec - criterion.sae.b_dec
    assert torch.allclose(outcome.error, error, atol=1e-12)
    ours = torch.autograd.grad(outcome.loss, list(criterion.parameters()), allow_unused=True)
    for (name, parameter), a, b in zip(criterion.named_parameters(), ours, gradients, strict=True):
        a = torch.zeros_like(parameter) if a is None else a
        b = torch.zeros_like(parameter) if b is None else b
        assert torch.allclose(a, b, atol=1e-12), name
    assert bool(outcome.active.any()) == (shift == 0.0)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_what_inference_finds_is_what_training_did(architecture, tmp_path):
    criterion, x = objective(architecture), states()
    outcome = criterion(x, NONE)
    sae = criterion.sae.requires_grad_(False)
    acts, latents = sae.encode(x)
    error = x - sae(x)
    active = torch.bincount(latents[acts > 0], minlength=M)
    if architecture == "batch_topk":  # the smallest that is kept is not above itself
        assert int((outcome.active - active).abs().sum()) == 1
        assert sae.threshold.unique().numel() == 1
    else:
        assert torch.equal(active, outcome.active)
        assert torch.allclose(error, outcome.error, atol=1e-12)
    assert (sae.k is None) == (sae.threshold is not None) == criterion.settings.has_thresholds
    assert sae.threshold is None or not sae.threshold.requires_grad
    sae.float().save(tmp_path)
    loaded = SAE.load(tmp_path)
    assert loaded.architecture == architecture
    torch.testing.assert_close(loaded(x.float()), sae(x.float()))


def test_a_running_estimate_of_the_batches_smallest_activation():
    criterion = objective("batch_topk")
    smallest = []
    for seed in range(3):
        criterion(states(seed=seed), NONE)
        p = pre_acts(criterion.sae, states(seed=seed))
        smallest.append(p.ravel().topk(K * 20).values[-1].item())
    first, second, third = smallest
    expected = 0.95 * (0.95 * first + 0.05 * second) + 0.05 * third
    assert float(criterion.sae.threshold[0]) == pytest.approx(expected)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize(
    ("dead", "every"), [([15, 17, 18, 19, 20, 21, 22, 23], 1), ([15, 17], 1), ([15, 17], 3)]
)
def test_dead_latents_learn_through_the_auxiliary_loss(architecture, dead, every):
    """They reconstruct the residual of the others: e, of the whole SAE, of some tokens."""
    criterion, x = objective(architecture, auxiliary=0.25, auxiliary_every=every), states()
    with torch.no_grad():
        criterion.sae.b_enc[15:] = 0.01 * torch.arange(9)
        criterion.sae.W_enc[15:] *= 0.001  # above 0, but never among the largest
    dead = torch.tensor(dead)
    alone, revived = criterion(x, NONE), criterion(x, dead)
    assert not alone.active[15:].any()
    p = pre_acts(criterion.sae, x)[::every, dead]
    assert (p > 0).sum(dim=1).max() == len(dead)
    of_dead = largest(p, min(2 * K, len(dead)))
    residual = of_dead @ criterion.sae.W_dec[dead] - alone.error.detach()[::every]
    extra = 0.25 * residual.square().sum(1).mean()
    assert torch.allclose(revived.loss, alone.loss + extra, atol=1e-12)
    expected = torch.autograd.grad(alone.loss + extra, list(criterion.sae.parameters()))
    revived.loss.backward()
    for parameter, gradient in zip(criterion.sae.parameters(), expected, strict=True):
        assert torch.allclose(parameter.grad, gradient, atol=1e-12)
    assert criterion.sae.W_dec.grad[dead].any()
    assert not criterion.sae.W_dec.grad[16].any()  # quiet, but not dead
    criterion = objective(architecture, auxiliary=0.0)
    assert criterion(x, dead).loss.item() == criterion(x, NONE).loss.item()


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_architecture_learns_sparse_directions(architecture):
    directions = F.normalize(states(20, 16, seed=3), dim=1).float()
    mixed = torch.randint(20, (4000, 3), generator=torch.Generator().manual_seed(4))
    x = directions[mixed].sum(1)

    def read(indices):
        return x[torch.tensor(indices)]

    settings = SAESettings(
        64, 3, 20_000, architecture, batch_size=200, learning_rate=1e-2, warmup_steps=10
    )
    sae = train_on_states(read, len(x), settings)
    error = (sae(x) - x).square().sum() / (x - x.mean(0)).square().sum()
    acts, _ = sae.encode(x)
    assert float((acts > 0).sum() / len(x)) == pytest.approx(3, abs=0.9)
    assert float(error) < 0.2
    assert torch.allclose(sae.W_dec.norm(dim=1), torch.ones(64), atol=1e-6)
    assert not any(parameter.requires_grad for parameter in sae.parameters())


class Sizes(TorchDispatchMode):
    """Record how many numbers the largest result has."""

    largest = 0

    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        results = function(*arguments, **(named or {}))
        for result in results if isinstance(results, tuple | list) else [results]:
            if isinstance(result, torch.Tensor):
                self.largest = max(self.largest, result.numel())
        return results


@pytest.mark.parametrize("architecture", ["topk", "batch_topk"])
def test_no_array_of_tokens_and_latents_is_made(architecture, monkeypatch):
    monkeypatch.setattr(linear_outputs, "CELLS", 20_000)
    x = states(1024, 8).float()
    with Sizes() as sizes:
        settings = SAESettings(512, 4)
        SAELoop(initial_sae(x, settings), settings).step(x)
    assert 1024 * 8 <= sizes.largest <= 1024 * 512 / 8


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_training_resumes_to_the_same_weights(architecture, tmp_path, monkeypatch):
    monkeypatch.setattr("lexicept.neural.sae.states.READ", 3)
    texts = [states(7 * i, seed=i).float() for i in range(20)]
    settings = SAESettings(
        32, 4, 1200, architecture, batch_size=100, buffer_tokens=400, dead_tokens=300
    )

    def read(indices):
        return torch.cat([texts[i] for i in indices])

    unbroken = train_on_states(read, len(texts), settings)
    monkeypatch.setattr("lexicept.training.loop.CHECKPOINT_SECONDS", 0)

    def kill(stage, done, total, detail=""):
        if done >= 700 and "loss" in detail:
            raise KilledError

    with pytest.raises(KilledError):
        train_on_states(read, len(texts), settings, tmp_path, kill)
    for _ in ("goes on", "is finished: nothing is left to do"):
        resumed = train_on_states(read, len(texts), settings, tmp_path)
        assert resumed.state_dict().keys() == unbroken.state_dict().keys()
        for name, tensor in unbroken.state_dict().items():
            assert torch.equal(tensor, resumed.state_dict()[name]), name
