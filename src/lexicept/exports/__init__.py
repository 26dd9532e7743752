"""Exports: an index in the formats of other engines, which load it without lexicept.

A module for each format. Dimensions are named by their numbers, which every engine takes as they
are; ``vocabulary.tsv`` says what they mean. RRA's offsets are one more dimension, the last.
"""

from lexicept.exports.folder import export_index
from lexicept.exports.source import Format, Source

__all__ = ["Format", "Source", "export_index"]
