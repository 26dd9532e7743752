"""Sparse autoencoders: token states → a few active latents."""
