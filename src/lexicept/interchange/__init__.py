"""Sparse encoders in the layouts of others: read into lexicept's, and written from it."""

from lexicept.interchange.reading import Kind, read_model, recognise
from lexicept.interchange.writing import write_model

__all__ = ["Kind", "read_model", "recognise", "write_model"]
