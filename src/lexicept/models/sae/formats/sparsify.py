"""The layout of sparsify, EleutherAI's library: TopK SAEs, one folder per hook."""

from __future__ import annotations

from pathlib import Path

from safetensors.torch import save

from lexicept.errors import InputError
from lexicept.models.sae.formats.config import Config
from lexicept.models.sae.formats.layout import (
    Release,
    WeightNames,
    Weights,
    contiguous,
    raw_weights,
    write_sae_files,
)
from lexicept.models.sae.model import SAE, layer_of

_NAMES = WeightNames("encoder.weight", "encoder.bias", "W_dec", "b_dec")


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
        config.require("activation", "topk", default="topk")
        for name in ("transcode", "skip_connection", "signed"):
            config.require(name, False, default=False)
        self._open_tensors(_NAMES)
        sizes = config.values
        if not sizes.get("num_latents"):  # 0 leaves the width to expansion_factor
            width = config.integer("d_in") * config.integer("expansion_factor")
            sizes = {**sizes, "num_latents": width}
        self._require_sizes(Config(config.place, sizes), "d_in", "num_latents")
        self._use_top(config.integer("k"))

    def weights(self) -> Weights:
        return self._read_matrices()


def save_sparsify(sae: SAE, folder: Path) -> None:
    """Write an SAE that sparsify loads with ``SparseCoder.load_many(folder, local=True)``.

    The folder inside is named after the hook: ``layers.{N}``, or the module of an encoder's block.
    Files of an unknown hook are in ``folder`` itself. Normalisation is folded into the weights:
    activations equal ``sae``'s.

    Raises:
        InputError: the SAE has no decoder, or has thresholds, which sparsify does not know.
    """
    weights = raw_weights(sae, centred=True)
    if sae.k is None:
        raise InputError("sparsify has TopK SAEs only: this one has thresholds")
    hook, layer = sae.origin.get("hook"), layer_of(sae.origin.get("hook"))
    if layer is not None:
        folder = folder / (f"layers.{layer - 1}" if "hook_" in str(hook) else str(hook))
        folder.mkdir()
    tensors = contiguous(**dict(zip(_NAMES[:4], weights[:4], strict=True)))
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
    write_sae_files(folder, (Sparsify.config_file, config), (Sparsify.weights_file, save(tensors)))
