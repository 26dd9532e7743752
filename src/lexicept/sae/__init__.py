"""Sparse autoencoders: token states → a few active latents, the concepts."""

from lexicept.sae.model import SAE
from lexicept.sae.settings import SAESettings
from lexicept.sae.training import train_sae

__all__ = ["SAE", "SAESettings", "train_sae"]
