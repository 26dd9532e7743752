"""Heads of every kind with weights that are all different."""

import pytest
import torch

from lexicept.encoding.head_settings import HeadSettings
from lexicept.neural.encoders.encoder import Encoder
from lexicept.neural.heads.sae import SAEHead
from lexicept.neural.heads.vocabulary import VocabularyHead
from lexicept.neural.sae.model import SAE

KINDS = pytest.mark.parametrize("kind", ["sae", "threshold", "inner", "vocabulary"])


def vocabulary_head(**settings):
    torch.manual_seed(2)
    terms = [f"term {n}" for n in range(40)]
    head = VocabularyHead(torch.randn(40, 32), torch.randn(40), terms, "relu", 1e-5)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.normal_(std=0.5)
    head.configure(**settings)
    return head


def sae_head(kind="sae", **settings):
    torch.manual_seed(1)
    sae = SAE(32, 60, None, centred=False) if kind == "threshold" else SAE(32, 60, 5)
    with torch.no_grad():
        for parameter in (sae.W_enc, sae.b_enc, sae.b_dec):
            parameter.normal_()
        sae.mean.normal_()
        sae.scale.fill_(1.7)
        if sae.threshold is not None:
            sae.threshold.copy_(torch.linspace(0, 9, 60))
    inner = vocabulary_head() if kind == "inner" else None
    return SAEHead(sae, HeadSettings(**settings), inner)


def make_head(kind, **settings):
    return vocabulary_head(**settings) if kind == "vocabulary" else sae_head(kind, **settings)


def make(bert, kind, **settings):
    return Encoder.of(bert, make_head(kind, **settings))
