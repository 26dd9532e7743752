"""Pretraining of language heads and backbones on masked texts."""
