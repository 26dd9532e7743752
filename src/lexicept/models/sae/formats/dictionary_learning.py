"""The layout of dictionary_learning (Marks et al. 2024), with tensor names per architecture."""

from __future__ import annotations

import io
import re
from pathlib import Path

import torch
import torch.nn.functional as F

from lexicept.errors import InputError
from lexicept.models.sae.formats.layout import (
    PathFacts,
    Release,
    WeightNames,
    Weights,
    contiguous,
    fold_norms,
    raw_weights,
    write_sae_files,
)
from lexicept.models.sae.model import SAE, layer_of


def _linear(b_dec: str, b_enc: str = "encoder.bias") -> WeightNames:
    return WeightNames("encoder.weight", b_enc, "decoder.weight", b_dec, decoder_by_latent=False)


_MATRICES = WeightNames("W_enc", "b_enc", "W_dec", "b_dec", encoder_by_latent=False)

_CLASSES = {
    "AutoEncoder": ("relu", _linear("bias")),
    "AutoEncoderNew": ("relu", _linear("decoder.bias")),
    "AutoEncoderTopK": ("topk", _linear("b_dec")),
    "BatchTopKSAE": ("batchtopk", _linear("b_dec")),
    "GatedAutoEncoder": ("gated", _linear("decoder_bias", "mag_bias")),
    "JumpReluAutoEncoder": ("jumprelu", _MATRICES),
    "MatryoshkaBatchTopKSAE": ("batchtopk", _MATRICES),
}
"""Each class's architecture and names of tensors."""

_NOT_CENTRED = ("AutoEncoderNew", "JumpReluAutoEncoder")


class DictionaryLearning(Release):
    """The files ``config.json`` and ``ae.pt``.

    Linear layers hold [num_latents, d] and [d, num_latents], matrices named W [d, num_latents] and
    [num_latents, d]. ``AutoEncoder`` gets decoder rows of norm 1. Activations equal those of the
    library's own loader.
    """

    name = "dictionary_learning"
    config_file = "config.json"
    weights_file = "ae.pt"
    pickled = True

    def __init__(self, folder: Path, path: str) -> None:
        super().__init__(folder, path)
        trainer = self.config.section("trainer")
        trainer.require("dict_class", *_CLASSES)
        self.kind = trainer.text("dict_class")
        self.centred = self.kind not in _NOT_CENTRED
        self.model = trainer.optional_text("lm_name")
        self.hook = _hook(trainer.optional_text("submodule_name"), trainer.values.get("layer"))
        self.architecture, names = _CLASSES[self.kind]
        per_latent = {"gated": ("gate_bias", "r_mag"), "jumprelu": ("threshold",)}
        self._open_tensors(names, *per_latent.get(self.architecture, ()))
        self._require_sizes(trainer, "activation_dim", "dict_size")
        if self.architecture == "topk":
            self._use_top(self._checked_k(trainer.integer("k")))
        elif self.architecture == "batchtopk":
            self.tensors.expect("threshold")

    @classmethod
    def path_facts(cls, path: str) -> PathFacts:
        match = re.search(r"(?:^|/)(\w+_layer_(\d+))(?=/|_|$)", path)
        return PathFacts(_hook(match[1], int(match[2])) if match else None)

    def _checked_k(self, said: int) -> int:
        if "k" not in self.tensors:
            return said
        self.tensors.expect("k")
        stored = int(self.tensors.read("k"))
        if stored != said:
            raise InputError(f"{self.folder}: k is {said} in config.json, but {stored} in ae.pt")
        return said

    def weights(self) -> Weights:
        weights = self._read_matrices()
        if self.architecture == "topk":
            return weights
        if self.architecture == "gated":
            threshold = self._fold_gate(weights, "gate_bias")
        elif self.architecture == "relu":
            threshold = torch.zeros(self.num_latents)
        else:
            # BatchTopK has one threshold for all latents, which is negative before training.
            threshold = F.relu(self.tensors.read("threshold")).expand(self.num_latents)
        if self.kind == "AutoEncoder":
            fold_norms(weights)
        return weights._replace(threshold=threshold.contiguous())


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
    layout = DictionaryLearning
    write_sae_files(
        folder,
        (layout.config_file, {"trainer": trainer}),
        (layout.weights_file, content.getvalue()),
    )
