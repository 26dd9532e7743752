"""Exports: an index in the formats of other engines, which load the files without lexicept.

Dimensions are named by numbers, which every engine takes; ``vocabulary.tsv`` lists their meanings.
"""

from lexicept.exports.folder import ExportedIndex, ExportFormat, export_index, left_out
from lexicept.exports.impacts import CIFF, Anserini
from lexicept.exports.servers import Elasticsearch, OpenSearch, Qdrant

__all__ = [
    "CIFF",
    "Anserini",
    "Elasticsearch",
    "ExportFormat",
    "ExportedIndex",
    "OpenSearch",
    "Qdrant",
    "export_index",
    "left_out",
]
