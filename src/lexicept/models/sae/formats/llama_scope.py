"""The layout of Llama Scope (He et al. 2024): SAEs of Llama-3.1-8B, by the OpenMOSS library."""

from __future__ import annotations

import math
import re
from pathlib import Path

import torch

from lexicept.errors import InputError
from lexicept.models.sae.formats.layout import PathFacts, Release, WeightNames, Weights, fold_norms

_SITES = {
    "R": "hook_resid_post",
    "A": "hook_attn_out",
    "M": "hook_mlp_out",
    "TC": "ln2.hook_normalized",
}

_NAMES = WeightNames(
    "encoder.weight", "encoder.bias", "decoder.weight", "decoder.bias", decoder_by_latent=False
)


class LlamaScope(Release):
    """The folder ``Llama3_1-8B-Base-L{n}{R|A|M|TC}-{8|32}x/``: PyTorch's linear layers in bfloat16.

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
        config.require("act_fn", "jumprelu")
        config.require("use_glu_encoder", False, default=False)
        config.require("norm_activation", "dataset-wise", "none", default="none")
        self.hook = config.optional_text("hook_point_in") or self.hook
        self.centred = config.flag("apply_decoder_bias_to_pre_encoder", False)
        self._threshold = config.number("jump_relu_threshold")
        if self._threshold < 0:
            raise InputError(f"{config.place}: jump_relu_threshold {self._threshold} is below 0")
        self._open_tensors(_NAMES)
        self._require_sizes(config, "d_model", "d_sae")
        self._output_scale = 1.0
        if config.values.get("norm_activation") == "dataset-wise":
            norms = config.section("dataset_average_activation_norm")
            means = norms.number("in"), norms.number("out")
            if min(means) <= 0:
                raise InputError(f"{norms.place}: norms must be above 0, not {means}")
            self.input_scale, self._output_scale = (math.sqrt(self.d_in) / mean for mean in means)

    @classmethod
    def path_facts(cls, path: str) -> PathFacts:
        match = re.search(r"L(\d+)(R|A|M|TC)-\d+x$", path)
        return PathFacts(f"blocks.{match[1]}.{_SITES[match[2]]}" if match else None)

    def weights(self) -> Weights:
        s_in, s_out = self.input_scale, self._output_scale
        stored = self._read_matrices()
        weights = Weights(
            stored.W_enc,
            stored.b_enc / s_in,
            stored.W_dec.mul_(s_in / s_out),
            stored.b_dec / s_out,
            torch.full((self.num_latents,), self._threshold),
        )
        if self.config.flag("sparsity_include_decoder_norm", True):
            fold_norms(weights)
        return weights
