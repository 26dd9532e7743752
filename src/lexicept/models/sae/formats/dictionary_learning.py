"""The layout of dictionary_learning (Marks et al. 2024), with tensor names per architecture."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import torch
import torch.nn.functional as F

from lexicept.errors import InputError
from lexicept.models.sae.formats.layout import (
    Place,
    Release,
    Weights,
    contiguous,
    fold_norms,
    raw_weights,
)
from lexicept.models.sae.model import SAE, fold_gate, layer_of
from lexicept.storage.files import replace_file

CONFIG, WEIGHTS = "config.json", "ae.pt"

_LINEAR = ("encoder.weight", "encoder.bias", "decoder.weight")
_MATRICES = ("W_enc", "b_enc", "W_dec", "b_dec")

_CLASSES = {
    "AutoEncoder": ("relu", (*_LINEAR, "bias")),
    "AutoEncoderNew": ("relu", (*_LINEAR, "decoder.bias")),
    "AutoEncoderTopK": ("topk", (*_LINEAR, "b_dec")),
    "BatchTopKSAE": ("batchtopk", (*_LINEAR, "b_dec")),
    "GatedAutoEncoder": (
        "gated",
        ("encoder.weight", "mag_bias", "decoder.weight", "decoder_bias"),
    ),
    "JumpReluAutoEncoder": ("jumprelu", _MATRICES),
    "MatryoshkaBatchTopKSAE": ("batchtopk", _MATRICES),
}
"""Each class's architecture, and its names of W_enc, b_enc, W_dec and b_dec."""

_NOT_CENTRED = ("AutoEncoderNew", "JumpReluAutoEncoder")


class DictionaryLearning(Release):
    """The files ``config.json`` and ``ae.pt``.

    Linear layers hold [num_latents, d] and [d, num_latents], matrices named W [d, num_latents] and
    [num_latents, d]. ``AutoEncoder`` gets decoder rows of norm 1. Activations equal those of the
    library's own loader.
    """

    name = "dictionary_learning"
    config_file = CONFIG
    weights_file = WEIGHTS
    pickled = True

    def __init__(self, folder: Path, path: str) -> None:
        super().__init__(folder, path)
        tensors, trainer = self.tensors, self.config.section("trainer")
        trainer.require("dict_class", *_CLASSES)
        self.kind = trainer.text("dict_class")
        self.centred = self.kind not in _NOT_CENTRED
        self.model = trainer.optional_text("lm_name")
        self.hook = _hook(trainer.optional_text("submodule_name"), trainer.values.get("layer"))
        self.architecture, self._names = _CLASSES[self.kind]
        W_enc, b_enc, W_dec, b_dec = self._names
        shape = tensors.shape(W_enc)
        self.num_latents, self.d_in = reversed(shape) if self._names == _MATRICES else shape
        self._require_sizes(trainer, "activation_dim", "dict_size")
        tensors.expect(W_dec, *reversed(shape))
        tensors.expect(b_dec, self.d_in)
        rows = {"gated": ("gate_bias", "r_mag"), "jumprelu": ("threshold",)}
        for name in (b_enc, *rows.get(self.architecture, ())):
            tensors.expect(name, self.num_latents)
        if self.architecture == "topk":
            self._use_top(self._k(trainer.integer("k")))
        elif self.architecture == "batchtopk":
            tensors.expect("threshold")

    @classmethod
    def place(cls, path: str) -> Place:
        match = re.search(r"(?:^|/)(\w+_layer_(\d+))(?=/|_|$)", path)
        return Place(_hook(match[1], int(match[2])) if match else None)

    def _k(self, said: int) -> int:
        if "k" not in self.tensors:
            return said
        self.tensors.expect("k")
        stored = int(self.tensors.read("k"))
        if stored != said:
            raise InputError(f"{self.folder}: k is {said} in config.json, but {stored} in ae.pt")
        return said

    def weights(self) -> Weights:
        W_enc, b_enc, W_dec, b_dec = map(self.tensors.read, self._names)
        if self._names == _MATRICES:
            W_enc = W_enc.T.contiguous()
        else:
            W_dec = W_dec.T.contiguous()
        if self.architecture == "topk":
            return Weights(W_enc, b_enc, W_dec, b_dec)
        if self.architecture == "gated":
            b_gate, r_mag = self.tensors.read("gate_bias"), self.tensors.read("r_mag")
            threshold = fold_gate(W_enc, b_gate, r_mag, b_enc)
        elif self.architecture == "relu":
            threshold = torch.zeros(self.num_latents)
        else:
            # BatchTopK has one threshold for all latents, which is negative before training.
            threshold = F.relu(self.tensors.read("threshold")).expand(self.num_latents)
        if self.kind == "AutoEncoder":
            fold_norms(W_enc, b_enc, W_dec)
        return Weights(W_enc, b_enc, W_dec, b_dec, threshold.contiguous())


def _hook(submodule: str | None, layer: object) -> str | None:
    """Return the hook of a submodule like ``resid_post_layer_8``; without one, a block's output."""
    if not isinstance(layer, int) or isinstance(layer, bool):
        return submodule
    site = re.sub(r"_layer_\d+$", "", submodule or "resid_post")
    return f"blocks.{layer}.hook_{site}"


def save_dictionary_learning(sae: SAE, folder: Path) -> None:
    """Write an SAE so that dictionary_learning loads it with ``load_dictionary(folder, device)``.

    An SAE with k becomes an ``AutoEncoderTopK``, one with thresholds a ``JumpReluAutoEncoder``.
    Normalisation is folded into the weights, so that activations are those of ``sae``. The library
    reads pickles only: ``ae.pt`` holds nothing but tensors.

    Raises:
        InputError: the SAE has no decoder.
    """
    trainer: dict[str, object] = {"activation_dim": sae.d_in, "dict_size": sae.num_latents}
    W_enc, b_enc, W_dec, b_dec, threshold = raw_weights(sae, centred=sae.k is not None)
    if threshold is None:
        linear = {"encoder.weight": W_enc, "encoder.bias": b_enc, "decoder.weight": W_dec.T}
        state = contiguous(b_dec=b_dec, **linear)
        # The library's value for no threshold is below 0.
        state |= {"k": torch.tensor(sae.k, dtype=torch.int), "threshold": torch.tensor(-1.0)}
        trainer |= {"dict_class": "AutoEncoderTopK", "k": sae.k}
    else:
        state = contiguous(
            W_enc=W_enc.T, b_enc=b_enc, W_dec=W_dec, b_dec=b_dec, threshold=threshold
        )
        trainer |= {"dict_class": "JumpReluAutoEncoder"}
    layer, model = layer_of(sae.origin.get("hook")), sae.origin.get("model")
    if layer is not None:
        trainer |= {"layer": layer - 1, "submodule_name": f"resid_post_layer_{layer - 1}"}
    if model is not None:
        trainer["lm_name"] = model
    content = io.BytesIO()
    torch.save(state, content)
    replace_file(folder / WEIGHTS, content.getvalue())
    replace_file(folder / CONFIG, json.dumps({"trainer": trainer}).encode())
