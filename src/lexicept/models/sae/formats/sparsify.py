"""The layout of sparsify, EleutherAI's library: TopK SAEs, one folder per hook."""

from __future__ import annotations

import json
from pathlib import Path

from safetensors.torch import save

from lexicept.errors import InputError
from lexicept.models.sae.formats.config import Config
from lexicept.models.sae.formats.layout import Release, Weights, contiguous, raw_weights
from lexicept.models.sae.model import SAE, layer_of
from lexicept.storage.files import replace_file

CONFIG, WEIGHTS = "cfg.json", "sae.safetensors"


class Sparsify(Release):
    """The files ``cfg.json`` and ``sae.safetensors`` in ``layers.{N}/``.

    ``encoder`` is a linear layer, W_dec has one row per latent, b_dec is subtracted from the input.
    """

    name = "sparsify"
    config_file = CONFIG
    weights_file = WEIGHTS
    centred = True

    def __init__(self, folder: Path, path: str) -> None:
        super().__init__(folder, path)
        config, tensors = self.config, self.tensors
        config.require("activation", "topk", default="topk")
        for name in ("transcode", "skip_connection", "signed"):
            config.require(name, False, default=False)
        self.num_latents, self.d_in = tensors.shape("encoder.weight")
        sizes = config.values
        if not sizes.get("num_latents"):  # 0 leaves the width to expansion_factor
            width = config.integer("d_in") * config.integer("expansion_factor")
            sizes = {**sizes, "num_latents": width}
        self._require_sizes(Config(config.place, sizes), "d_in", "num_latents")
        tensors.expect("encoder.bias", self.num_latents)
        tensors.expect("W_dec", self.num_latents, self.d_in)
        tensors.expect("b_dec", self.d_in)
        self._use_top(config.integer("k"))

    def weights(self) -> Weights:
        names = ("encoder.weight", "encoder.bias", "W_dec", "b_dec")
        return Weights(*map(self.tensors.read, names))


def save_sparsify(sae: SAE, folder: Path) -> None:
    """Write an SAE so that sparsify loads it with ``SparseCoder.load_many(folder, local=True)``.

    The folder inside is named after the hook, which is how sparsify names them: ``layers.{N}``, or
    the module of an encoder's block. Where the hook is unknown, the files are in ``folder`` itself.
    Normalisation is folded into the weights, so that activations are those of ``sae``.

    Raises:
        InputError: the SAE has no decoder, or has thresholds, which sparsify's SAEs do not have.
    """
    weights = raw_weights(sae, centred=True)
    if sae.k is None:
        raise InputError("sparsify has TopK SAEs only: this one has thresholds")
    hook, layer = sae.origin.get("hook"), layer_of(sae.origin.get("hook"))
    if layer is not None:
        folder = folder / (f"layers.{layer - 1}" if "hook_" in str(hook) else str(hook))
        folder.mkdir()
    tensors = contiguous(
        W_dec=weights.W_dec,
        b_dec=weights.b_dec,
        **{"encoder.weight": weights.W_enc, "encoder.bias": weights.b_enc},
    )
    config = {
        "activation": "topk",
        "normalize_decoder": False,
        "num_latents": sae.num_latents,
        "k": sae.k,
        "multi_topk": False,
        "skip_connection": False,
        "transcode": False,
        "d_in": sae.d_in,
    }
    replace_file(folder / WEIGHTS, save(tensors))
    replace_file(folder / CONFIG, json.dumps(config).encode())
