"""lexicept's own layout, which ``SAE.save`` writes."""

from __future__ import annotations

from pathlib import Path

from lexicept.errors import InputError
from lexicept.models.sae.formats.layout import Layout, Scale
from lexicept.models.sae.model import SAE, layer_of


class Lexicept(Layout):
    """The files ``sae.json`` and ``sae.safetensors``, the same for all architectures."""

    name = "lexicept"
    config_file = "sae.json"
    weights_file = "sae.safetensors"

    def __init__(self, folder: Path, path: str) -> None:
        super().__init__(folder, path)
        self.num_latents, self.d_in = self.tensors.shape("W_enc")
        self._require_sizes(self.config, "d_in", "num_latents")
        self.architecture = self.config.text("architecture")
        if self.config.values.get("k") is not None:
            self._use_top(self.config.integer("k"))
        self.origin = self.config.section("origin")
        self.hook = self.origin.optional_text("hook")
        self.model = self.origin.optional_text("model")
        both = self.origin.values.get("bidirectional")
        self.bidirectional = both if isinstance(both, bool) else None

    @property
    def layer(self) -> int | None:
        known = self.origin.values.get("layer")
        return self.origin.integer("layer") if known is not None else layer_of(self.hook)

    def load(self, scale: Scale | None) -> SAE:
        own = self.origin.text("scale", "raw")
        if scale not in (None, own):
            raise InputError(f"{self.folder}: this SAE was saved with the scale {own}, not {scale}")
        return SAE.load(self.folder).eval().requires_grad_(False)
