"""Layouts of releases of SAEs: Gemma Scope, Gemma Scope 2 and Llama Scope."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import ClassVar

import torch
import torch.nn.functional as F

from lexicept.errors import InputError
from lexicept.neural.sae_formats.layout import PathFacts, Release, WeightNames, Weights, fold_norms

L0_NAMES = {"small": 15.0, "medium": 45.0, "big": 100.0}
"""Middle of each range of ℓ0 that Gemma Scope 2 names, approximately."""


class GemmaScope(Release):
    """Lieberum et al. 2024: the file ``layer_{L}/width_{16k}/average_l0_{n}/params.npz``.

    Activations are ``ReLU(p) · [p > threshold]`` with ``p = h W_enc + b_enc``. W_enc is
    [d, num_latents], W_dec [num_latents, d].
    """

    name = "Gemma Scope"
    config_file: ClassVar[str | None] = None
    weights_file = "params.npz"
    weight_names = WeightNames("W_enc", "b_enc", "W_dec", "b_dec", encoder_by_latent=False)

    def __init__(self, folder: Path, path: str) -> None:
        super().__init__(folder, path)
        self._open_tensors(self.weight_names, ["threshold"])
        size = re.search(r"gemma-scope-(\w+)-(pt|it)-", path)
        if size:
            self.model = f"google/gemma-2-{size[1]}{'-it' if size[2] == 'it' else ''}"

    @classmethod
    def path_facts(cls, path: str) -> PathFacts:
        match = re.search(r"(layer_(\d+)|embedding)/width_(\d+[km])/average_l0_(\d+)$", path)
        if not match:
            return PathFacts()
        hook = "hook_embed" if match[2] is None else f"blocks.{match[2]}.{_site(path)}"
        return PathFacts(hook, _width(match[3]), float(match[4]))

    def weights(self) -> Weights:
        # With ReLU, a threshold below 0 acts as one of 0.
        return self._read_matrices()._replace(threshold=F.relu(self.tensors.read("threshold")))


class GemmaScope2(GemmaScope):
    """The folder ``resid_post/layer_{L}_width_{16k}_l0_{small|medium|big}/``, with a config."""

    name = "Gemma Scope 2"
    config_file = "config.json"
    weights_file = "params.safetensors"
    weight_names = WeightNames("w_enc", "b_enc", "w_dec", "b_dec", encoder_by_latent=False)

    def __init__(self, folder: Path, path: str) -> None:
        super().__init__(folder, path)
        config = self.config
        config.require("architecture", ["jump_relu", "jumprelu"], "jump_relu")
        config.require("type", ["sae"], "sae")
        config.require("affine_connection", [False], False)
        self._require_sizes(config, "d_in", "width")
        self.hook = config.text("hf_hook_point_in") or self.hook
        self.model = config.text("model_name")

    @classmethod
    def path_facts(cls, path: str) -> PathFacts:
        match = re.search(r"(\w+)/layer_(\d+)_width_(\d+[km])_l0_(\w+?)(_affine)?$", path)
        if not match:
            return PathFacts()
        site = match[1].removesuffix("_all")
        return PathFacts(f"blocks.{match[2]}.hook_{site}", _width(match[3]), L0_NAMES.get(match[4]))


def _site(path: str) -> str:
    """Return the hook of a repository's SAEs; each repository has one (states, MLPs, attention)."""
    match = re.search(r"gemma-scope-\w+-(?:pt|it)-(mlp|att|transcoders)", path)
    sites = {"mlp": "hook_mlp_out", "att": "attn.hook_z", "transcoders": "ln2.hook_normalized"}
    return sites[match[1]] if match else "hook_resid_post"


def _width(name: str) -> int:
    """Return the number of latents of a width's name: 16k is 2¹⁴, 65k 2¹⁶, 1m 2²⁰."""
    return int(2 ** round(math.log2(int(name[:-1]) * (1e3 if name[-1] == "k" else 1e6) or 1)))


_SITES = {
    "R": "hook_resid_post",
    "A": "hook_attn_out",
    "M": "hook_mlp_out",
    "TC": "ln2.hook_normalized",
}

_LLAMA_NAMES = WeightNames(
    "encoder.weight", "encoder.bias", "decoder.weight", "decoder.bias", decoder_by_latent=False
)


class LlamaScope(Release):
    """He et al. 2024: the folder ``Llama3_1-8B-Base-L{n}{R|A|M|TC}-{8|32}x/`` of OpenMOSS.

    The SAEs were trained on s·h with ``s = √d / dataset_average_activation_norm``, separately for
    input and output, and with activations multiplied by the decoder row's norm. As in OpenMOSS,
    both factors are folded into the weights, so that a single threshold applies to the
    pre-activations of raw states.
    """

    name = "Llama Scope"
    config_file = "hyperparams.json"
    weights_file = "checkpoints/final.safetensors"
    model = "meta-llama/Llama-3.1-8B"

    def __init__(self, folder: Path, path: str) -> None:
        super().__init__(folder, path)
        config = self.config
        config.require("act_fn", ["jumprelu"])
        config.require("use_glu_encoder", [False], False)
        config.require("norm_activation", ["dataset-wise", "none"], "none")
        self.hook = config.text("hook_point_in") or self.hook
        self.centred = config.get("apply_decoder_bias_to_pre_encoder", bool, False)
        self._threshold = config.get("jump_relu_threshold", float)
        if self._threshold < 0:
            raise InputError(f"{config.source}: jump_relu_threshold {self._threshold} is below 0")
        self._open_tensors(_LLAMA_NAMES)
        self._require_sizes(config, "d_model", "d_sae")
        self._input_scale = self._output_scale = 1.0
        if config.values.get("norm_activation") == "dataset-wise":
            norms = config.section("dataset_average_activation_norm")
            means = norms.get("in", float), norms.get("out", float)
            if min(means) <= 0:
                raise InputError(f"{norms.source}: norms must be above 0, not {means}")
            self._input_scale, self._output_scale = (math.sqrt(self.d_in) / mean for mean in means)

    @classmethod
    def path_facts(cls, path: str) -> PathFacts:
        match = re.search(r"L(\d+)(R|A|M|TC)-\d+x$", path)
        return PathFacts(f"blocks.{match[1]}.{_SITES[match[2]]}" if match else None)

    def weights(self) -> Weights:
        s_in, s_out = self._input_scale, self._output_scale
        stored = self._read_matrices()
        weights = Weights(
            stored.W_enc,
            stored.b_enc / s_in,
            stored.W_dec.mul_(s_in / s_out),
            stored.b_dec / s_out,
            torch.full((self.num_latents,), self._threshold),
        )
        if self.config.get("sparsity_include_decoder_norm", bool, True):
            fold_norms(weights)
        return weights
