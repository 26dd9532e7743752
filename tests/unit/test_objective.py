import math

import numpy as np
import pytest
import torch
from torch import nn

from lexicept.candidates.lists import CandidateList, write_lists
from lexicept.checks import from_mapping
from lexicept.encoding.head_settings import HeadSettings
from lexicept.errors import InputError
from lexicept.neural.encoders.encoder import Encoder
from lexicept.neural.heads.sae import SAEHead
from lexicept.neural.heads.vocabulary import VocabularyHead
from lexicept.neural.sae.model import SAE
from lexicept.training.ranking import losses, regularizers
from lexicept.training.ranking.config import TeacherSettings, TrainingConfig
from lexicept.training.ranking.data import Collator, Sampler, TeacherScores, TrainingData
from lexicept.training.ranking.objective import Objective
from support.tiny import text, tiny_backbone

QUERIES = torch.tensor([[1.0, 0.0, 2.0], [0.0, 0.5, 0.0], [0.5, 0.5, 0.5]])
DOCUMENTS = torch.tensor([[1.0, 1.0, 0.0], [0.0, 2.0, 1.0], [0.25, 0.0, 0.5], [0.0, 0.0, 3.0]])
TARGETS = {
    "columns": torch.tensor([[0, 2, 1], [1, 3, 0], [3, 0, 0]]),
    "mask": torch.tensor([[True, True, True], [True, True, False], [True, True, False]]),
    "relevant": torch.tensor([True, True, False]),
    "known": torch.tensor([[True, False, False, True], [False, True, False, False], [False] * 4]),
    "queries": torch.tensor([4, 1, 0]),
}
SCORES = torch.tensor([[9.0, 1.0, 3.0], [5.0, 2.0, 0.0], [1.0, 2.0, 0.0]])
TEACHER = torch.tensor([[3.0, 1, 0, 1], [0, 4, 1, 2], [1, 1, 2, 0]])
WORDS = torch.tensor([[1.0, 0, 0, 2], [0, 0, 3, 0], [0.5, 0, 0, 0]])
NONE = {"kl": 0.0}


def make(loss, query=None, document=None, joint=None, model=None, size=3, cached=False, head=None):
    sections = {
        "data": {"corpus": "x"},
        "loss": loss,
        "query_regularizer": query or {},
        "document_regularizer": document or {},
        "joint_regularizer": joint or {},
        "optimizer": {"mini_batch": 2 if cached else None},
    }
    head = head or VocabularyHead(torch.zeros(size, 2), None, ["x"] * size)
    return Objective(model or nn.Identity(), head, from_mapping(TrainingConfig, sections))


def components(objective, step=0, **targets):
    objective.step = step
    return objective.components(QUERIES, DOCUMENTS, {**TARGETS, **targets})


def values(result):
    return {name: pytest.approx(float(value.detach()), rel=1e-5) for name, value in result.items()}


def test_kl_of_the_teacher_and_of_scored_lists():
    scores = components(
        make({"kl": 2.0, "temperature": 2.0, "scale": 3.0}), teacher=TEACHER, scores=SCORES
    )
    student = 3 / 2 * QUERIES @ DOCUMENTS.T
    expected = 2 * losses.kl_divergence(student, TEACHER)
    assert values(scores) == {"kl": float(expected)}
    scores = components(make({"kl": 0.5}), scores=SCORES)
    lists = (QUERIES @ DOCUMENTS.T).gather(1, TARGETS["columns"])
    expected = 0.5 * losses.kl_divergence(lists, SCORES, mask=TARGETS["mask"])
    assert values(scores) == {"kl": float(expected)}


@pytest.mark.parametrize("scored", [True, False])
def test_margin_mse_counts_lists_with_a_relevant_document(scored):
    """By the lists' scores if there are any, else by the teacher's."""
    targets = {"teacher": TEACHER} | ({"scores": SCORES} if scored else {})
    actual = components(make({**NONE, "margin_mse": 2.0}), **targets)
    taught = SCORES if scored else TEACHER.gather(1, TARGETS["columns"])
    gaps = (QUERIES @ DOCUMENTS.T).gather(1, TARGETS["columns"]) - taught
    errors = [gaps[0, 0] - gaps[0, 1], gaps[0, 0] - gaps[0, 2], gaps[1, 0] - gaps[1, 1]]
    expected = 2 * torch.stack(errors).square().mean()
    assert values(actual) == {"margin_mse": float(expected)}


def test_in_batch_with_and_without_known_documents():
    actual = components(make({**NONE, "in_batch": 1.0}))
    student = QUERIES @ DOCUMENTS.T
    first = -torch.log_softmax(student[0, :3], 0)[0]  # document 3 is relevant too
    second = -torch.log_softmax(student[1], 0)[1]
    assert values(actual) == {"in_batch": float((first + second) / 2)}
    # Equation 1 in float64: every other document of the batch is a negative, relevant or not.
    actual = components(make({**NONE, "in_batch": 1.0, "in_batch_known": True}))
    scores = QUERIES.double().numpy() @ DOCUMENTS.double().numpy().T
    terms = [-math.log(math.exp(scores[q, q]) / np.exp(scores[q]).sum()) for q in (0, 1)]
    assert values(actual) == {"in_batch": sum(terms) / 2}
    left_out = components(make({**NONE, "in_batch": 1.0}))  # document 3 is relevant to query 0
    assert actual["in_batch"] - left_out["in_batch"] > 1


def test_a_batch_without_relevant_documents_has_nothing_to_rank():
    objective = make({**NONE, "in_batch": 1.0, "margin_mse": 1.0})
    nothing = torch.tensor([False] * 3)
    queries = QUERIES.clone().requires_grad_()
    targets = {**TARGETS, "relevant": nothing, "scores": SCORES}
    actual = objective.components(queries, DOCUMENTS, targets)
    assert values(actual) == {"in_batch": 0.0, "margin_mse": 0.0}
    torch.stack(list(actual.values())).sum().backward()
    assert not queries.grad.any()


def test_words_have_a_weight_of_their_own():
    objective = make({"words": 0.25, "scale": 3.0, "temperature": 2.0})
    expected = 1.5 * QUERIES @ DOCUMENTS.T + 0.25 * WORDS
    assert torch.allclose(objective.scores(QUERIES, DOCUMENTS, {"words": WORDS}), expected)
    # Beside words of weight 1 a query's weights are worth 1.5 / 0.25.
    assert objective.query_scale == pytest.approx(6.0)
    with torch.no_grad():
        objective.log_scale.fill_(math.log(4.0))
        objective.word_weight.fill_(0.5)
    assert objective.query_scale == pytest.approx(4.0)
    assert make({"scale": 7.0}).query_scale == 1.0


def test_masked_and_whole_vectors():
    """ESPLADE: the loss on q_K and d_K, on whole vectors, and what is between them."""
    settings = {"query_top_k": 1, "document_top_k": 2, "mask_divergence": 0.5}
    actual = components(make({**settings, "in_batch": 2.0}), teacher=TEACHER)
    whole = QUERIES @ DOCUMENTS.T
    masked = losses.mask_top_k(QUERIES, 1) @ losses.mask_top_k(DOCUMENTS, 2).T
    expected = values(components(make({"in_batch": 2.0}), teacher=TEACHER))
    assert values(actual) == {
        "kl": expected["kl"],
        "in_batch": expected["in_batch"],
        "masked_kl": float(losses.kl_divergence(masked, TEACHER)),
        "masked_in_batch": pytest.approx(
            float(
                2
                * losses.in_batch_softmax(
                    masked[:2], torch.tensor([0, 1]), excluded=TARGETS["known"][:2]
                )
            )
        ),
        "mask_divergence": float(0.5 * losses.kl_divergence(masked, whole)),
    }
    alone = components(make({**settings, "dual": False}), teacher=TEACHER)
    assert sorted(alone) == ["mask_divergence", "masked_kl"]


@pytest.mark.parametrize("regularizer", ["flops", "l1"])
def test_regularizers_of_each_side(regularizer):
    objective = make(
        {},
        {"kind": regularizer, "weight": 0.5, "schedule": "constant"},
        {"kind": regularizer, "weight": 2.0, "schedule": "constant"},
        {"weight": 4.0, "schedule": "constant"},
    )
    actual = values(components(objective, teacher=TEACHER))
    measure = getattr(regularizers, regularizer)
    assert actual == {
        "kl": float(losses.kl_divergence(QUERIES @ DOCUMENTS.T, TEACHER)),
        f"query_{regularizer}": float(0.5 * measure(QUERIES)),
        f"document_{regularizer}": float(2.0 * measure(DOCUMENTS)),
        "joint_flops": float(4.0 * regularizers.joint_flops(QUERIES, DOCUMENTS)),
    }


@pytest.mark.parametrize(
    ("schedule", "shares"),
    [
        ("constant", [1, 1, 1, 1]),
        ("linear", [0, 0.25, 0.5, 1]),
        ("quadratic", [0, 1 / 16, 1 / 4, 1]),
    ],
)
def test_regularizers_grow_with_the_step(schedule, shares):
    settings = {"weight": 2.0, "schedule": schedule, "steps": 8}
    objective = make({}, settings, settings, settings)
    for step, share in zip([0, 2, 4, 100], shares, strict=True):
        actual = components(objective, step, teacher=TEACHER)
        expected = {
            "query_flops": 2 * regularizers.flops(QUERIES),
            "document_flops": 2 * regularizers.flops(DOCUMENTS),
            "joint_flops": 2 * regularizers.joint_flops(QUERIES, DOCUMENTS),
        }
        got = {name: float(value.detach()) for name, value in actual.items() if name != "kl"}
        assert got == pytest.approx(
            {name: share * float(value) for name, value in expected.items()} if share else {}
        )


def test_df_flops_counts_documents_while_training_only():
    objective = make({}, None, {"kind": "df_flops", "weight": 2.0, "schedule": "constant"})
    actual = components(objective, teacher=TEACHER)
    ratios = torch.tensor([0.5, 0.5, 0.75])
    assert torch.allclose(objective.df["document"].ratios, ratios)
    expected = float(2 * regularizers.df_flops(DOCUMENTS, regularizers.df_penalties(ratios)))
    assert values(actual)["document_df_flops"] == expected
    before = objective.own_state()
    before = {name: value.clone() for name, value in before.items()}
    objective.eval()
    components(objective, teacher=TEACHER)
    for name, value in objective.own_state().items():
        assert torch.equal(value, before[name]), name
    objective.train()
    components(objective, teacher=TEACHER)
    assert int(objective.df["document"].count) == 8


def test_alpha_and_beta_of_df_flops():
    """a = 1 / (1 + (x^(log_α 2) − 1)^β); with α 1/4, x 1/2 and β 2: (2 + √2) / 4."""
    settings = {"kind": "df_flops", "weight": 1.0, "schedule": "constant", "alpha": 0.25, "beta": 2}
    objective = make({}, None, {**settings, "df_texts": 4})
    actual = components(objective, teacher=TEACHER)
    penalties = regularizers.df_penalties(objective.df["document"].ratios, 0.25, 2)
    assert penalties.tolist() == pytest.approx([(2 + 2**0.5) / 4, (2 + 2**0.5) / 4, 0.9766270])
    expected = float((penalties.double() * DOCUMENTS.double().mean(dim=0)).square().sum())
    assert values(actual)["document_df_flops"] == expected
    assert objective.df["document"].window == 4


def test_a_sample_takes_the_place_of_batches():
    """Frequencies of 3, 1 and 2 of four texts, whatever the batches hold."""
    settings = {"kind": "df_flops", "weight": 1.0, "schedule": "constant", "df_source": "sample"}
    objective = make({}, None, settings, model=Embedding())
    texts = torch.tensor([[1.0, 0, 2], [1, 0, 0], [0, 3, 0], [1, 0, 1]])
    objective.recount("document", [{"vectors": texts[:3]}, {"vectors": texts[3:]}])
    assert objective.df["document"].ratios.tolist() == [0.75, 0.25, 0.5]
    assert objective.model.training
    actual = components(objective, teacher=TEACHER)  # a batch with other frequencies
    assert objective.df["document"].ratios.tolist() == [0.75, 0.25, 0.5]
    penalties = regularizers.df_penalties(torch.tensor([0.75, 0.25, 0.5]))
    assert values(actual)["document_df_flops"] == float(regularizers.df_flops(DOCUMENTS, penalties))


class Embedding(nn.Module):
    """Given vectors as embeddings, which must not be made with dropout."""

    def forward(self, features, task, **_):
        assert not self.training
        return {"sentence_embedding": features["vectors"]}


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        ({}, "loss.kl requires a teacher, or lists with scores"),
        ({**NONE, "margin_mse": 1.0}, "loss.margin_mse requires a teacher, or lists with scores"),
    ],
)
def test_without_a_teacher(loss, message):
    with pytest.raises(InputError, match=message):
        components(make(loss))


def test_own_state_survives():
    settings = {"kind": "df_flops", "weight": 1.0}
    objective = make({"words": 0.5}, settings, settings, model=nn.Linear(2, 2))
    components(objective, teacher=TEACHER, words=WORDS)
    with torch.no_grad():
        objective.log_scale.fill_(0.75)
    state = {name: value.clone() for name, value in objective.own_state().items()}
    assert sorted(state) == [
        *(f"df.{side}.{n}" for side in ("document", "query") for n in ("count", "ratios")),
        "log_scale",
        "word_weight",
    ]
    other = make({"words": 0.5}, settings, settings, model=nn.Linear(2, 2))
    weights = other.model.weight.clone()
    other.load_own_state(state)
    assert all(torch.equal(value, state[name]) for name, value in other.own_state().items())
    assert torch.equal(other.model.weight, weights)
    with pytest.raises(InputError, match=r"another objective: \['df"):
        make({}).load_own_state(state)
    del state["log_scale"]
    with pytest.raises(InputError, match=r"another objective: \['log_scale'\]"):
        other.load_own_state(state)


def test_only_an_sae_reconstructs():
    with pytest.raises(InputError, match="requires a head over an SAE"):
        make({"reconstruction": 1.0})


# Whole models


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return tiny_backbone(tmp_path_factory.mktemp("bert"), dropout=0.3)


def make_model(bert, pooling):
    torch.manual_seed(0)
    settings = HeadSettings(pooling, query_k=8)
    head = VocabularyHead(torch.randn(30, 32), torch.randn(30), ["x"] * 30, settings=settings)
    model = Encoder.of(bert, head)
    model.zero_grad()
    bert.requires_grad_(True)
    return model


def make_batch(bert, folder, mini_batch):
    names = [f"d{n}" for n in range(9)]
    documents = [text(n, 2 * n, *range(n)) for n in range(9)]  # of different lengths
    queries = [text(3 * n, n) for n in range(4)]
    lists = [CandidateList(f"q{n}", (names[n], *names[n + 1 : n + 4]), 1) for n in range(4)]
    embedded = torch.nn.functional.normalize(torch.randn(13, 4), dim=1).numpy()
    data = TrainingData(
        [f"q{n}" for n in range(4)],
        queries,
        names,
        documents,
        write_lists(folder / "lists.jsonl", lists),
        teacher=TeacherScores(TeacherSettings(dense_weight=5), embedded[:4], embedded[4:]),
    )
    collator = Collator(Sampler(data, 2, 1.0, 0), data, bert, mini_batch=mini_batch)
    batch = collator([{"number": n} for n in range(4)])
    batch["targets"]["words"] = torch.rand(4, len(batch["targets"]["known"][0]))
    return batch


def trained_once(model, batch, cached, repeats=1):
    objective = make(
        {"kl": 1.0, "margin_mse": 0.1, "in_batch": 1.0, "words": 0.5, "scale": 0.3},
        {"weight": 0.01, "schedule": "constant"},
        {"kind": "df_flops", "weight": 0.1, "schedule": "constant"},
        {"weight": 0.01, "schedule": "constant"},
        model,
        30,
        cached,
    )
    objective.train()
    torch.manual_seed(7)
    for _ in range(repeats):
        actual = objective(batch)
        (torch.stack(list(actual.values())).sum() / repeats).backward()
    gradients = {
        name: p.grad.clone() for name, p in objective.named_parameters() if p.grad is not None
    }
    model.zero_grad()
    state = objective.own_state()
    counts = {n: value.clone() for n, value in state.items() if n.startswith("df")}
    return actual, gradients, counts, torch.get_rng_state()


@pytest.mark.parametrize(
    ("pooling", "mini_batch", "repeats"), [("max", 1, 2), ("sum", 3, 1), ("sqrt_sum", 100, 1)]
)
def test_gradient_caching_changes_nothing(bert, tmp_path, pooling, mini_batch, repeats):
    """With dropout: values, gradients of all parameters and the random numbers used."""
    model, batch = make_model(bert, pooling), make_batch(bert, tmp_path, mini_batch)
    plain = trained_once(model, batch, cached=False, repeats=repeats)
    cached = trained_once(model, batch, cached=True, repeats=repeats)
    assert plain[0].keys() == cached[0].keys()
    for name, value in plain[0].items():
        assert torch.allclose(cached[0][name], value, rtol=1e-4, atol=1e-6), name
    assert plain[1].keys() == cached[1].keys()
    assert {"log_scale", "word_weight", "model.1.weight"} <= plain[1].keys()
    assert any(name.startswith("model.0.") for name in plain[1])
    largest = max(float(gradient.abs().max()) for gradient in plain[1].values())
    for name, gradient in plain[1].items():
        assert torch.allclose(cached[1][name], gradient, rtol=1e-3, atol=1e-5 * largest), name
    for name, value in plain[2].items():
        assert torch.equal(cached[2][name], value), name
    assert torch.equal(plain[3], cached[3])


def test_dropout_is_active_while_training(bert, tmp_path):
    model, batch = make_model(bert, "max"), make_batch(bert, tmp_path, None)
    objective = make({}, model=model, size=30).train()
    torch.manual_seed(0)
    noisy = [float(objective(batch)["kl"].detach()) for _ in range(2)]
    assert noisy[0] != noisy[1]
    objective.eval()
    calm = [float(objective(batch)["kl"].detach()) for _ in range(2)]
    assert calm[0] == calm[1]


def test_mini_batches_are_one_batch_where_nothing_is_random(bert, tmp_path):
    model = make_model(bert, "max")
    objective = make({"in_batch": 1.0}, model=model, size=30, cached=True).eval()
    (tmp_path / "parts").mkdir()
    torch.manual_seed(1)
    whole = make_batch(bert, tmp_path, None)
    torch.manual_seed(1)
    batches = make_batch(bert, tmp_path / "parts", 2)
    expected = {name: float(loss.detach()) for name, loss in objective(whole).items()}
    actual = {name: float(loss.detach()) for name, loss in objective(batches).items()}
    assert actual == pytest.approx(expected, rel=1e-5)


def test_without_gradients_nothing_is_cached(bert, tmp_path):
    batch = make_batch(bert, tmp_path, 2)
    objective = make({}, model=make_model(bert, "max"), size=30, cached=True).eval()
    expected = float(objective(batch)["kl"].detach())
    with torch.no_grad():
        actual = objective(batch)
    assert not actual["kl"].requires_grad
    assert float(actual["kl"]) == pytest.approx(expected)


def make_sae_model(bert, document_k):
    torch.manual_seed(0)
    sae = SAE(32, 30, 3)
    sae.mean += 0.3
    sae.scale *= 2.0
    model = Encoder.of(bert, SAEHead(sae, HeadSettings(query_k=1, document_k=document_k)))
    model[1].freeze_unused(decoder=False)
    bert.requires_grad_(True)
    model.zero_grad()
    return model


@pytest.mark.parametrize(("unit", "document_k", "k"), [("fraction", 2, 2), ("squared", None, 3)])
def test_an_sae_that_also_reconstructs(bert, tmp_path, document_k, k, unit):
    """The documents' tokens, as the SAE alone would; the backbone learns nothing from them."""
    model = make_sae_model(bert, document_k).eval()
    sae, batch = model[1].sae, make_batch(bert, tmp_path, None)
    loss = {"reconstruction": 0.5, "reconstruction_error": unit}
    actual = make(loss, model=model, head=model[1]).eval()(batch)
    with torch.no_grad():
        text_vectors = [bert(dict(mini_batch)) for mini_batch in batch["document"]]
    states = torch.cat(
        [vectors["token_embeddings"][vectors["token_mask"]] for vectors in text_vectors]
    )
    acts, latents = sae.encode(states, k)
    x = sae.normalise(states)
    error = (sae.decode(acts / sae.scale, latents) - x).square().sum()
    expected = error / 2 / (len(x) if unit == "squared" else (x - x.mean(0)).square().sum())
    assert actual.keys() == {"kl", "reconstruction"}
    assert float(actual["reconstruction"].detach()) == pytest.approx(float(expected.detach()))
    actual["reconstruction"].backward()
    learned = ((name, p.grad) for name, p in model.named_parameters())
    gradients = {name: gradient.clone() for name, gradient in learned if gradient is not None}
    of_the_sae = {name: gradients.pop(f"1.sae.{name}") for name, _ in sae.named_parameters()}
    assert not any(gradient.any() for gradient in gradients.values())
    own = torch.autograd.grad(expected, list(sae.parameters()))
    for (name, _), gradient in zip(sae.named_parameters(), own, strict=True):
        assert torch.allclose(of_the_sae[name], gradient, rtol=1e-3, atol=1e-5), name
