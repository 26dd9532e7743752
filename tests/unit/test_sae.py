import math

import pytest
import torch
import torch.nn.functional as F

from lexicept.errors import InputError, LexiceptError
from lexicept.sae import SAESettings, TopKSAE, train_sae
from lexicept.sae.states import Position, StateStream
from lexicept.sae.training import Trainer, initial_sae, learning_rate, remove_parallel_gradient

SMALL = SAESettings(num_latents=64, k=4, tokens=2000, batch_size=100, warmup_steps=2)


def states(n=300, d=16, seed=0):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed))


def textbook(sae, x):
    """The docstring's equations, dense and one by one."""
    pre = torch.relu((x - sae.b_dec) @ sae.W_enc.T + sae.b_enc)
    values, latents = pre.topk(sae.k, dim=1)
    z = torch.zeros_like(pre).scatter(1, latents, values)
    return z, z @ sae.W_dec + sae.b_dec


@pytest.mark.parametrize("shift", [0.0, -50.0])
def test_forward_and_gradient_are_the_textbook_s(shift):
    sae = TopKSAE(16, 64, 4).double()
    with torch.no_grad():
        sae.b_enc.copy_(torch.linspace(-0.1, 0.1, 64) + shift)
        sae.b_dec.copy_(torch.linspace(-1, 1, 16))
    x = states().double()
    z, reconstruction = textbook(sae, x)
    (reconstruction - x).square().sum(1).mean().backward()
    expected = {name: p.grad.clone() for name, p in sae.named_parameters()}
    sae.zero_grad()
    ours = sae(x)
    (ours - x).square().sum(1).mean().backward()
    assert torch.allclose(ours, reconstruction, atol=1e-12)
    for name, parameter in sae.named_parameters():
        assert torch.allclose(parameter.grad, expected[name], atol=1e-12), name
    acts, latents = sae.encode(x)
    assert torch.allclose(torch.zeros_like(z).scatter(1, latents, acts), z, atol=1e-12)
    # All pre-activations are negative with the large shift: nothing fires, nothing learns.
    assert bool((acts > 0).any()) == (shift == 0.0)


def test_gradient_by_finite_differences():
    sae = TopKSAE(5, 8, 2).double()
    x = states(6, 5).double()
    names = [name for name, _ in sae.named_parameters()]

    def loss(*parameters):
        return torch.func.functional_call(
            sae, dict(zip(names, parameters, strict=True)), (x,)
        ).sum()

    assert torch.autograd.gradcheck(loss, tuple(sae.parameters()), eps=1e-7, atol=1e-6)


def test_inference_and_training_paths_agree():
    sae = TopKSAE(16, 64, 4)
    with torch.no_grad():
        quick, latents = sae.encode(states())
    exact, same = sae.encode(states())
    assert torch.equal(latents, same)
    assert torch.allclose(quick, exact, atol=1e-5)


def test_no_states_and_more_latents_than_k():
    sae = TopKSAE(16, 3, 3)
    acts, latents = sae.encode(torch.zeros(0, 16))
    assert acts.shape == latents.shape == (0, 3)
    assert sae(torch.zeros(0, 16)).shape == (0, 16)


def test_k_for_one_call_does_not_stay():
    sae = TopKSAE(16, 64, 4)
    assert sae.encode(states(), k=9)[0].shape == (300, 9)
    assert sae.encode(states())[0].shape == (300, 4)


@pytest.mark.parametrize("k", [0, 65])
def test_impossible_k(k):
    with pytest.raises(InputError, match=f"not {k}"):
        TopKSAE(16, 64, k)


def test_normalisation_keeps_units_of_the_states():
    x = 7 * states() + 3
    settings = SAESettings(num_latents=64, k=4, normalise=True)
    sae = initial_sae(x, settings)
    assert torch.allclose(sae.mean, x.mean(0))
    acts, latents = sae.encode(x)
    rescaled = initial_sae(x, SAESettings(num_latents=64, k=4))
    rescaled.load_state_dict(sae.state_dict())
    rescaled.scale.fill_(1.0)
    rescaled.mean.zero_()
    plain, same = rescaled.encode(sae.normalise(x))
    assert torch.equal(latents, same)
    assert torch.allclose(acts, plain * sae.scale)
    reconstruction = rescaled(sae.normalise(x)) * sae.scale + sae.mean
    assert torch.allclose(sae(x), reconstruction, atol=1e-4)


@pytest.mark.parametrize("initialisation", ["data", "random"])
def test_initialisation(initialisation):
    sae = initial_sae(states(10), SAESettings(num_latents=64, k=4, initialisation=initialisation))
    assert torch.equal(sae.W_enc, sae.W_dec)
    assert torch.allclose(sae.W_dec.norm(dim=1), torch.ones(64))
    assert len(torch.unique(sae.W_dec, dim=0)) == 64
    assert torch.allclose(sae.b_dec, states(10).mean(0))


def test_save_and_load(tmp_path):
    sae = initial_sae(states(), SMALL)
    sae.save(tmp_path)
    loaded = TopKSAE.load(tmp_path)
    assert all(
        torch.equal(a, b)
        for a, b in zip(sae.state_dict().values(), loaded.state_dict().values(), strict=True)
    )
    whole = (tmp_path / "sae.safetensors").read_bytes()
    for damaged in (b"", whole[:-1], b"not safetensors"):
        (tmp_path / "sae.safetensors").write_bytes(damaged)
        with pytest.raises(InputError, match="not a saved SAE"):
            TopKSAE.load(tmp_path)
    with pytest.raises(InputError, match="not a saved SAE"):
        TopKSAE.load(tmp_path / "nowhere")


def test_parallel_gradient_is_removed():
    rows = torch.nn.Parameter(F.normalize(states(8, 4), dim=1))
    rows.grad = states(8, 4, seed=1)
    tangent = rows.grad - (rows.grad * rows.data).sum(1, keepdim=True) * rows.data
    remove_parallel_gradient(rows)
    assert torch.allclose((rows.grad * rows.data).sum(1), torch.zeros(8), atol=1e-6)
    assert torch.equal(rows.grad, tangent)


def test_learning_rate_schedule():
    settings = SAESettings(tokens=1000, batch_size=10, learning_rate=1.0, warmup_steps=10)
    rates = [learning_rate(step, settings) for step in range(settings.steps)]
    assert rates[:3] == pytest.approx([0.1, 0.2, 0.3])
    assert rates[10:80] == [1.0] * 70
    assert rates[90] == pytest.approx(0.5)
    assert rates[99] == pytest.approx(0.05)


def test_training_explains_variance_and_keeps_unit_rows():
    directions = F.normalize(states(20, 16, seed=3), dim=1)
    mixed = torch.randint(20, (4000, 2), generator=torch.Generator().manual_seed(4))
    x = directions[mixed].sum(1)
    settings = SAESettings(64, 4, tokens=20_000, batch_size=200, learning_rate=1e-2)
    trainer = Trainer(initial_sae(x[:500], settings), settings)
    for step in range(settings.steps):
        start = 200 * (step % 20)
        shown = trainer.step(x[start : start + 200])
    fvu = float(shown.split("FVU ")[1].split()[0])
    residual = (trainer.sae(x[-200:]).detach() - x[-200:]).square().sum()
    assert fvu < 0.2
    assert float(residual / (x[-200:] - x[-200:].mean(0)).square().sum()) == pytest.approx(
        fvu, abs=0.05
    )
    assert torch.allclose(trainer.sae.W_dec.norm(dim=1), torch.ones(64), atol=1e-6)


def test_dead_latents_learn_through_the_auxiliary_loss():
    settings = SAESettings(num_latents=64, k=4, tokens=2000, batch_size=100, dead_tokens=100)
    sae = initial_sae(states(), settings)
    with torch.no_grad():
        sae.b_enc[10:] = -100.0  # these never fire by themselves
    trainer = Trainer(sae, settings)
    trainer.step(states(100))
    loss, _, fired = trainer.loss(states(100, seed=5))
    assert set(fired.tolist()) <= set(range(10))
    trainer.sae.zero_grad()
    loss.backward()
    assert float(trainer.sae.W_dec.grad[10:].abs().sum()) == 0.0  # their ReLU is shut
    with torch.no_grad():
        trainer.sae.b_enc[10:] = -0.5
    trainer._quiet[10:] = 100
    trainer.sae.zero_grad()
    trainer.loss(states(100, seed=5))[0].backward()
    assert float(trainer.sae.W_dec.grad[10:].abs().sum()) > 0.0


def test_a_loss_that_is_not_finite_stops_training():
    trainer = Trainer(initial_sae(states(), SMALL), SMALL)
    broken = states(100)
    broken[3, 3] = math.nan
    with pytest.raises(LexiceptError, match="loss is nan at step 0"):
        trainer.step(broken)


@pytest.mark.parametrize(
    "wrong", [{"k": 0}, {"tokens": 0}, {"k": 9, "num_latents": 8}, {"initialisation": "magic"}]
)
def test_impossible_settings(wrong):
    with pytest.raises(InputError):
        SAESettings(**wrong)


def stream(backbone, texts, buffer_tokens):
    return StateStream(backbone, texts, 50, buffer_tokens, seed=1, filling=lambda tokens: None)


@pytest.mark.parametrize("buffer_tokens", [100, 10**6])
def test_a_stream_gives_every_token_once_an_epoch_and_goes_on_anywhere(
    backbone, texts, buffer_tokens, monkeypatch
):
    monkeypatch.setattr("lexicept.sae.states.READ", 3)
    every = torch.cat([s for _, s in backbone.token_states(backbone.windows(texts))])
    unbroken = []
    for position, batch in stream(backbone, texts, buffer_tokens).batches(Position()):
        if position.epoch == 2:
            break
        unbroken.append((position, batch))
    first = torch.cat([batch for position, batch in unbroken if position.epoch == 0])
    assert len(first) == len(every)
    assert torch.allclose(first.sum(0), every.sum(0), atol=1e-2)
    for place in (0, len(unbroken) // 2, len(unbroken) - 2):
        position, _ = unbroken[place]
        resumed = stream(backbone, texts, buffer_tokens).batches(position)
        next_position, batch = next(resumed)
        assert next_position == unbroken[place + 1][0]
        assert torch.equal(batch, unbroken[place + 1][1])


def test_training_resumes_to_the_same_weights(backbone, texts, tmp_path, monkeypatch):
    monkeypatch.setattr("lexicept.sae.states.READ", 3)
    settings = SAESettings(num_latents=32, k=4, tokens=2500, batch_size=100, buffer_tokens=400)
    unbroken = train_sae(backbone, texts, settings)

    class KilledError(Exception):
        pass

    for stop in (300, 1700):

        def kill(stage, done, total, detail="", stop=stop):
            if done >= stop and "loss" in detail:
                raise KilledError

        monkey = pytest.MonkeyPatch()
        monkey.setattr("lexicept.sae.training.CHECKPOINT_SECONDS", 0)
        with monkey.context(), pytest.raises(KilledError):
            train_sae(backbone, texts, settings, tmp_path, kill)
        monkey.undo()
    resumed = train_sae(backbone, texts, settings, tmp_path)
    for name, tensor in unbroken.state_dict().items():
        assert torch.equal(tensor, resumed.state_dict()[name]), name
    again = train_sae(backbone, texts, settings, tmp_path)  # finished: nothing left to do
    assert torch.equal(again.W_enc, resumed.W_enc)
    with pytest.raises(InputError, match="other settings"):
        train_sae(backbone, texts, SAESettings(num_latents=16, k=4), tmp_path)
    (tmp_path / "checkpoint.pt").write_bytes(b"PK\x03\x04 broken")
    with pytest.raises(InputError, match="can't be read"):
        train_sae(backbone, texts, settings, tmp_path)


def test_texts_without_tokens(backbone):
    with pytest.raises(InputError, match="no tokens"):
        train_sae(backbone, ["", ""], SMALL)
