"""Reports against brute force, on tiny models."""

import json
import math
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM

from lexicept.errors import InputError
from lexicept.models.backbone import Backbone
from lexicept.models.encoder import Encoder
from lexicept.models.heads.sae import SAEHead
from lexicept.models.heads.vocabulary import VocabularyHead
from lexicept.models.language_heads import language_head
from lexicept.models.sae import quality as module
from lexicept.models.sae.model import SAE
from lexicept.models.sae.quality import (
    EDGES,
    LanguageModel,
    anisotropy,
    loss_recovered,
    report_sae,
    report_states,
)
from support.commands import assert_error
from support.language_models import save as save_language_model
from support.tiny import save_decoder, text, tiny_backbone

TEXTS = [text(1, 2, 3), text(7, 7, 7, 7, 9), "", text(*range(100)), text(4), text(20, 3)]


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return tiny_backbone(tmp_path_factory.mktemp("bert"), dropout=0.0)


def states_of(backbone, texts):
    return torch.cat([states for _, states in backbone.token_states(backbone.windows(texts))])


def some_sae(threshold=True):
    torch.manual_seed(0)
    sae = SAE(32, 60, None if threshold else 5).requires_grad_(False)
    sae.mean.normal_()
    sae.scale.fill_(1.7)
    sae.b_enc.copy_(torch.linspace(-3, 3, 60))
    sae.b_enc[7] = -1000.0
    if threshold:
        sae.threshold.fill_(0.5)
    return sae


@pytest.mark.parametrize("threshold", [True, False])
@pytest.mark.parametrize("together", [1, 512])
def test_a_report_is_brute_force_s(bert, monkeypatch, threshold, together):
    monkeypatch.setattr(module, "READ", together)
    monkeypatch.setattr(module, "TOGETHER", together)
    sae = some_sae(threshold)
    seen = []
    report = report_sae(bert, sae, TEXTS, progress=lambda *arguments: seen.append(arguments))
    h = states_of(bert, TEXTS).double()
    acts, latents = sae.encode(h.float())
    fired = torch.zeros(len(h), 60).scatter_add(1, latents, acts) > 0
    fvu = (sae(h.float()) - h).square().sum() / (h - h.mean(0)).square().sum()
    assert report.tokens == len(h) > 100
    assert report.fvu == pytest.approx(float(fvu), rel=1e-5)
    assert report.l0 == pytest.approx(float(fired.sum(1).double().mean()))
    shares = fired.double().mean(0)
    assert report.dead == pytest.approx(float((shares == 0).double().mean()))
    assert 0 < report.dead < 1
    bounds = [0.0, *(10**edge for edge in EDGES)]
    counts = [
        sum(low < share * (1 - 1e-9) <= high for share in shares.tolist())
        for low, high in pairwise(bounds)
    ]
    assert list(report.histogram) == counts
    assert sum(counts) == round((1 - report.dead) * 60)
    assert seen[-1] == ("states", 6, 6)


def test_a_perfect_sae_and_none(bert):
    """Rows of +1 and −1 for every coordinate reconstruct a state exactly."""
    sae = SAE(2, 4, 4, centred=False).requires_grad_(False)
    rows = torch.tensor([[1.0, 0], [-1, 0], [0, 1], [0, -1]])
    sae.W_enc.copy_(rows)
    sae.W_dec.copy_(rows)
    report = report_states([torch.tensor([[3.0, -2.0]]), torch.tensor([[5.0, 0.0]])], sae)
    assert (report.tokens, report.fvu, report.l0, report.dead) == (2, 0.0, 1.5, 0.5)
    assert report.histogram == (0,) * 12 + (2,)  # on all tokens, and on half of them
    with pytest.raises(InputError, match="no tokens"):
        report_states([], sae)
    with pytest.raises(InputError, match="no tokens"):
        report_sae(bert, some_sae(), [""])


def test_a_transform_is_what_an_sae_reads(bert):
    sae = some_sae()
    report = report_sae(bert, sae, TEXTS, transform=lambda states: 3 * states + 1)
    expected = report_states([3 * states_of(bert, TEXTS) + 1], sae)
    assert report.fvu == pytest.approx(expected.fvu, rel=1e-5)
    assert report.l0 == expected.l0
    direction = torch.ones(32)
    found = anisotropy(bert, TEXTS, transform=lambda states: states[:, :1].abs() * direction)
    assert found[0] == anisotropy(bert, TEXTS)[0]
    assert found[1] == pytest.approx(1.0)


def head_over(backbone):
    torch.manual_seed(4)
    size = backbone.model.config.vocab_size
    terms = [str(n) for n in range(size)]
    return VocabularyHead(torch.randn(size, 32), torch.randn(size), terms).requires_grad_(False)


def cross_entropy(backbone, head, layer, change, shifted):
    """Window by window, with the blocks above ``layer`` run one after another."""
    total, count = 0.0, 0
    for window in backbone.windows(TEXTS):
        ids = torch.tensor([window.token_ids])
        real = torch.tensor(window.left_out) == 0
        hidden = backbone.model(ids, output_hidden_states=True).hidden_states
        states = hidden[layer or backbone.num_layers].clone()
        if layer is not None:
            states[0, real] = change(states[0, real])
            for block in backbone.model.encoder.layer[layer:]:
                states = block(states)
        x = head.transform(states[0])
        if layer is None:
            x[real] = change(x[real])
        logits = F.linear(x, head.rows, head.bias)
        places = real.nonzero().ravel()
        log = logits.log_softmax(1)[places - int(shifted), ids[0, places]]
        total, count = total - float(log.sum()), count + len(log)
    return total / count


@pytest.mark.parametrize("layer", [1, 2, None])
def test_the_loss_recovered_is_brute_force_s(bert, monkeypatch, layer):
    monkeypatch.setattr(module, "LOGITS", 1000)  # less than a batch's
    head, sae, mean = head_over(bert), some_sae(), torch.linspace(-1, 1, 32)
    shifted = layer == 1  # any model may be read as a decoder
    found = loss_recovered(LanguageModel(bert, head, shifted), sae, mean, layer, TEXTS)
    with torch.no_grad():
        expected = [
            cross_entropy(bert, head, layer, change, shifted)
            for change in (lambda h: h, sae, lambda h: mean.expand_as(h))
        ]
    values = [found.original, found.reconstructed, found.ablated]
    assert values == pytest.approx(expected, rel=1e-5)
    original, reconstructed, ablated = expected
    assert found.share == pytest.approx((ablated - reconstructed) / (ablated - original), rel=1e-3)


def test_all_is_recovered_where_nothing_changes(bert, monkeypatch):
    head = head_over(bert)
    sae = some_sae()
    monkeypatch.setattr(sae, "forward", lambda states: states)
    mean = torch.zeros(32)
    found = loss_recovered(LanguageModel(bert, head, False), sae, mean, 1, TEXTS)
    assert found.share == pytest.approx(1.0, abs=1e-4)
    monkeypatch.setattr(sae, "forward", lambda states: torch.zeros_like(states))
    found = loss_recovered(LanguageModel(bert, head, False), sae, mean, 1, TEXTS)
    assert found.share == 0.0
    with pytest.raises(InputError, match="no token to predict"):
        loss_recovered(LanguageModel(bert, head, False), sae, mean, 1, [""])


def test_anisotropy_is_the_mean_cosine_of_all_pairs(bert):
    found = anisotropy(bert, TEXTS)
    assert len(found) == 2
    last = F.normalize(states_of(bert, TEXTS).double(), dim=1)
    cosines = last @ last.T
    pairs = ~torch.eye(len(last), dtype=torch.bool)
    assert found[1] == pytest.approx(float(cosines[pairs].mean()), rel=1e-5)
    assert found[0] != found[1]
    with pytest.raises(InputError, match="needs two tokens"):
        anisotropy(bert, ["", text(1)])


def test_a_sample_ends_with_the_texts_that_fill_it(bert, monkeypatch):
    monkeypatch.setattr(module, "SAMPLE_TEXTS", 1)
    read = []

    def windows(texts):
        read.extend(texts)
        return Backbone.windows(bert, texts)

    monkeypatch.setattr(bert, "windows", windows)
    anisotropy(bert, [text(1, 2)] * 50, tokens=5)
    assert len(read) == 3


@pytest.fixture
def model(tmp_path):
    """An encoder of the first of two blocks of a masked language model."""
    save_language_model(tmp_path / "base", "Bert")
    backbone = Backbone.from_pretrained(str(tmp_path / "base"), layer=1)
    torch.manual_seed(0)
    sae = SAE(backbone.get_embedding_dimension(), 40, 3)
    Encoder.of(backbone, SAEHead(sae)).save(str(tmp_path / "model"), create_model_card=False)
    rows = ["the cat sat on a mat", "a dog ran away from the cats"]
    lines = [json.dumps({"_id": str(n), "text": row}) for n, row in enumerate(rows)]
    (tmp_path / "corpus.jsonl").write_text("\n".join(lines))
    return tmp_path


def test_the_command(run, model):
    arguments = ("sae", "report", model / "model", model / "corpus.jsonl", "--base", model / "base")
    found = run(*arguments, "--json").json
    assert found["l0"] <= 3
    assert found["fvu"] > 0
    assert len(found["histogram"]) == len(EDGES)
    assert sum(found["histogram"]) == round(40 * (1 - found["dead"]))
    assert [len(found["anisotropy"][name]) for name in ("model", "base")] == [1, 2]
    assert found["anisotropy"]["model"][0] == pytest.approx(found["anisotropy"]["base"][0])
    recovered = found["recovered"]
    assert all(math.isfinite(recovered[name]) for name in ("original", "share"))
    shown = run(*arguments).out
    assert "loss recovered" in shown
    assert "FVU" in shown
    alone = run(*arguments[:4], "--json").json
    assert alone["recovered"] is None
    assert list(alone["anisotropy"]) == ["model"]


def test_a_decoder_s_original_loss_is_the_library_s(run, tmp_path):
    base = save_decoder(tmp_path / "llama")
    backbone = Backbone.from_pretrained(base, layer=3, bidirectional=False)
    encoder = Encoder.of(backbone, SAEHead(SAE(32, 40, 3)))
    encoder.save(str(tmp_path / "model"), create_model_card=False)
    texts = [text(1, 2, 3, 4), text(9, 8), text(20)]
    lines = [json.dumps({"_id": str(n), "text": one}) for n, one in enumerate(texts)]
    (tmp_path / "corpus.jsonl").write_text("\n".join(lines))
    command = ("sae", "report", tmp_path / "model", tmp_path / "corpus.jsonl", "--base", base)
    found = run(*command, "--json").json
    whole = AutoModelForCausalLM.from_pretrained(base)
    total, count = 0.0, 0
    for one in texts:
        ids = backbone.tokenizer(one, return_tensors="pt")["input_ids"]
        with torch.no_grad():
            mean = float(whole(ids, labels=ids).loss)
        total, count = total + mean * (ids.shape[1] - 1), count + ids.shape[1] - 1
    assert found["recovered"]["original"] == pytest.approx(total / count, rel=1e-4)
    assert len(found["anisotropy"]["base"]) == 4


def test_models_that_have_nothing_to_report(run, model):
    backbone = Backbone.from_pretrained(str(model / "base"), layer=1)
    words = Encoder.of(backbone, language_head(str(model / "base")))
    words.save(str(model / "words"), create_model_card=False)
    corpus = model / "corpus.jsonl"
    assert_error(run("sae", "report", model / "words", corpus), "the model has no SAE")
    assert_error(run("sae", "report", model / "nowhere", corpus), "no such folder")
    small = tiny_backbone(model / "small")
    small.save(str(model / "small"))
    base = ("--base", model / "small")
    assert_error(
        run("sae", "report", model / "model", corpus, *base), "of size 32, the model has 16"
    )
