"""Layouts of SAE libraries: SAELens and dictionary_learning, read and written, and sparsify."""

from __future__ import annotations

import io
import re
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save
from torch import Tensor

from lexicept.errors import InputError
from lexicept.neural.sae.model import SAE, layer_of
from lexicept.neural.sae_formats.files import Config
from lexicept.neural.sae_formats.layout import (
    PathFacts,
    Release,
    WeightNames,
    Weights,
    contiguous,
    fold_norms,
    raw_weights,
)

VERSION = "6.0.0"
"""The version of SAELens whose layout is written."""

_TOP = "topk"
_BATCH_TOP = ("batchtopk", "matryoshka_batchtopk")
_ARCHITECTURES = ("standard", "jumprelu", "gated", _TOP, *_BATCH_TOP)


class SAELens(Release):
    """The files ``cfg.json`` and ``sae_weights.safetensors``.

    W_enc is [d, num_latents], W_dec [num_latents, d]. Versions before 6 have the entries of
    ``metadata`` at the top level, and TopK as an activation function.
    """

    name = "SAELens"
    config_file = "cfg.json"
    weights_file = "sae_weights.safetensors"

    def __init__(self, folder: Path, path: str) -> None:
        super().__init__(folder, path)
        config, tensors = self.config, self.tensors
        self.kind = _architecture(config)
        self.centred = config.get("apply_b_dec_to_input", bool, True)
        metadata = config.section("metadata").values
        described = Config(config.source, {**config.values, **metadata})
        self.hook = described.text("hook_name", "hook_point") or self.hook
        self.model = described.text("model_name")
        self._input_scale = _input_scale(described)
        gated = self.kind == "gated"
        names = WeightNames("W_enc", "b_mag" if gated else "b_enc", "W_dec", "b_dec", False)
        scaled = ["scaling_factor"] if "scaling_factor" in tensors else []
        self._open_tensors(names, [*scaled, "b_gate", "r_mag"] if gated else scaled)
        self._require_sizes(config, "d_in", "d_sae")
        self._threshold = ""
        if self.kind == _TOP:
            old = "k" not in config.values
            self._use_top((config.section("activation_fn_kwargs") if old else config).get("k", int))
            return
        self.architecture = {"standard": "relu"}.get(self.kind, self.kind)
        if self.kind == "jumprelu":
            self._threshold = "log_threshold" if "log_threshold" in tensors else "threshold"
            tensors.expect(self._threshold, self.num_latents)
        elif self.kind in _BATCH_TOP:
            self._threshold = "topk_threshold"
            tensors.expect(self._threshold)

    def weights(self) -> Weights:
        weights, s = self._read_matrices(), self._input_scale
        threshold: Tensor | None = None
        if self.kind == "gated":
            threshold = self._fold_gate(weights, "b_gate")
        elif self.kind == "standard":
            threshold = torch.zeros(self.num_latents)
        elif self._threshold:
            threshold = self.tensors.read(self._threshold).expand(self.num_latents)
            log = self._threshold == "log_threshold"
            threshold = threshold.exp() if log else F.relu(threshold)
        if self.config.get("rescale_acts_by_decoder_norm", bool, self.kind in _BATCH_TOP):
            fold_norms(weights)
        if "scaling_factor" in self.tensors:
            weights.W_dec.mul_(self.tensors.read("scaling_factor")[:, None])
        return weights._replace(
            b_enc=weights.b_enc / s,
            b_dec=weights.b_dec / s,
            threshold=None if threshold is None else (threshold / s).contiguous(),
        )


def save_saelens(sae: SAE, folder: Path) -> None:
    """Write an SAE so that SAELens loads it with ``SAE.load_from_disk(folder)``.

    Activations equal ``sae``'s in units of raw states. Normalisation is folded into the weights.
    Raises InputError if the SAE has no decoder.
    """
    W_enc, b_enc, W_dec, b_dec, threshold = raw_weights(sae, centred=sae.centred)
    tensors = {"W_enc": W_enc.T, "W_dec": W_dec, "b_enc": b_enc, "b_dec": b_dec}
    sparsity: dict[str, object] = {"architecture": "jumprelu"}
    if threshold is None:
        sparsity = {"architecture": _TOP, "k": sae.k, "rescale_acts_by_decoder_norm": False}
    else:
        tensors["threshold"] = threshold
    names = {"hook_name": sae.origin.get("hook"), "model_name": sae.origin.get("model")}
    config = {
        "d_in": sae.d_in,
        "d_sae": sae.num_latents,
        "dtype": "float32",
        "device": "cpu",
        "apply_b_dec_to_input": sae.centred,
        "normalize_activations": "none",
        "reshape_activations": "none",
        "metadata": {
            "sae_lens_version": VERSION,
            "sae_lens_training_version": None,
            **{name: value for name, value in names.items() if value is not None},
        },
        **sparsity,
    }
    SAELens.write(folder, config, save(contiguous(**tensors)))


def _architecture(config: Config) -> str:
    activation = config.text("activation_fn", "activation_fn_str") or "relu"
    architecture = config.get("architecture", str, "standard")
    if architecture == "standard" and activation == _TOP:
        config.section("activation_fn_kwargs").require("signed", [False], False)
        return _TOP
    config.require("architecture", _ARCHITECTURES, "standard")
    if activation not in ("relu", _TOP):
        raise InputError(f"{config.source}: the activation function {activation!r} can't be loaded")
    return architecture


def _input_scale(config: Config) -> float:
    """Return the factor s of the scaled states s·h."""
    normalisation = config.values.get("normalize_activations")
    # Older versions write true or false instead of a name.
    if normalisation in (None, False, "none"):
        return 1.0
    if normalisation not in (True, "expected_average_only_in"):
        raise InputError(
            f"{config.source}: normalize_activations {normalisation!r} scales every state by "
            "itself, which this SAE can't express"
        )
    if "norm_scaling_factor" not in config.values:
        raise InputError(
            f"{config.source}: normalize_activations needs norm_scaling_factor, the number that "
            "states are multiplied by; SAELens keeps it in its list of releases"
        )
    s = config.get("norm_scaling_factor", float)
    if s <= 0:
        raise InputError(f"{config.source}: norm_scaling_factor must be above 0, not {s}")
    return s


class Sparsify(Release):
    """The files ``cfg.json`` and ``sae.safetensors`` in ``layers.{N}/``.

    ``encoder`` is a linear layer; b_dec is subtracted from the input.
    """

    name = "sparsify"
    config_file = "cfg.json"
    weights_file = "sae.safetensors"
    centred = True

    def __init__(self, folder: Path, path: str) -> None:
        super().__init__(folder, path)
        config = self.config
        config.require("activation", ["topk"], "topk")
        for name in ("transcode", "skip_connection", "signed"):
            config.require(name, [False], False)
        self._open_tensors(WeightNames("encoder.weight", "encoder.bias", "W_dec", "b_dec"))
        sizes = config.values
        if not sizes.get("num_latents"):  # 0 leaves the width to expansion_factor
            width = config.get("d_in", int) * config.get("expansion_factor", int)
            sizes = {**sizes, "num_latents": width}
        self._require_sizes(Config(config.source, sizes), "d_in", "num_latents")
        self._use_top(config.get("k", int))

    def weights(self) -> Weights:
        return self._read_matrices()


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
        trainer.require("dict_class", _CLASSES)
        self.kind = trainer.get("dict_class", str)
        self.centred = self.kind not in _NOT_CENTRED
        self.model = trainer.text("lm_name")
        self.hook = _hook(trainer.text("submodule_name"), trainer.values.get("layer"))
        self.architecture, names = _CLASSES[self.kind]
        per_latent = {"gated": ("gate_bias", "r_mag"), "jumprelu": ("threshold",)}
        self._open_tensors(names, per_latent.get(self.architecture, ()))
        self._require_sizes(trainer, "activation_dim", "dict_size")
        if self.architecture == "topk":
            self._use_top(trainer.get("k", int))
            if "k" in self.tensors:
                self.tensors.expect("k")
                if (stored := int(self.tensors.read("k"))) != self.k:
                    raise InputError(
                        f"{folder}: k is {self.k} in config.json, but {stored} in ae.pt"
                    )
        elif self.architecture == "batchtopk":
            self.tensors.expect("threshold")

    @classmethod
    def path_facts(cls, path: str) -> PathFacts:
        match = re.search(r"(?:^|/)(\w+_layer_(\d+))(?=/|_|$)", path)
        return PathFacts(_hook(match[1], int(match[2])) if match else None)

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
    reads pickles only: ``ae.pt`` holds nothing but tensors. Raises InputError if the SAE has no
    decoder.
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
    buffer = io.BytesIO()
    torch.save(state, buffer)
    DictionaryLearning.write(folder, {"trainer": trainer}, buffer.getvalue())
