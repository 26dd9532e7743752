"""Reports against brute force, on tiny models."""

import json
from itertools import pairwise

import pytest
import torch

from lexicept.errors import InputError
from lexicept.neural.backbones.backbone import Backbone
from lexicept.neural.encoders.encoder import Encoder
from lexicept.neural.heads.language import language_head
from lexicept.neural.heads.sae import SAEHead
from lexicept.neural.sae import quality as module
from lexicept.neural.sae.model import SAE
from lexicept.neural.sae.quality import EDGES, report_sae, report_states
from support.commands import assert_error
from support.language_models import save as save_language_model
from support.tiny import states_of, text

TEXTS = [text(1, 2, 3), text(7, 7, 7, 7, 9), "", text(*range(100)), text(4), text(20, 3)]


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


@pytest.mark.parametrize(("threshold", "together"), [(True, 1), (False, 512)])
def test_a_report_is_brute_force_s(bert, monkeypatch, threshold, together):
    monkeypatch.setattr(module, "READ", together)
    monkeypatch.setattr(module, "TOGETHER", together)
    sae = some_sae(threshold)
    recorded = []
    report = report_sae(bert, sae, TEXTS, progress=lambda *arguments: recorded.append(arguments))
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
    assert recorded[-1] == ("states", 6, 6)


def test_a_perfect_sae_and_none(bert):
    """Rows of +1 and −1 for every coordinate reconstruct a state exactly."""
    sae = SAE(2, 4, 4, centred=False).requires_grad_(False)
    weights = torch.tensor([[1.0, 0], [-1, 0], [0, 1], [0, -1]])
    sae.W_enc.copy_(weights)
    sae.W_dec.copy_(weights)
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


@pytest.fixture
def model(tmp_path):
    """An encoder of the first of two blocks of a masked language model."""
    save_language_model(tmp_path / "base", "Bert")
    backbone = Backbone.from_pretrained(str(tmp_path / "base"), layer=1)
    torch.manual_seed(0)
    sae = SAE(backbone.get_embedding_dimension(), 40, 3)
    Encoder.of(backbone, SAEHead(sae)).save(str(tmp_path / "model"), create_model_card=False)
    texts = ["the cat sat on a mat", "a dog ran away from the cats"]
    lines = [json.dumps({"_id": str(n), "text": row}) for n, row in enumerate(texts)]
    (tmp_path / "corpus.jsonl").write_text("\n".join(lines))
    return tmp_path


def test_the_command(run, model):
    arguments = ("sae", "report", model / "model", model / "corpus.jsonl")
    output = run(*arguments, "--json").json
    assert output["l0"] <= 3
    assert output["fvu"] > 0
    assert len(output["histogram"]) == len(EDGES)
    assert sum(output["histogram"]) == round(40 * (1 - output["dead"]))
    run("build", model / "corpus.jsonl", "--model", model / "model", "--out", model / "index")
    printed = run("sae", "report", model / "index", model / "corpus.jsonl").out
    assert f"FVU {output['fvu']:.4f}" in " ".join(printed.split())


def test_models_that_have_nothing_to_report(run, model):
    backbone = Backbone.from_pretrained(str(model / "base"), layer=1)
    words = Encoder.of(backbone, language_head(str(model / "base")))
    words.save(str(model / "words"), create_model_card=False)
    corpus = model / "corpus.jsonl"
    assert_error(run("sae", "report", model / "words", corpus), "the model has no SAE")
    assert_error(run("sae", "report", model / "nowhere", corpus), "no such folder")
