"""Anisotropy against brute force, on a tiny model."""

import pytest
import torch
import torch.nn.functional as F

from lexicept.errors import InputError
from lexicept.neural.backbones.backbone import Backbone
from reproduction import anisotropy as module
from reproduction.anisotropy import anisotropy
from support.tiny import states_of, text

TEXTS = [text(1, 2, 3), text(7, 7, 7, 7, 9), "", text(*range(100)), text(4), text(20, 3)]


def test_a_transform_is_applied_to_the_last_layer(bert):
    direction = torch.ones(32)
    value = anisotropy(bert, TEXTS, transform=lambda states: states[:, :1].abs() * direction)
    assert value[0] == anisotropy(bert, TEXTS)[0]
    assert value[1] == pytest.approx(1.0)


def test_anisotropy_is_the_mean_cosine_of_all_pairs(bert):
    value = anisotropy(bert, TEXTS)
    assert len(value) == 2
    last = F.normalize(states_of(bert, TEXTS).double(), dim=1)
    cosines = last @ last.T
    pairs = ~torch.eye(len(last), dtype=torch.bool)
    assert value[1] == pytest.approx(float(cosines[pairs].mean()), rel=1e-5)
    assert value[0] != value[1]
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
