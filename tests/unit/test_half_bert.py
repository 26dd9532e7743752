"""BERT in bfloat16 without padding: the states of transformers' module, text by text."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from lexicept.models import half_bert
from lexicept.models.backbone import Backbone
from lexicept.models.half_bert import HalfBert
from lexicept.models.lora import add_adapters
from lexicept.models.windows import Window
from support.tiny import save_bert, save_decoder, tiny_backbone

TEXTS = ["bade kilo", "", "delo", "bade kilo", "z " * 5, "delo " * 200, "kiba mulo " * 90]
"""Texts of no token, one token, one window and several; two are the same."""


def by_window(backbone: Backbone, windows: list[Window]) -> list[Tensor]:
    """The states of each window's own tokens."""
    found: dict[int, Tensor] = {}
    for numbers, states in backbone.token_states(windows):
        lengths = [windows[number].left_out.count(0) for number in numbers]
        found |= zip(numbers, states.split(lengths), strict=True)
    return [found[number] for number in range(len(windows))]


@pytest.fixture
def bert(tmp_path, monkeypatch):
    monkeypatch.setattr("lexicept.models.half_bert.multiplies_bfloat16", lambda: True)
    backbone = tiny_backbone(tmp_path / "bert")
    if HalfBert.of(backbone.model) is None:
        pytest.skip("torch has no oneDNN that multiplies bfloat16 here")
    return backbone


@pytest.mark.parametrize("tokens", [1, 40, 2048])
def test_bfloat16_is_near_whatever_the_batches_are(tokens, bert, monkeypatch):
    monkeypatch.setattr(half_bert, "BATCH_TOKENS", tokens)
    monkeypatch.setattr(half_bert, "SCORES", 3 * tokens)
    windows = bert.windows(TEXTS)
    exact = by_window(bert, windows)
    bert.precision = "bfloat16"
    found = by_window(bert, windows)
    alone = [by_window(bert, [window])[0] for window in windows]
    assert [len(states) for states in found] == [window.left_out.count(0) for window in windows]
    near = {"atol": 0.05, "rtol": 0.02}
    torch.testing.assert_close(torch.cat(found), torch.cat(exact), **near)
    torch.testing.assert_close(torch.cat(found), torch.cat(alone), **near)
    assert torch.cat(found).dtype == torch.float32
    assert not torch.equal(torch.cat(found), torch.cat(exact))
    assert torch.equal(found[0], found[3])


def test_weights_are_read_as_they_are_now(bert):
    windows = bert.windows(TEXTS[:1])
    bert.precision = "bfloat16"
    before = by_window(bert, windows)[0]
    with torch.no_grad():
        bert.model.encoder.layer[1].output.dense.weight.zero_()
    bert.precision = "float32"
    exact = by_window(bert, windows)[0]
    bert.precision = "bfloat16"
    after = by_window(bert, windows)[0]
    assert (after - exact).abs().max() < 0.05 < (after - before).abs().max()


def test_a_window_without_tokens_has_no_states(bert):
    bert.precision = "bfloat16"
    (empty, one) = by_window(bert, [Window(0, [], [], [], []), *bert.windows(["bade"])])
    assert (empty.shape, one.shape) == ((0, 32), (1, 32))


def test_models_that_are_left_to_transformers(bert, tmp_path):
    model = bert.model
    assert HalfBert.of(model.train()) is None  # dropout
    assert HalfBert.of(model.eval()) is not None
    model.config.hidden_act = "relu"
    assert HalfBert.of(model) is None
    model.config.hidden_act = "gelu"
    assert HalfBert.of(model.double()) is None
    assert HalfBert.of(add_adapters(model.float(), "base", 2).eval()) is None
    decoder = Backbone.from_pretrained(save_decoder(tmp_path / "llama"))
    assert HalfBert.of(decoder.model) is None


def test_gradients_reach_the_weights_of_a_model_that_was_converted(bert):
    bert.precision = "bfloat16"
    by_window(bert, bert.windows(["bade"]))
    bert.forward(bert.preprocess(["bade"]))["token_embeddings"].square().sum().backward()
    weight = bert.model.encoder.layer[0].attention.self.query.weight
    assert weight.grad is not None
    assert weight.grad.abs().sum() > 0


def test_other_processors_leave_it_to_transformers(tmp_path, monkeypatch):
    monkeypatch.setattr(half_bert, "has_onednn", lambda: False)
    model = Backbone.from_pretrained(save_bert(tmp_path)).model
    assert HalfBert.of(model) is None
