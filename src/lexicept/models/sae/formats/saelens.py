"""The layout of SAELens: loaded as its training writes it, and written by ``save_saelens``."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save
from torch import Tensor

from lexicept.errors import InputError
from lexicept.models.sae.formats.config import Config
from lexicept.models.sae.formats.layout import (
    Release,
    WeightNames,
    Weights,
    contiguous,
    fold_norms,
    raw_weights,
    write_sae_files,
)
from lexicept.models.sae.model import SAE

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
        self.centred = config.flag("apply_b_dec_to_input", True)
        metadata = config.section("metadata").values
        described = Config(config.place, {**config.values, **metadata})
        self.hook = described.optional_text("hook_name", "hook_point") or self.hook
        self.model = described.optional_text("model_name")
        self.input_scale = _input_scale(described)
        gated = self.kind == "gated"
        names = WeightNames("W_enc", "b_mag" if gated else "b_enc", "W_dec", "b_dec", False)
        scaled = ["scaling_factor"] if "scaling_factor" in tensors else []
        self._open_tensors(names, *(["b_gate", "r_mag"] if gated else []), *scaled)
        self._require_sizes(config, "d_in", "d_sae")
        self._threshold = ""
        if self.kind == _TOP:
            old = "k" not in config.values
            self._use_top((config.section("activation_fn_kwargs") if old else config).integer("k"))
            return
        self.architecture = {"standard": "relu"}.get(self.kind, self.kind)
        if self.kind == "jumprelu":
            self._threshold = "log_threshold" if "log_threshold" in tensors else "threshold"
            tensors.expect(self._threshold, self.num_latents)
        elif self.kind in _BATCH_TOP:
            self._threshold = "topk_threshold"
            tensors.expect(self._threshold)

    def weights(self) -> Weights:
        weights, s = self._read_matrices(), self.input_scale
        threshold: Tensor | None = None
        if self.kind == "gated":
            threshold = self._fold_gate(weights, "b_gate")
        elif self.kind == "standard":
            threshold = torch.zeros(self.num_latents)
        elif self._threshold:
            threshold = self.tensors.read(self._threshold).expand(self.num_latents)
            log = self._threshold == "log_threshold"
            threshold = threshold.exp() if log else F.relu(threshold)
        if self.config.flag("rescale_acts_by_decoder_norm", self.kind in _BATCH_TOP):
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

    Raises:
        InputError: the SAE has no decoder.
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
    content = save(contiguous(**tensors))
    write_sae_files(folder, (SAELens.config_file, config), (SAELens.weights_file, content))


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
