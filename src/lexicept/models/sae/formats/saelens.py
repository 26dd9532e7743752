"""The layout of SAELens: loaded as its training writes it, and written by ``save_saelens``."""

from __future__ import annotations

import json
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save
from torch import Tensor

from lexicept.errors import InputError
from lexicept.models.sae.formats.config import Config
from lexicept.models.sae.formats.layout import (
    Release,
    Weights,
    contiguous,
    fold_norms,
    raw_weights,
)
from lexicept.models.sae.model import SAE, fold_gate
from lexicept.storage.files import replace_file

CONFIG, WEIGHTS = "cfg.json", "sae_weights.safetensors"

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
    config_file = CONFIG
    weights_file = WEIGHTS

    def __init__(self, folder: Path, path: str) -> None:
        super().__init__(folder, path)
        config, tensors = self.config, self.tensors
        self.kind = _architecture(config)
        self.centred = config.flag("apply_b_dec_to_input", True)
        metadata = config.section("metadata").values
        names = Config(config.place, {**config.values, **metadata})
        self.hook = names.optional_text("hook_name", "hook_point") or self.hook
        self.model = names.optional_text("model_name")
        self.input_scale = _input_scale(names)
        self.d_in, self.num_latents = tensors.shape("W_enc")
        self._require_sizes(config, "d_in", "d_sae")
        biases = ("b_gate", "b_mag", "r_mag") if self.kind == "gated" else ("b_enc",)
        for name in biases:
            tensors.expect(name, self.num_latents)
        tensors.expect("W_dec", self.num_latents, self.d_in)
        tensors.expect("b_dec", self.d_in)
        if "scaling_factor" in tensors:
            tensors.expect("scaling_factor", self.num_latents)
        self._threshold = ""
        if self.kind == _TOP:
            own = config.section("activation_fn_kwargs") if "k" not in config.values else config
            self._use_top(own.integer("k"))
            return
        self.architecture = {"standard": "relu"}.get(self.kind, self.kind)
        if self.kind == "jumprelu":
            self._threshold = "log_threshold" if "log_threshold" in tensors else "threshold"
            tensors.expect(self._threshold, self.num_latents)
        elif self.kind in _BATCH_TOP:
            self._threshold = "topk_threshold"
            tensors.expect(self._threshold)

    def weights(self) -> Weights:
        W_enc = self.tensors.read("W_enc").T.contiguous()
        W_dec, b_dec = self.tensors.read("W_dec"), self.tensors.read("b_dec")
        threshold: Tensor | None = None
        if self.kind == "gated":
            b_gate, r_mag, b_enc = map(self.tensors.read, ("b_gate", "r_mag", "b_mag"))
            threshold = fold_gate(W_enc, b_gate, r_mag, b_enc)
        else:
            b_enc = self.tensors.read("b_enc")
        if self._threshold:
            threshold = self.tensors.read(self._threshold).expand(self.num_latents)
            log = self._threshold == "log_threshold"
            threshold = threshold.exp() if log else F.relu(threshold)
        elif self.kind == "standard":
            threshold = torch.zeros(self.num_latents)
        if self.config.flag("rescale_acts_by_decoder_norm", self.kind in _BATCH_TOP):
            fold_norms(W_enc, b_enc, W_dec)
        if "scaling_factor" in self.tensors:
            W_dec.mul_(self.tensors.read("scaling_factor")[:, None])
        s = self.input_scale
        threshold = None if threshold is None else (threshold / s).contiguous()
        return Weights(W_enc, b_enc / s, W_dec, b_dec / s, threshold)


def save_saelens(sae: SAE, folder: Path) -> None:
    """Write an SAE so that SAELens loads it with ``SAE.load_from_disk(folder)``.

    Its activations are those of ``sae`` in units of raw states. Normalisation, which SAELens has in
    another form, is folded into the weights.

    Raises:
        InputError: the SAE has no decoder.
    """
    W_enc, b_enc, W_dec, b_dec, threshold = raw_weights(sae, centred=sae.centred)
    tensors = {"W_enc": W_enc.T, "W_dec": W_dec, "b_enc": b_enc, "b_dec": b_dec}
    own: dict[str, object] = {"architecture": "jumprelu"}
    if threshold is None:
        own = {"architecture": _TOP, "k": sae.k, "rescale_acts_by_decoder_norm": False}
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
        **own,
    }
    replace_file(folder / WEIGHTS, save(contiguous(**tensors)))
    replace_file(folder / CONFIG, json.dumps(config).encode())


def _architecture(config: Config) -> str:
    activation = config.optional_text("activation_fn", "activation_fn_str") or "relu"
    architecture = config.text("architecture", "standard")
    if architecture == "standard" and activation == _TOP:
        config.section("activation_fn_kwargs").require("signed", False, default=False)
        return _TOP
    config.require("architecture", *_ARCHITECTURES, default="standard")
    if activation not in ("relu", _TOP):
        raise InputError(f"{config.place}: the activation function {activation!r} can't be loaded")
    return architecture


def _input_scale(config: Config) -> float:
    """Return the factor s of the scaled states s·h."""
    kind = config.values.get("normalize_activations")
    # Older versions write true or false instead of a name.
    if kind in (None, False, "none"):
        return 1.0
    if kind not in (True, "expected_average_only_in"):
        raise InputError(
            f"{config.place}: normalize_activations {kind!r} scales every state by itself, which "
            "this SAE can't express"
        )
    if "norm_scaling_factor" not in config.values:
        raise InputError(
            f"{config.place}: normalize_activations needs norm_scaling_factor, the number that "
            "states are multiplied by; SAELens keeps it in its list of releases"
        )
    s = config.number("norm_scaling_factor")
    if s <= 0:
        raise InputError(f"{config.place}: norm_scaling_factor must be above 0, not {s}")
    return s
