"""The layout of sparsify, EleutherAI's library: TopK SAEs, one folder per hook."""

from __future__ import annotations

from pathlib import Path

from lexicept.models.sae.formats.config import Config
from lexicept.models.sae.formats.layout import Release, Weights


class Sparsify(Release):
    """The files ``cfg.json`` and ``sae.safetensors`` in ``layers.{N}/``.

    ``encoder`` is a linear layer, W_dec has one row per latent, b_dec is subtracted from the input.
    """

    name = "sparsify"
    config_file = "cfg.json"
    weights_file = "sae.safetensors"
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
