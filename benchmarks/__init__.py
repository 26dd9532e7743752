"""Benchmarks of lexicept; see README.md."""
