"""Kernels, each with a plain reference and a fast version of the same signature."""
