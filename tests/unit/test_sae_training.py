"""The training of an SAE step by step: each rule as literal values or an algebraic fact."""

import pytest
import torch
from torch import nn

from lexicept.errors import InputError
from lexicept.neural.sae.model import SAE
from lexicept.training.loop import Loop
from lexicept.training.sae import trainer
from lexicept.training.sae.objectives import OBJECTIVES, Outcome, TopK
from lexicept.training.sae.settings import SAESettings
from lexicept.training.sae.trainer import (
    SAELoop,
    initial_sae,
    remove_parallel_gradient,
    train_on_states,
)
from support.processes import KilledError


def states(n=300, d=16, seed=0):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed))


def test_sigma_is_the_mean_norm_of_states():
    """SAE-SPLADE, B.1: h̄ is the mean state, σ the mean norm of states."""
    h = torch.tensor([[3.0, 4.0], [6.0, 8.0], [0.0, 0.0]])  # norms 5, 10 and 0
    sae = initial_sae(h, SAESettings(4, 1, normalise=True))
    assert sae.mean.tolist() == [3.0, 4.0]
    assert float(sae.scale) == 5.0
    assert sae.normalise(h).tolist() == [
        [0.0, 0.0],
        [pytest.approx(0.6), pytest.approx(0.8)],
        [pytest.approx(-0.6), pytest.approx(-0.8)],
    ]
    acts, _ = sae.encode(h)  # in units of the states
    expected = (sae.centre(sae.normalise(h)) @ sae.W_enc.T).relu().amax(dim=1, keepdim=True) * 5
    assert torch.allclose(acts, expected, atol=1e-6)
    zeros = torch.zeros(3, 2)  # no norm: no division by 0
    normalised = initial_sae(zeros, SAESettings(4, 1, normalise=True)).normalise(zeros)
    assert normalised.tolist() == [[0.0, 0.0]] * 3


@pytest.mark.parametrize(("decoder_bias", "expected"), [("mean", [3.0, 5.0]), ("zero", [0.0, 0.0])])
def test_b_dec_begins_as_the_mean_or_as_0(decoder_bias, expected):
    """SAE-SPLADE, App. A: b_enc and b_dec are 0, and W_enc is the decoder's transpose."""
    h = torch.tensor([[3.0, 4.0], [6.0, 8.0], [0.0, 3.0]])
    sae = initial_sae(h, SAESettings(4, 1, decoder_bias=decoder_bias))
    assert sae.b_dec.tolist() == expected
    assert sae.b_enc.tolist() == [0.0] * 4
    assert torch.equal(sae.W_enc, sae.W_dec)
    assert torch.allclose(sae.W_dec.norm(dim=1), torch.ones(4))


def test_an_sae_of_no_tokens_is_random_projections_of_states():
    """SAE-SPLADE, C.1, "Rand.": v = W_enc h, of rows that no state has a part in."""
    settings = SAESettings(
        64, 4, tokens=0, initialisation="random", decoder_bias="zero", batch_size=10
    )
    x = states(300)
    sae, other = (
        train_on_states(lambda indices, h=h: h[indices], 300, settings)
        for h in (x, states(300, seed=5))
    )
    assert torch.equal(sae.W_enc, other.W_enc)
    acts, _ = sae.encode(x)
    expected, _ = (x @ sae.W_enc.T).relu().topk(4, dim=1)
    assert torch.allclose(acts.sort(descending=True).values, expected, atol=1e-5)
    assert float(sae.b_dec.abs().max()) == float(sae.b_enc.abs().max()) == 0.0


class Scripted(TopK):
    """An objective with given active latents, which records the dead latents passed to it."""

    script: tuple = ()

    def __init__(self, sae, settings):
        super().__init__(sae, settings)
        self.told = []

    def forward(self, x, dead):
        active = torch.tensor(self.script[len(self.told)])
        self.told.append(dead.tolist())
        error = x - x.mean(dim=0) / 2
        return Outcome((self.sae.W_dec * 0).sum(), error, active)


@pytest.fixture
def scripted(monkeypatch):
    monkeypatch.setitem(OBJECTIVES, "topk", Scripted)


def new_loop(settings):
    return SAELoop(initial_sae(states(), settings), settings)


@pytest.mark.parametrize(
    ("dead_tokens", "told", "shares"),
    [
        (20, [[], [], [1, 2], [1], [], [0, 2]], "0.0% 66.7% 33.3% 0.0% 66.7% 66.7%"),
        (21, [[], [], [], [1], [], []], "0.0% 0.0% 33.3% 0.0% 0.0% 66.7%"),
    ],
)
def test_a_latent_is_dead_after_so_many_tokens_without_activity_and_no_longer_once_active(
    scripted, dead_tokens, told, shares
):
    loop = SAELoop(SAE(2, 3, 1), SAESettings(3, 1, dead_tokens=dead_tokens))
    objective = loop.objective
    objective.script = ([9, 0, 0], [1, 0, 0], [1, 0, 1], [0, 1, 0], [0, 5, 0], [0, 0, 0])
    dead_counts = [loop.step(states(10, 2)).split("dead ")[1].split()[0] for _ in range(6)]
    assert objective.told == told
    assert dead_counts == shares.split()


def test_progress_shows_fvu_and_active_latents_per_token(scripted):
    loop = SAELoop(SAE(2, 3, 1), SAESettings(3, 1))
    loop.objective.script = ([3, 2, 0], [1, 1, 1])
    x = torch.tensor([[1.0, 0.0], [0.0, 0.0]])  # mean (1/2, 0): variance 1/2
    # Errors (3/4, 0) and (−1/4, 0): 5/8 of 1/2; 5 active latents of 2 tokens.
    assert "FVU 1.250  l0 2.5  dead 0.0%" in loop.step(x)
    assert loop.tokens == 2
    assert loop.done() == (2, 1_000_000)
    assert "FVU 0.000  l0 1.5" in loop.step(torch.ones(2, 2))  # no variance


@pytest.mark.parametrize("architecture", ["topk", "batch_topk"])
def test_a_step_s_gradient_turns_decoder_rows_and_does_not_stretch_them(architecture):
    loop = new_loop(SAESettings(64, 4, architecture=architecture))
    weights = loop.sae.W_dec.detach().clone()
    loop.step(states(100, seed=1))
    gradient = loop.sae.W_dec.grad
    assert (gradient.norm(dim=1) > 1e-3).sum() > 32
    assert torch.allclose((gradient * weights).sum(dim=1), torch.zeros(64), atol=1e-6)
    assert torch.allclose(loop.sae.W_dec.norm(dim=1), torch.ones(64), atol=1e-6)


def test_adamw_has_an_epsilon_and_weight_decay():
    # A gradient of ε moves a weight by half of the learning rate: η ε / (ε + ε).
    loop = new_loop(SAESettings(64, 4, learning_rate=0.5, weight_decay=0.0))
    for parameter in loop.parameters:
        parameter.grad = torch.full_like(parameter, 6e-10)
    loop.optimizer.step()
    assert torch.allclose(loop.sae.b_enc, torch.full((64,), -0.5 / 2), rtol=1e-4)
    loop = new_loop(SAESettings(64, 4, weight_decay=0.25))
    (group,) = loop.optimizer.param_groups
    assert {id(p) for p in group["params"]} == {id(p) for p in loop.sae.parameters()}
    assert group["weight_decay"] == 0.25


def test_only_what_is_parallel_to_a_row_is_removed():
    weights = nn.Parameter(torch.tensor([[0.6, 0.8], [1.0, 0.0]]))
    remove_parallel_gradient(weights)  # without a gradient nothing happens
    assert weights.grad is None
    weights.grad = torch.tensor([[5.0, 0.0], [2.0, 3.0]])  # parallel parts: 3 and 2
    remove_parallel_gradient(weights)
    assert torch.allclose(weights.grad, torch.tensor([[5 - 3 * 0.6, -3 * 0.8], [0.0, 3.0]]))


@pytest.mark.parametrize(("num_latents", "tokens"), [(20, 20), (21, 30)])
def test_training_begins_from_whole_batches_of_at_least_one_token_per_latent(
    monkeypatch, num_latents, tokens
):
    begun = []

    def begin(batch, settings):
        begun.append(batch)
        raise KilledError

    monkeypatch.setattr(trainer, "initial_sae", begin)
    x = states(60)
    with pytest.raises(KilledError):
        train_on_states(lambda indices: x[indices], 60, SAESettings(num_latents, 1, batch_size=10))
    assert begun[0].shape == (tokens, 16)
    assert (begun[0][:, None] == x).all(dim=2).any(dim=1).all()


def test_the_batches_that_training_begins_from_are_its_first(monkeypatch):
    begun, trained = [], []
    begin = trainer.initial_sae
    monkeypatch.setattr(trainer, "initial_sae", lambda h, s: begun.append(h) or begin(h, s))

    def step(loop, batch):
        trained.append(batch)
        loop.steps += 1
        return ""

    monkeypatch.setattr(Loop, "step", step)
    x = states(60)
    settings = SAESettings(20, 1, tokens=40, batch_size=10)
    train_on_states(lambda indices: x[indices], 60, settings)
    assert torch.equal(torch.cat(trained[:2]), begun[0])
    assert len(torch.cat(trained).unique(dim=0)) == 40


def test_progress_tells_that_states_are_read_and_counts_tokens_up_to_those_asked_for():
    x, recorded = states(30), []
    settings = SAESettings(4, 1, tokens=25, batch_size=10, buffer_tokens=10)
    sae = train_on_states(
        lambda indices: x[indices], 30, settings, progress=lambda *report: recorded.append(report)
    )
    assert recorded[0] == ("training", 0, 25, "reading states 30")
    assert [report[:3] for report in recorded[1:]] == [
        ("training", 10, 25),
        ("training", 20, 25),
        ("training", 25, 25),
    ]
    assert not sae.training
    assert not any(parameter.requires_grad for parameter in sae.parameters())


def cosines(sae, x):
    """Of every latent's row and every token [num_latents, n]."""
    return sae.W_dec @ nn.functional.normalize(x - sae.b_dec, dim=1).T


def test_rows_start_near_tokens_or_at_random():
    x = states(10)
    near = cosines(initial_sae(x, SAESettings(64, 4)), x).max(dim=1)
    # A unit vector and .1 of another: at least √(1 − .01), and 1 / √1.01 at right angles.
    assert near.values.min() >= 0.99**0.5 - 1e-6
    assert near.values.median().item() == pytest.approx(1.01**-0.5, abs=1e-3)
    assert sorted(near.indices.bincount().tolist()) == [6] * 6 + [7] * 4  # 64 of ten tokens
    x = states(10, seed=9)
    assert cosines(initial_sae(x, SAESettings(64, 4, initialisation="random")), x).max() < 0.95


@pytest.mark.parametrize("initialisation", ["data", "random"])
def test_rows_at_the_start_are_of_the_seed(initialisation):
    settings = [SAESettings(64, 4, initialisation=initialisation, seed=seed) for seed in (3, 3, 4)]
    first, same, other = (initial_sae(states(10), setting) for setting in settings)
    assert torch.equal(first.W_dec, same.W_dec)
    assert not torch.isclose(first.W_dec, other.W_dec).all(dim=1).any()


def test_training_goes_on_from_an_sae_which_stays_as_it_is():
    x = states(400)
    first = train_on_states(lambda indices: x[indices], 400, SAESettings(32, 4, 400, batch_size=50))
    first.centred, first.decoder, first.origin = False, False, {"model": "a"}
    before = {name: tensor.clone() for name, tensor in first.state_dict().items()}
    settings = SAESettings(32, 2, 10_000, batch_size=50)
    after = train_on_states(lambda indices: x[indices], 400, settings, start=first)
    assert all(torch.equal(before[name], tensor) for name, tensor in first.state_dict().items())
    assert (first.k, after.k, after.centred, after.decoder) == (4, 2, False, True)
    assert after.origin == {"model": "a"}
    assert (after.W_enc - first.W_enc).abs().max() > 0

    def error(sae):
        return float((x - sae.decode(*sae.encode(x, 2))).square().sum())

    first.decoder = True
    assert error(after) < 0.9 * error(first)


@pytest.mark.parametrize(
    ("start", "changes", "message"),
    [
        (SAE(16, 32, 4), {"num_latents": 16}, "32 latents can't be trained on as one of 16"),
        (SAE(16, 32, None), {}, "an SAE with thresholds can't be trained on"),
        (SAE(16, 32, 4), {"architecture": "batch_topk"}, "with thresholds can't be trained"),
    ],
)
def test_an_sae_that_can_t_be_trained_on(start, changes, message):
    settings = SAESettings(**{"num_latents": 32, "k": 4, **changes})
    with pytest.raises(InputError, match=message):
        train_on_states(lambda indices: states()[indices], 300, settings, start=start)


def test_a_checkpoint_is_loaded_to_the_device_to_train_on(tmp_path):
    x, settings = states(60), SAESettings(8, 2, tokens=100, batch_size=20)
    actual = [
        train_on_states(lambda indices: x[indices], 60, settings, tmp_path, device=device)
        for device in (torch.device("cpu"), torch.device("meta"))
    ]
    assert [sae.W_enc.device.type for sae in actual] == ["cpu", "meta"]
