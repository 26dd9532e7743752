"""The sparse autoencoder: one model and one file format for all architectures."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from lexicept.errors import InputError, message_of
from lexicept.neural.kernels.linear_outputs import top_activations
from lexicept.neural.kernels.sparse_linear import chosen_outputs, sum_chosen
from lexicept.storage.files import replace_file, write_json

_BLOCK = re.compile(r"(?:^|\.)(?:blocks|layers|layer|h)\.(\d+)((?:\.\w+)*)$")
_BEFORE_A_BLOCK = (".hook_resid_pre", ".hook_in")
_AFTER_A_BLOCK = ("", ".output", ".hook_resid_post", ".hook_out")
"""Names of Hugging Face's modules, TransformerLens's, and those of its version 3."""


def block_of(hook: str | None) -> int | None:
    """Return the block of a hook, counted from 0 as in releases; None for a hook outside blocks."""
    match = _BLOCK.search(hook or "")
    return int(match[1]) if match else None


def layer_of(hook: str | None) -> int | None:
    """Return the number of blocks before a hook; None for a hook not between two blocks.

    ``blocks.8.hook_resid_post``, the output of block 8, is the state after 9 blocks.
    """
    match = _BLOCK.search(hook or "")
    if match and match[2] in _AFTER_A_BLOCK:
        return int(match[1]) + 1
    return int(match[1]) if match and match[2] in _BEFORE_A_BLOCK else None


class SAE(nn.Module):
    """A sparse autoencoder over token states (SAE-SPLADE section 3).

    For a state h [d], normalised to x = (h − h̄) / σ; without normalisation h̄ = 0, σ = 1::

        p = W_enc (x − b_dec) + b_enc      [num_latents]; W_enc x + b_enc if not centred
        z = TopK_k(ReLU(p))                at most k non-zero (Gao et al. 2024)
        z = p · [p > threshold]            with thresholds instead of k
        x̂ = W_decᵀ z + b_dec               [d]

    Thresholds are at least 0, one per latent. With them the model is a JumpReLU SAE (Rajamanoharan
    et al. 2024b); a ReLU SAE has thresholds of 0, a BatchTopK SAE equal thresholds, and a gated SAE
    is folded into this form when it is read. Both weight matrices hold one row per latent,
    [num_latents, d]. Raises InputError if k is below 1 or above ``num_latents``.

    Args:
        d_in: size d of a state.
        num_latents: number of latents.
        k: active latents per token; None for thresholds, which are 0 at first.
        architecture: name of the architecture in training; only shown.
        centred: whether b_dec is subtracted from the input.
    """

    mean: Tensor
    scale: Tensor
    threshold: Tensor | None

    def __init__(
        self,
        d_in: int,
        num_latents: int,
        k: int | None,
        *,
        architecture: str = "topk",
        centred: bool = True,
    ) -> None:
        super().__init__()
        if k is not None and not 1 <= k <= num_latents:
            raise InputError(f"k must be between 1 and the {num_latents} latents, not {k}")
        self.d_in = d_in
        self.num_latents = num_latents
        self.k = k
        self.architecture = architecture
        self.centred = centred
        self.origin: dict[str, Any] = {}
        """The states (``hook``, ``model``, ``layer``) and source of the SAE, as JSON values."""
        self.decoder = True
        """True if W_dec is a decoder; else W_dec holds the rows of W_enc at unit length."""
        W_dec = torch.empty(num_latents, d_in)
        if not W_dec.is_meta:  # "meta" has no values, and drawing them imports torch's compiler
            W_dec = F.normalize(W_dec.normal_(), dim=1)
        self.W_dec = nn.Parameter(W_dec)
        self.W_enc = nn.Parameter(W_dec.clone())
        self.b_enc = nn.Parameter(torch.zeros(num_latents))
        self.b_dec = nn.Parameter(torch.zeros(d_in))
        self.register_buffer("mean", torch.zeros(d_in))
        self.register_buffer("scale", torch.ones(()))
        self.register_buffer("threshold", torch.zeros(num_latents) if k is None else None)

    def normalise(self, states: Tensor) -> Tensor:
        """Return x [n, d] for states h [n, d]."""
        return (states - self.mean) / self.scale

    def centre(self, x: Tensor) -> Tensor:
        """Return the input of W_enc [n, d] for x [n, d]."""
        return x - self.b_dec if self.centred else x

    def pre_acts_of(self, x: Tensor, latents: Tensor) -> Tensor:
        """Return p of given latents [n, k] for x [n, d]; only their rows get a gradient."""
        return chosen_outputs(self.centre(x), self.W_enc, self.b_enc, latents)

    def encode(self, states: Tensor, k: int | None = None) -> tuple[Tensor, Tensor]:
        """Return the most active latents of token states [n, d]: activations [n, k], at least 0 and
        in units of the states, and latent numbers [n, k]; k is by default the model's, or else the
        largest number of active latents of a token. The latent of an activation of 0 is
        arbitrary."""
        x = self.normalise(states)
        with torch.no_grad():
            acts, latents = top_activations(
                self.centre(x), self.W_enc, self.b_enc, k or self.k, self.threshold
            )
        # The search has no gradient: the latents it chose are computed again.
        if torch.is_grad_enabled():
            acts = F.relu(self.pre_acts_of(x, latents)) * (acts > 0)
        return acts * self.scale, latents

    def decode(self, acts: Tensor, latents: Tensor) -> Tensor:
        """Return x̂ [n, d] for activations, in units of x, and latent numbers, both [n, k]. Raises
        InputError for an SAE without decoder."""
        self.need_decoder()
        return sum_chosen(acts, latents, self.W_dec) + self.b_dec

    def need_decoder(self) -> None:
        """Raise InputError if the SAE has no decoder."""
        if not self.decoder:
            raise InputError(
                "this SAE was saved without its decoder, like lexicept-mini's: it can't rebuild "
                "states or be written for other libraries; lexicept model convert INDEX --to … "
                "fits a decoder to an index's documents"
            )

    def reconstruct(self, acts: Tensor, latents: Tensor) -> Tensor:
        """Return ĥ [n, d] for the activations and latents [n, k] of ``encode``."""
        return self.decode(acts / self.scale, latents) * self.scale + self.mean

    def forward(self, states: Tensor) -> Tensor:
        """Return reconstructed states [n, d]."""
        return self.reconstruct(*self.encode(states))

    def save(self, folder: Path) -> None:
        """Write ``sae.safetensors`` and ``sae.json``, each atomically."""
        config = {
            "architecture": self.architecture,
            "d_in": self.d_in,
            "num_latents": self.num_latents,
            "k": self.k,
            "centred": self.centred,
            "origin": self.origin,
        }
        tensors = {name: tensor.contiguous() for name, tensor in self.state_dict().items()}
        if not self.decoder:
            config["decoder"] = False
            del tensors["W_dec"]
        replace_file(folder / "sae.safetensors", save(tensors))
        write_json(folder / "sae.json", config)

    @classmethod
    def load(cls, folder: Path) -> SAE:
        """Load a saved SAE, of any floating-point type, in float32.

        With ``"decoder": false`` in the config, the file holds the encoder alone, enough for a
        head; the encoder's rows at unit length take the decoder's place. Raises InputError if files
        are missing or damaged, or shapes differ from the config's.
        """
        try:
            config = json.loads((folder / "sae.json").read_bytes())
            with torch.device("meta"):  # a damaged config must not allocate memory
                sae = cls(
                    config["d_in"],
                    config["num_latents"],
                    config["k"],
                    architecture=config["architecture"],
                    centred=config["centred"],
                )
            sae.origin = dict(config["origin"])
            stored = load_file(folder / "sae.safetensors")
            tensors = {name: tensor.float() for name, tensor in stored.items()}
            sae.decoder = bool(config.get("decoder", True))
            if not sae.decoder:
                tensors["W_dec"] = F.normalize(tensors["W_enc"], dim=1)
            sae.load_state_dict(tensors, assign=True)
        except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
            raise InputError(f"{folder}: not a saved SAE: {message_of(error)}") from None
        in_range = sae.scale > 0, sae.threshold is None or bool((sae.threshold >= 0).all())
        if not all((*in_range, *(bool(tensor.isfinite().all()) for tensor in tensors.values()))):
            raise InputError(f"{folder}: not a saved SAE: a number is not finite, or below 0")
        return sae
