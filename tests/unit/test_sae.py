import json
import math

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

from lexicept.errors import InputError
from lexicept.neural.sae.decoder import fit_decoder
from lexicept.neural.sae.model import SAE
from lexicept.neural.sae.states import (
    Position,
    Shuffling,
    StateStream,
    backbone_reader,
    without_sinks,
)
from lexicept.neural.sae_formats.libraries import save_saelens
from lexicept.training.sae.settings import SAESettings
from lexicept.training.sae.trainer import train_sae

SMALL = SAESettings(num_latents=64, k=4, tokens=200, batch_size=100, warmup_steps=2)


def states(n=300, d=16, seed=0):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed))


def make(d_in, num_latents, k, **settings):
    """Double precision, biases, and thresholds from 0 to 2 if there is no k."""
    sae = SAE(d_in, num_latents, k, **settings).double()
    with torch.no_grad():
        sae.b_enc.copy_(torch.linspace(-0.1, 0.1, num_latents))
        sae.b_dec.copy_(torch.linspace(-1, 1, d_in))
        if sae.threshold is not None:
            sae.threshold.copy_(torch.linspace(0, 2, num_latents))
    return sae


def textbook(sae, x):
    """The docstring's equations, dense and one by one."""
    p = (x - sae.b_dec if sae.centred else x) @ sae.W_enc.T + sae.b_enc
    if sae.k is None:
        z = p * (p > sae.threshold)
    else:
        values, latents = p.relu().topk(sae.k, dim=1)
        z = torch.zeros_like(p).scatter(1, latents, values)
    return z, z @ sae.W_dec + sae.b_dec


RULES = pytest.mark.parametrize(
    ("k", "centred"), [(4, True), (4, False), (None, True), (None, False)]
)


@RULES
@pytest.mark.parametrize("shift", [0.0, -50.0])
def test_forward_and_gradient_are_the_textbook_s(shift, k, centred):
    sae = make(16, 64, k, centred=centred)
    with torch.no_grad():
        sae.b_enc.add_(shift)
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
    assert torch.allclose(torch.zeros_like(z).scatter_add(1, latents, acts), z, atol=1e-12)
    # All pre-activations are negative with the large shift: nothing fires, nothing learns.
    assert bool((acts > 0).any()) == (shift == 0.0)


def test_an_active_latent_is_above_its_threshold_not_at_it():
    sae = SAE(1, 3, None, centred=False)
    with torch.no_grad():
        sae.W_enc.fill_(1.0)
        sae.threshold.copy_(torch.tensor([0.0, 2.0, 3.0]))
        sae.scale.fill_(10.0)
    acts, latents = sae.encode(torch.tensor([[30.0], [20.0], [-1.0]]))
    actual = torch.zeros(3, 3).scatter_add(1, latents, acts)
    assert actual.tolist() == [[30.0, 30.0, 0.0], [20.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    assert sae.encode(torch.zeros(0, 1))[0].shape == (0, 1)


def test_sizes_of_what_is_encoded():
    sae = SAE(16, 64, 4)
    assert sae.encode(states(), k=9)[0].shape == (300, 9)
    assert sae.encode(torch.zeros(0, 16))[1].shape == (0, 4)
    assert sae(torch.zeros(0, 16)).shape == (0, 16)
    for k in (0, 65):
        with pytest.raises(InputError, match=f"not {k}"):
            SAE(16, 64, k)


def test_a_new_sae_by_hand():
    """Rows of length 1, the encoder's a copy of the decoder's; no biases and no normalisation."""
    sae = SAE(2, 3, 1)
    assert torch.equal(sae.W_enc, sae.W_dec)
    assert torch.allclose(sae.W_dec.norm(dim=1), torch.ones(3))
    for zeros in (sae.b_enc, sae.b_dec, sae.mean, SAE(2, 3, None).threshold):
        assert not zeros.any()
    assert float(sae.scale) == 1.0
    sae.mean.fill_(1.0)
    sae.scale.fill_(2.0)
    assert sae.normalise(torch.tensor([[5.0, -1.0]])).tolist() == [[2.0, -1.0]]


@RULES
def test_save_and_load(tmp_path, k, centred):
    sae = make(16, 64, k, centred=centred, architecture="gated").float()
    sae.mean.fill_(0.5)
    sae.scale.fill_(2.0)
    sae.origin["layer"] = 7
    sae.save(tmp_path)
    loaded = SAE.load(tmp_path)
    assert loaded.state_dict().keys() == sae.state_dict().keys()
    for name, tensor in loaded.state_dict().items():
        assert torch.equal(tensor, sae.state_dict()[name]), name
    for name in ("d_in", "num_latents", "k", "centred", "architecture", "origin"):
        assert getattr(loaded, name) == getattr(sae, name), name
    assert all(parameter.requires_grad for parameter in loaded.parameters())
    assert torch.equal(loaded(states()), sae(states()))


def test_an_encoder_alone(tmp_path):
    sae = make(16, 64, 3).float()
    sae.save(tmp_path)
    tensors = load_file(tmp_path / "sae.safetensors")
    del tensors["W_dec"]
    save_file(tensors, tmp_path / "sae.safetensors")
    with pytest.raises(InputError, match="W_dec"):
        SAE.load(tmp_path)
    config = json.loads((tmp_path / "sae.json").read_text())
    (tmp_path / "sae.json").write_text(json.dumps({**config, "decoder": False}))
    loaded = SAE.load(tmp_path)
    for ours, theirs in zip(loaded.encode(states()), sae.encode(states()), strict=True):
        torch.testing.assert_close(ours, theirs)  # loaded weights are aligned otherwise
    assert torch.allclose(loaded.W_dec.norm(dim=1), torch.ones(64))
    loaded.save(tmp_path)
    assert "W_dec" not in load_file(tmp_path / "sae.safetensors")
    assert not SAE.load(tmp_path).decoder
    for use in (lambda: loaded(states()), lambda: save_saelens(loaded, tmp_path)):
        with pytest.raises(InputError, match="without its decoder"):
            use()


def test_a_decoder_by_least_squares():
    sae = SAE(16, 16, 16)
    with torch.no_grad():
        sae.W_enc.copy_(2 * torch.eye(16))
        sae.b_dec.fill_(-9)  # every latent fires: z = 2 (x − b_dec)
    sae.decoder = False
    report = fit_decoder(sae, [*states(4000).split(200), states(4000, seed=1)])
    assert (sae.decoder, report.tokens) == (True, 2 * 200 + 256)  # every tenth block of up to 256
    # z ᵀz has the smallest eigenvalue 4 n: r = 4 (81 + 1) shrinks rows by less than r / 4 n.
    assert torch.allclose(sae.W_dec, torch.eye(16) / 2, atol=0.01)
    assert report.fvu < 0.001


def test_a_damaged_file_is_an_input_error(tmp_path):
    make(16, 64, None).save(tmp_path)
    whole, config = (tmp_path / "sae.safetensors").read_bytes(), (tmp_path / "sae.json").read_text()
    for damaged in (b"", whole[:-1], b"not safetensors"):
        (tmp_path / "sae.safetensors").write_bytes(damaged)
        with pytest.raises(InputError, match="not a saved SAE"):
            SAE.load(tmp_path)
    (tmp_path / "sae.safetensors").write_bytes(whole)
    for changes in (
        {"k": 3},  # but there are thresholds
        {"k": "3"},
        {"d_in": 17},
        {"num_latents": 10**15},  # nothing so large is allocated
        {"num_latents": -1},
        {"num_latents": None},
        {"origin": 3},
    ):
        (tmp_path / "sae.json").write_text(json.dumps({**json.loads(config), **changes}))
        with pytest.raises(InputError, match="not a saved SAE"):
            SAE.load(tmp_path)
    for document in ("[]", "{}", "", "{"):
        (tmp_path / "sae.json").write_text(document)
        with pytest.raises(InputError, match="not a saved SAE"):
            SAE.load(tmp_path)
    with pytest.raises(InputError, match="not a saved SAE"):
        SAE.load(tmp_path / "nowhere")


@pytest.mark.parametrize(("number", "scale"), [(-1, 1), (math.nan, 1), (1, 0), (1, math.inf)])
def test_thresholds_and_scales_out_of_range(tmp_path, number, scale):
    sae = make(16, 64, None)
    sae.threshold[3] = number
    sae.scale.fill_(scale)
    sae.save(tmp_path)
    with pytest.raises(InputError, match="a number is not finite, or below 0"):
        SAE.load(tmp_path)


def test_a_short_training_takes_larger_steps_which_fall_in_the_last_fifth():
    assert SAESettings(tokens=1000, batch_size=10).decay_steps == 20
    rates = [SAESettings(tokens=10 * steps, batch_size=10).rate for steps in (100, 1000, 1001)]
    assert rates == [3e-3, 3e-3, 1e-3]
    assert SAESettings(tokens=10, learning_rate=0.5).rate == 0.5


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"k": 9, "num_latents": 8}, "k 9 is larger than num_latents 8"),
        ({"prefixes": ()}, r"prefixes must ascend to 8192: \(\)"),
        ({"prefixes": (0, 8192)}, r"prefixes\[0\] must be at least 1, not 0"),
        ({"prefixes": (7, 7, 8192)}, r"prefixes must ascend to 8192: \(7, 7, 8192\)"),
        ({"prefixes": (16, 32)}, r"prefixes must ascend to 8192: \(16, 32\)"),
    ],
)
def test_impossible_settings(wrong, message):
    with pytest.raises(InputError, match=message):
        SAESettings(**wrong)


def test_default_hierarchies():
    assert SAESettings(k=8).hierarchy == (1, 2, 4, 8)
    assert SAESettings(k=12).hierarchy == (1, 2, 4, 8, 12)
    assert SAESettings(k=1).hierarchy == (1,)
    assert SAESettings(65_536).nested == (2048, 6144, 14_336, 30_720, 65_536)  # SAE-SPLADE, B.4
    assert SAESettings(64, k=8).nested == (2, 6, 14, 30, 64)
    assert SAESettings(16, k=8).nested == (1, 3, 7, 16)
    assert SAESettings(prefixes=(10, 8192)).nested == (10, 8192)


def stream(buffer_tokens):
    texts = [states(9 * n, seed=n) for n in range(12)]
    reader = lambda indices: torch.cat([texts[n] for n in indices])  # noqa: E731
    return StateStream(reader, len(texts), Shuffling(50, buffer_tokens, 1, documents=3), _ignore)


def _ignore(tokens):
    pass


@pytest.mark.parametrize("buffer_tokens", [100, 10**6])
def test_a_stream_gives_every_token_once_an_epoch_and_goes_on_anywhere(buffer_tokens):
    every = torch.cat([states(9 * n, seed=n) for n in range(12)])
    unbroken = []
    for position, batch in stream(buffer_tokens).batches(Position()):
        if position.epoch == 2:
            break
        unbroken.append((position, batch))
    first = torch.cat([batch for position, batch in unbroken if position.epoch == 0])
    assert len(first) == len(every)
    assert torch.allclose(first.sum(0), every.sum(0), atol=1e-2)
    for path in (0, len(unbroken) // 2, len(unbroken) - 2):
        position, _ = unbroken[path]
        next_position, batch = next(stream(buffer_tokens).batches(position))
        assert next_position == unbroken[path + 1][0]
        assert torch.equal(batch, unbroken[path + 1][1])


def test_sinks_are_left_out_and_what_is_not_finite_stays():
    states = torch.tensor([[3.0, 4.0], [0.0, 5.0], [30.0, 40.0], [0.0, 50.1], [math.inf, 0.0]])
    kept = [[3.0, 4.0], [0.0, 5.0], [30.0, 40.0], [math.inf, 0.0]]
    median = without_sinks(states[[0, 1, 1, 2, 3]]).tolist()  # 5, so that 50 is the limit
    assert median == [[3.0, 4.0], [0.0, 5.0], [0.0, 5.0], [30.0, 40.0]]
    assert without_sinks(states[[0, 1, 1, 2, 3, 4]])[[0, 1, 3, 4]].tolist() == kept
    assert without_sinks(torch.zeros(3, 2)).tolist() == [[0.0, 0.0]] * 3
    assert without_sinks(torch.full((2, 2), math.nan)).shape == (2, 2)


def test_a_stream_with_sinks_gives_what_one_without_them_does():
    states = F.normalize(torch.randn(40, 8, generator=torch.Generator().manual_seed(0)), dim=1)
    with_sinks = torch.cat([states[:10], 1000 * states[:1], states[10:], 200 * states[5:7]])

    def first(read, drop_sinks=True):
        reader = lambda indices: read  # noqa: E731
        stream = StateStream(reader, 1, Shuffling(16, 1000, 3, drop_sinks), _ignore)
        return [batch for _, (_, batch) in zip(range(5), stream.batches(Position()), strict=False)]

    for actual, expected in zip(first(with_sinks), first(states), strict=True):
        torch.testing.assert_close(actual, expected, rtol=0, atol=0)
    every = torch.cat(first(with_sinks, drop_sinks=False)[:3])
    assert len(every) == 43
    assert float(every.norm(dim=1).max()) == pytest.approx(1000, rel=1e-6)


def test_a_transform_is_what_is_read(backbone, texts):
    plain, read = (
        backbone_reader(backbone, texts, transform)([0, 2, 4])
        for transform in (None, lambda h: 2 * h[:, :5])
    )
    assert torch.equal(read, 2 * plain[:, :5])
    assert train_sae(backbone, texts, SMALL, transform=lambda h: h[:, :5]).d_in == 5


def test_texts_without_tokens(backbone):
    with pytest.raises(InputError, match="no tokens"):
        train_sae(backbone, ["", ""], SMALL)
