"""Every architecture's loss, gradients and inference are its paper's equations."""

import json
from math import log

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from lexicept.models.sae.model import SAE
from lexicept.ops import linear_topk
from lexicept.training.loop import Loop
from lexicept.training.sae.objectives import CONTROL, OBJECTIVES, equal_shares
from lexicept.training.sae.settings import SAESettings
from lexicept.training.sae.trainer import SAETask, initial_sae, train_on_states
from support.jump_relu import Count, Jump
from support.processes import KilledError
from support.short_products import use_bytes
from support.tiny import save_bert, text

ARCHITECTURES = list(OBJECTIVES)
M, D, K = 24, 6, 3
NONE = torch.zeros(0, dtype=torch.long)


def states(n=20, d=D, seed=0):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def objective(architecture, **settings):
    """In double precision, with biases and, where there are some, unequal thresholds."""
    chosen = SAESettings(M, K, architecture=architecture, **settings)
    made = OBJECTIVES[architecture](initial_sae(states().float(), chosen), chosen).double()
    with torch.no_grad():
        made.sae.b_enc.copy_(torch.linspace(-0.2, 0.2, M))
        made.sae.b_dec.copy_(torch.linspace(-1, 1, D))
        made.sae.W_enc.mul_(torch.linspace(0.8, 1.2, M)[:, None])
        for parameter in made.own_parameters():
            parameter.copy_(torch.linspace(-0.3, 0.3, M))
    return made


def pre_acts(sae, x):
    return (x - sae.b_dec) @ sae.W_enc.T + sae.b_enc


def largest(p, k):
    """ReLU of the k largest of each row, and zeros."""
    return p.relu() * torch.zeros_like(p).scatter(1, p.topk(k, dim=1).indices, 1.0)


def loss_of(sae, x, z, latents=M):
    return (z[:, :latents] @ sae.W_dec[:latents] + sae.b_dec - x).square().sum(1).mean()


def topk(made, x):
    z = largest(pre_acts(made.sae, x), K)
    return loss_of(made.sae, x, z), z


def batch_topk(made, x):
    p = pre_acts(made.sae, x)
    z = p.relu() * (p >= p.ravel().topk(K * len(x)).values[-1])
    return loss_of(made.sae, x, z), z


def hierarchical(made, x):
    p = pre_acts(made.sae, x)
    losses = [loss_of(made.sae, x, largest(p, k)) for k in (1, 2, 3)]
    return sum(losses) / 3, largest(p, K)


def matryoshka(made, x):
    p = pre_acts(made.sae, x)
    z = largest(p, K)
    return sum(loss_of(made.sae, x, z, m) for m in (2, 5, 11, M)), z


def relu(made, x):
    z = pre_acts(made.sae, x).relu()
    penalty = (z * made.sae.W_dec.norm(dim=1).detach()).sum(1).mean()
    return loss_of(made.sae, x, z) + made.weight * penalty, z


def gated(made, x):
    sae = made.sae
    linear = (x - sae.b_dec) @ sae.W_enc.T
    gate = (linear + sae.b_enc).relu()
    z = (gate > 0) * (linear * made.r.exp() + made.b_mag).relu()
    frozen = gate @ sae.W_dec.detach() + sae.b_dec.detach() - x
    loss = loss_of(sae, x, z) + made.weight * gate.sum(1).mean() + frozen.square().sum(1).mean()
    return loss, z


DENSE = {
    "topk": (topk, {}),
    "batch_topk": (batch_topk, {}),
    "hierarchical": (hierarchical, {"ks": (1, 2, 3)}),
    "matryoshka": (matryoshka, {"prefixes": (2, 5, 11, M)}),
    "relu": (relu, {}),
    "gated": (gated, {}),
}
"""Textbook implementations: loss and activations, by autograd through dense arrays."""


@pytest.mark.parametrize("architecture", DENSE)
@pytest.mark.parametrize("shift", [0.0, -50.0])
def test_loss_and_gradients_are_the_textbook_s(architecture, shift, monkeypatch):
    monkeypatch.setattr("lexicept.training.sae.objectives.WARMUP_STEPS", 0)
    dense, settings = DENSE[architecture]
    made, x = objective(architecture, **settings), states()
    with torch.no_grad():
        made.sae.b_enc.add_(shift)  # by -50 nothing is active
        if hasattr(made, "weight"):
            made.weight.fill_(0.7)
    expected, z = dense(made, x)
    z = z.relu()
    gradients = torch.autograd.grad(expected, list(made.parameters()), allow_unused=True)
    outcome = made(x, NONE)
    assert torch.allclose(outcome.loss, expected, atol=1e-12)
    assert torch.equal(outcome.active, (z > 0).sum(0))
    error = x - z @ made.sae.W_dec - made.sae.b_dec
    assert torch.allclose(outcome.error, error, atol=1e-12)
    ours = torch.autograd.grad(outcome.loss, list(made.parameters()), allow_unused=True)
    for (name, parameter), a, b in zip(made.named_parameters(), ours, gradients, strict=True):
        a = torch.zeros_like(parameter) if a is None else a
        b = torch.zeros_like(parameter) if b is None else b
        assert torch.allclose(a, b, atol=1e-12), name
    assert bool(outcome.active.any()) == (shift == 0.0)


def test_pseudo_derivatives_by_hand():
    """Equations 11 and 12 of Rajamanoharan et al. 2024b."""
    p = torch.tensor([[1.9, 5.0], [2.2, 0.9], [2.6, 1.3]], requires_grad=True)
    threshold, width = torch.tensor([2.0, 1.0], requires_grad=True), torch.tensor([0.5, 0.25])
    z = Jump.apply(p, threshold, width)
    assert torch.equal(z, torch.tensor([[0.0, 5.0], [2.2, 0.0], [2.6, 1.3]]))
    # Within .25 of 2 are 1.9 and 2.2, within .125 of 1 is .9.
    weights = torch.tensor([[1.0, 10.0], [2.0, 20.0], [4.0, 40.0]])
    of_p, of_threshold = torch.autograd.grad((z * weights).sum(), (p, threshold))
    assert torch.equal(of_p, weights * (z > 0))
    expected = torch.tensor([-2.0 / 0.5 * (1.0 + 2.0), -1.0 / 0.25 * 20.0])
    assert torch.allclose(of_threshold, expected)
    count = Count.apply(p, threshold, width)
    assert count.item() == 4.0
    (of_threshold,) = torch.autograd.grad(7 * count, threshold)
    assert torch.allclose(of_threshold, torch.tensor([-7 / 0.5 * 2, -7 / 0.25]))


def test_pseudo_derivatives_at_their_borders():
    """Nothing at θ itself passes, and of p at θ ± ε/2 and beyond θ learns nothing."""
    p = torch.tensor([[2.0], [1.75], [2.25], [0.0], [9.0]], requires_grad=True)
    threshold, width = torch.tensor([2.0], requires_grad=True), torch.tensor([0.5])
    z = Jump.apply(p, threshold, width)
    assert z.tolist() == [[0.0], [0.0], [2.25], [0.0], [9.0]]
    of_p, of_z = torch.autograd.grad(z.sum(), (p, threshold))
    assert of_p.tolist() == [[0.0], [0.0], [1.0], [0.0], [1.0]]
    count = Count.apply(p, threshold, width)
    assert count.item() == 2.0
    (of_count,) = torch.autograd.grad(count, threshold)
    assert (of_z.item(), of_count.item()) == (-2.0 / 0.5, -1 / 0.5)  # of the first alone


def test_jumprelu_is_its_equations(monkeypatch):
    monkeypatch.setattr("lexicept.training.sae.objectives.WARMUP_STEPS", 4)
    made, x = objective("jumprelu"), states()
    made.weight.fill_(0.7)
    made.step.fill_(1)  # the second of four steps
    p, threshold = pre_acts(made.sae, x), made.log_threshold.exp()
    z = p * (p > threshold)
    outcome = made(x, NONE)
    expected = loss_of(made.sae, x, z) + 0.7 * 2 / 4 * (z > 0).sum() / len(x)
    assert torch.allclose(outcome.loss, expected, atol=1e-6)
    assert 0 < outcome.active.sum() < (p > 0).sum()
    outcome.loss.backward()
    assert made.log_threshold.grad.any()


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_what_inference_finds_is_what_training_did(architecture, tmp_path):
    made, x = objective(architecture), states()
    outcome = made(x, NONE)
    made.finish()
    sae = made.sae.requires_grad_(False)
    acts, latents = sae.encode(x)
    error = x - sae(x)
    active = torch.bincount(latents[acts > 0], minlength=M)
    if architecture == "batch_topk":  # the smallest that is kept is not above itself
        assert int((outcome.active - active).abs().sum()) == 1
        assert sae.threshold.unique().numel() == 1
    else:
        assert torch.equal(active, outcome.active)
        assert torch.allclose(error, outcome.error, atol=1e-12)
    assert (sae.k is None) == (sae.threshold is not None) == made.settings.has_thresholds
    assert sae.threshold is None or not sae.threshold.requires_grad
    sae.float().save(tmp_path)
    loaded = SAE.load(tmp_path)
    assert loaded.architecture == architecture
    assert torch.equal(loaded(x.float()), sae(x.float()))


def test_a_gate_below_a_negative_magnitude_stays_shut():
    """Where b_mag − exp(r) b_gate is negative, the ReLU decides."""
    made, x = objective("gated"), states()
    with torch.no_grad():
        made.sae.b_enc.fill_(1.0)
        made.b_mag.fill_(-0.5)
    outcome = made(x, NONE)
    made.finish()
    assert not made.sae.threshold.any()
    assert torch.allclose(x - made.sae(x), outcome.error, atol=1e-12)


def test_a_running_estimate_of_the_batches_smallest_activation():
    made = objective("batch_topk")
    smallest = []
    for seed in range(3):
        made(states(seed=seed), NONE)
        p = pre_acts(made.sae, states(seed=seed))
        smallest.append(p.ravel().topk(K * 20).values[-1].item())
    first, second, third = smallest
    expected = 0.95 * (0.95 * first + 0.05 * second) + 0.05 * third
    assert float(made.sae.threshold[0]) == pytest.approx(expected)


def test_matryoshka_by_hand():
    """One code, truncated: 3 · e_0 + 2 · e_1 + 1 · e_2 with k = 2 has nothing of e_2, and the
    prefixes of 1, 2 and 3 latents lose 2² + 1², 1² and 1²."""
    settings = SAESettings(3, 2, architecture="matryoshka", prefixes=(1, 2, 3))
    sae = SAE(3, 3, 2)
    with torch.no_grad():
        for rows in (sae.W_enc, sae.W_dec):
            rows.copy_(torch.eye(3))
    outcome = OBJECTIVES["matryoshka"](sae, settings)(torch.tensor([[3.0, 2.0, 1.0]]), NONE)
    assert outcome.loss.item() == 5 + 1 + 1
    assert outcome.error.tolist() == [[0.0, 0.0, 1.0]]


TOP_K = pytest.mark.parametrize(
    "architecture", ["topk", "batch_topk", "hierarchical", "matryoshka"]
)


@TOP_K
def test_small_activations_count_and_those_of_0_do_not(architecture):
    settings = SAESettings(3, 2, architecture=architecture, ks=(2,), prefixes=(3,))
    sae = SAE(3, 3, None if SAESettings(architecture=architecture).has_thresholds else 2)
    with torch.no_grad():
        for rows in (sae.W_enc, sae.W_dec):
            rows.copy_(torch.eye(3))
    outcome = OBJECTIVES[architecture](sae, settings)(
        torch.tensor([[0.5, 0.25, -1.0], [0.0, 0.0, 0.75]]), NONE
    )
    assert outcome.active.tolist() == [1, 1, 1]
    assert outcome.error.tolist() == [[0.0, 0.0, -1.0], [0.0, 0.0, 0.0]]
    assert outcome.loss.item() == 1 / 2
    if sae.threshold is not None:
        assert sae.threshold.tolist() == [0.25] * 3


@TOP_K
@pytest.mark.parametrize("dead", [[15, 17, 18, 19, 20, 21, 22, 23], [15, 17]])
def test_dead_latents_learn_through_the_auxiliary_loss(architecture, dead):
    """They reconstruct what the others leave over: e, of the whole SAE."""
    made, x = objective(architecture, auxiliary=0.25), states()
    with torch.no_grad():
        made.sae.b_enc[15:] = 0.01 * torch.arange(9)
        made.sae.W_enc[15:] *= 0.001  # above 0, but never among the largest
    dead = torch.tensor(dead)
    alone, revived = made(x, NONE), made(x, dead)
    assert not alone.active[15:].any()
    p = pre_acts(made.sae, x)[:, dead]
    assert (p > 0).sum(dim=1).max() == len(dead)
    of_dead = largest(p, min(2 * K, len(dead)))
    residual = of_dead @ made.sae.W_dec[dead] - alone.error.detach()
    extra = 0.25 * residual.square().sum(1).mean()
    assert torch.allclose(revived.loss, alone.loss + extra, atol=1e-12)
    expected = torch.autograd.grad(alone.loss + extra, list(made.sae.parameters()))
    revived.loss.backward()
    for parameter, gradient in zip(made.sae.parameters(), expected, strict=True):
        assert torch.allclose(parameter.grad, gradient, atol=1e-12)
    assert made.sae.W_dec.grad[dead].any()
    assert not made.sae.W_dec.grad[16].any()  # quiet, but not dead


def test_equal_shares_by_hand():
    pre = torch.tensor([[1.0, 9.0, -1.0], [3.0, 7.0, -2.0], [2.0, 8.0, -3.0], [4.0, 6.0, -4.0]])

    def shares(pre, k):
        return equal_shares(pre, torch.eye(pre.shape[1]), torch.zeros(pre.shape[1]), k)

    found = shares(pre, 2)  # of 3 latents: 2.67, so 3 of the 4 tokens
    assert torch.allclose(found, torch.tensor([2.0, 7.0, 0.0]), rtol=2e-3, atol=1e-5)
    assert ((pre > found).sum(0)[:2] == 3).all()
    assert torch.allclose(shares(pre[:1], 1)[:2], pre[0, :2], rtol=2e-3)
    assert shares(pre[:1], 1)[2] > 0
    rare = torch.arange(40.0).reshape(4, 10) + 1  # .4 tokens per latent: one at least
    assert torch.allclose(shares(rare, 1), 0.999 * rare[3])


@pytest.mark.parametrize("architecture", ["relu", "jumprelu", "gated"])
def test_training_begins_with_k_active_latents_that_do_not_overshoot(architecture):
    chosen = SAESettings(M, K, architecture=architecture, normalise=True)
    h = 50 + 30 * states(500).float()
    task = SAETask.begin(h, chosen)
    x = task.sae.normalise(h)
    outcome = task.objective(x, NONE)
    assert outcome.active.min() >= 62  # 3 of 24 latents, of 500 tokens
    assert outcome.active.max() <= 65
    x_hat = x - outcome.error - task.sae.b_dec
    fit = (x_hat * (x - task.sae.b_dec)).sum() / x_hat.square().sum()
    assert fit.item() > 0.98
    assert float(task.objective.weight) > 0


def begun(architecture, num_latents):
    """An SAE of rows of 1 for numbers, with all latents active, after its beginning."""
    settings = SAESettings(num_latents, num_latents, architecture=architecture)
    sae = SAE(1, num_latents, None, architecture=architecture)
    with torch.no_grad():
        for rows in (sae.W_enc, sae.W_dec):
            rows.fill_(1.0)
        sae.b_dec.fill_(5.0)
    made = OBJECTIVES[architecture](sae, settings)
    made.begin(5 + torch.tensor([[1.0], [2.0], [3.0]]))  # thresholds: .999, just below the least
    return made


def test_beginning_by_hand():
    alone = begun("relu", 1)  # x̂ = x − .999 is not too long
    assert alone.sae.W_enc.item() == 1.0
    assert alone.sae.b_enc.item() == pytest.approx(-0.999)
    # Two alike: x̂ = 2 (x − .999). ⟨x̂, x⟩ / ‖x̂‖² with .002, 2.002 and 4.002:
    fit = (0.002 + 2 * 2.002 + 3 * 4.002) / (0.002**2 + 2.002**2 + 4.002**2)
    both = begun("relu", 2)
    assert both.sae.W_enc.ravel().tolist() == pytest.approx([fit] * 2)
    assert both.sae.b_enc.tolist() == pytest.approx([-0.999 * fit] * 2)
    assert float(alone.weight) == float(both.weight) == pytest.approx(0.999)


def test_beginnings_by_hand():
    made = begun("jumprelu", 2)  # x̂ = 2 x
    assert made.sae.W_enc.ravel().tolist() == [0.5, 0.5]
    assert made.log_threshold.exp().tolist() == pytest.approx([0.4995] * 2)
    assert float(made.weight) == pytest.approx(0.999**2 / 20)
    made = begun("gated", 1)
    sums, active, _, _ = made.activate(5 + torch.tensor([[0.5], [2.0]]))
    assert sums.tolist() == [[0.0], [2.0]]
    assert active.tolist() == [1]
    # Where x̂ is at right angles to x, no scale of x̂ fits.
    sae = SAE(2, 1, None)
    with torch.no_grad():
        sae.W_enc.copy_(torch.tensor([[1.0, 0.0]]))
        sae.W_dec.copy_(torch.tensor([[0.0, 1.0]]))
    OBJECTIVES["relu"](sae, SAESettings(1, 1)).begin(torch.tensor([[1.0, 0.0], [2.0, 0.0]]))
    assert sae.W_enc.tolist() == [[1.0, 0.0]]


def test_a_gate_at_0_is_shut():
    made = objective("gated")
    with torch.no_grad():
        made.sae.b_enc.zero_()
        made.b_mag.fill_(1.0)
        sums, active, _, _ = made.activate(made.sae.b_dec[None])  # gates are 0, magnitudes 1
    assert not sums.any()
    assert not active.any()


def test_bandwidths_are_shares_of_thresholds():
    made = objective("jumprelu")
    with torch.no_grad():
        made.sae.W_enc.zero_()
        made.sae.b_enc.fill_(2.0)
        made.log_threshold.fill_(log(2.2))  # ε = 2.2: 2 is within 1.1 of 2.2
        made.log_threshold[12:].fill_(log(5.0))  # ε = 5: 2 is not within 2.5 of 5
    made.activate(
        states(5)
    ).penalty.backward()  # of log θ: θ times that of θ, −1 / ε, of every token
    expected = torch.tensor([-1.0] * 12 + [0.0] * 12).double()
    assert torch.allclose(made.log_threshold.grad, expected)


def test_lambda_warms_up_step_by_step(monkeypatch):
    monkeypatch.setattr("lexicept.training.sae.objectives.WARMUP_STEPS", 4)
    made, x = objective("relu"), states()
    made.weight.fill_(0.5)
    z = pre_acts(made.sae, x).relu()
    penalty = float(z.detach().sum(1).mean())
    shares = []
    for _ in range(6):
        outcome = made(x, NONE)
        extra = outcome.loss.detach() - loss_of(made.sae, x, z).detach()
        shares.append(float(extra) / (0.5 * penalty))
        made.after_step(K)  # λ stays
    assert shares == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0, 1.0])


@pytest.mark.parametrize(
    ("active", "change"), [(2 * K, 2.0**CONTROL), (K, 1.0), (0, 0.01**CONTROL)]
)
def test_lambda_follows_l0(active, change):
    made = objective("relu")
    made.weight.fill_(0.5)
    with torch.no_grad():
        made.sae.W_dec.mul_(3.0)
    made.after_step(active)
    assert float(made.weight) == pytest.approx(0.5 * change)
    assert torch.allclose(made.sae.W_dec.norm(dim=1), torch.ones(M, dtype=torch.float64))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_architecture_learns_sparse_directions(architecture):
    directions = F.normalize(states(20, 16, seed=3), dim=1).float()
    mixed = torch.randint(20, (4000, 3), generator=torch.Generator().manual_seed(4))
    x = directions[mixed].sum(1)

    def read(numbers):
        return x[torch.tensor(numbers)]

    settings = SAESettings(
        64, 3, 40_000, architecture, batch_size=200, learning_rate=1e-2, warmup_steps=10
    )
    sae = train_on_states(read, len(x), settings)
    error = (sae(x) - x).square().sum() / (x - x.mean(0)).square().sum()
    acts, _ = sae.encode(x)
    assert float((acts > 0).sum() / len(x)) == pytest.approx(3, abs=0.9)
    assert float(error) < (0.45 if architecture == "relu" else 0.2)  # ReLU's penalty shrinks
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


@pytest.mark.parametrize("architecture", ["batch_topk", "relu", "jumprelu", "gated"])
@pytest.mark.parametrize("short", [False, True])
def test_no_array_of_tokens_and_latents_is_made(architecture, short, monkeypatch):
    monkeypatch.setattr(linear_topk, "CHUNK_CELLS", 20_000)
    monkeypatch.setattr(linear_topk, "TILE_CELLS", 20_000)
    use_bytes(monkeypatch, short)
    x = states(1024, 8).float()
    with Sizes() as sizes:
        task = SAETask.begin(x, SAESettings(512, 4, architecture=architecture))
        Loop(task).step(x)
    assert 1024 * 8 <= sizes.largest <= 1024 * 512 / 8


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_training_resumes_to_the_same_weights(architecture, tmp_path, monkeypatch):
    monkeypatch.setattr("lexicept.models.sae.states.READ", 3)
    texts = [states(7 * number, seed=number).float() for number in range(20)]
    settings = SAESettings(
        32, 4, 3000, architecture, batch_size=100, buffer_tokens=400, dead_tokens=300
    )

    def read(numbers):
        return torch.cat([texts[number] for number in numbers])

    unbroken = train_on_states(read, len(texts), settings)
    monkeypatch.setattr("lexicept.training.loop.CHECKPOINT_SECONDS", 0)
    for stop in (300, 1700):

        def kill(stage, done, total, detail="", stop=stop):
            if done >= stop and "loss" in detail:
                raise KilledError

        with pytest.raises(KilledError):
            train_on_states(read, len(texts), settings, tmp_path, kill)
    for _ in ("goes on", "is finished: nothing is left to do"):
        resumed = train_on_states(read, len(texts), settings, tmp_path)
        assert resumed.state_dict().keys() == unbroken.state_dict().keys()
        for name, tensor in unbroken.state_dict().items():
            assert torch.equal(tensor, resumed.state_dict()[name]), name


def test_an_index_is_built_with_any_architecture(run, tmp_path):
    save_bert(tmp_path / "bert")
    lines = [json.dumps({"_id": str(n), "text": text(n, n + 1, n * n)}) for n in range(30)]
    (tmp_path / "corpus.jsonl").write_text("\n".join(lines))
    sizes = ("--num-latents", 16, "--k", 2, "--tokens", 2000, "--vocabulary", "concepts")
    own = ("--train", "--backbone", tmp_path / "bert", "--architecture", "gated")
    index = tmp_path / "my.index"
    assert run("build", tmp_path / "corpus.jsonl", "--out", index, *sizes, *own).code == 0
    (folder,) = {path.parent for path in index.rglob("sae.json")}
    sae = SAE.load(folder)
    assert (sae.architecture, sae.k, sae.num_latents) == ("gated", None, 16)
    assert len(run("search", index, text(4, 5, 16), "--json").json["results"]) > 0
