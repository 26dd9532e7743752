"""Fuzzing of the readers: on damaged files they raise lexicept's own errors and nothing else.

``python -m tests.fuzz`` lets atheris damage files; ``tests/unit/test_fuzz.py`` is a short,
deterministic run with Hypothesis.
"""
