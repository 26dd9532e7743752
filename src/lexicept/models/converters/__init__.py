"""Converters: sparse encoders in other libraries' layouts, read into lexicept's and written."""

from lexicept.models.converters.reading import Kind, load_in_own_library, read_model, recognise
from lexicept.models.converters.writing import write_model

__all__ = ["Kind", "load_in_own_library", "read_model", "recognise", "write_model"]
