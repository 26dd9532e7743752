"""The TopK sparse autoencoder."""

from __future__ import annotations

import json
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from lexicept.errors import InputError
from lexicept.ops.topk import top_columns
from lexicept.storage import replace_file, write_json


class TopKSAE(nn.Module):
    """A TopK sparse autoencoder over token states (Gao et al. 2024; SAE-SPLADE section 3).

    For a state h [d], normalised to x = (h − h̄) / σ where normalisation is on and x = h where it
    is off (h̄ = 0, σ = 1)::

        z = TopK_k(ReLU(W_enc (x − b_dec) + b_enc))        [num_latents], at most k non-zero
        x̂ = W_decᵀ z + b_dec                               [d]

    Both weight matrices hold one row per latent, [num_latents, d]; W_dec's have unit norm.

    Args:
        d_in: size d of a state.
        num_latents: number of concepts.
        k: active latents per token.

    Raises:
        InputError: k below 1 or above ``num_latents``.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, d_in: int, num_latents: int, k: int) -> None:
        super().__init__()
        if not 1 <= k <= num_latents:
            raise InputError(f"k must be between 1 and the {num_latents} latents, not {k}")
        self.d_in = d_in
        self.num_latents = num_latents
        self.k = k
        W_dec = F.normalize(torch.randn(num_latents, d_in), dim=1)
        self.W_dec = nn.Parameter(W_dec)
        self.W_enc = nn.Parameter(W_dec.clone())
        self.b_enc = nn.Parameter(torch.zeros(num_latents))
        self.b_dec = nn.Parameter(torch.zeros(d_in))
        self.register_buffer("mean", torch.zeros(d_in))
        self.register_buffer("scale", torch.ones(()))

    def normalise(self, states: Tensor) -> Tensor:
        """x from h: [n, d]."""
        return (states - self.mean) / self.scale

    def pre_acts(self, x: Tensor) -> Tensor:
        """Every latent's activation before ReLU and TopK: [n, num_latents] from x [n, d]."""
        bias = self.b_enc - self.W_enc @ self.b_dec
        return torch.addmm(bias, x, self.W_enc.T)

    def acts(self, x: Tensor, latents: Tensor) -> Tensor:
        """Activations of chosen latents [n, k] for x [n, d]; only these rows get a gradient."""
        rows = F.embedding(latents, self.W_enc)
        pre = torch.einsum("nd,nkd->nk", x - self.b_dec, rows) + self.b_enc[latents]
        return F.relu(pre)

    def encode(self, states: Tensor, k: int | None = None) -> tuple[Tensor, Tensor]:
        """The active latents of token states.

        Args:
            states: [n, d].
            k: active latents per token, this model's own by default.

        Returns:
            Activations [n, k], at least 0 and in units of the states, and latent numbers [n, k].
        """
        x = self.normalise(states)
        with torch.no_grad():
            pre = self.pre_acts(x)
            latents = top_columns(pre, min(k or self.k, self.num_latents))
        with_gradient = torch.is_grad_enabled()
        acts = self.acts(x, latents) if with_gradient else F.relu(pre.gather(1, latents))
        return acts * self.scale, latents

    def decode(self, acts: Tensor, latents: Tensor) -> Tensor:
        """x̂ [n, d] from activations in units of x and latent numbers [n, k]."""
        sums = F.embedding_bag(latents, self.W_dec, mode="sum", per_sample_weights=acts)
        return sums + self.b_dec

    def forward(self, states: Tensor) -> Tensor:
        """Reconstructed states [n, d]."""
        acts, latents = self.encode(states)
        return self.decode(acts / self.scale, latents) * self.scale + self.mean

    def save(self, folder: Path) -> None:
        """Write ``sae.safetensors`` and ``sae.json``, each atomically."""
        config = {"architecture": "topk", "d_in": self.d_in, "num_latents": self.num_latents}
        tensors = {name: tensor.contiguous() for name, tensor in self.state_dict().items()}
        replace_file(folder / "sae.safetensors", save(tensors))
        write_json(folder / "sae.json", {**config, "k": self.k})

    @classmethod
    def load(cls, folder: Path) -> TopKSAE:
        """Read what ``save`` wrote.

        Raises:
            InputError: files that are missing, damaged, or of other shapes than the config says.
        """
        try:
            config = json.loads((folder / "sae.json").read_bytes())
            sae = cls(config["d_in"], config["num_latents"], config["k"])
            sae.load_state_dict(load_file(folder / "sae.safetensors"))
        except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
            raise InputError(f"{folder}: not a saved SAE: {error}") from None
        return sae
