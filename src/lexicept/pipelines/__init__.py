"""Pipelines: what a command does, as one documented function."""
