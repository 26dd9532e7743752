"""Kernels: for each, a plain reference and a fast twin with the same signature."""
