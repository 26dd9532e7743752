"""Readers under fire: valid files, mutated, may raise lexicept's own errors and nothing else.

``python -m tests.fuzz --inputs 200000`` is the long run; ``tests/unit/test_fuzz.py`` a short one.
"""
