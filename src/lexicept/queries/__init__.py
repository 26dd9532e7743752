"""Queries as people write them."""
