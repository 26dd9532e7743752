"""Sparse autoencoders: token states → a few active latents, the concepts."""

from lexicept.sae.model import TopKSAE
from lexicept.sae.training import SAESettings, train_sae

__all__ = ["SAESettings", "TopKSAE", "train_sae"]
