"""Converters: sparse encoders in other libraries' layouts, read into lexicept's and written."""

from lexicept.neural.converters.reading import (
    Kind,
    check_backbone,
    find_model,
    load_in_own_library,
    open_encoder,
    read_model,
    recognise,
)
from lexicept.neural.converters.writing import write_model

__all__ = [
    "Kind",
    "check_backbone",
    "find_model",
    "load_in_own_library",
    "open_encoder",
    "read_model",
    "recognise",
    "write_model",
]
