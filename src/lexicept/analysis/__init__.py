"""Analyses of the papers over sparse vectors, one module each; results are plain values."""
