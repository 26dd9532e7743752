"""Exports: an index in the formats of other engines, which load the files without lexicept.

Dimensions are named by numbers, which every engine takes; ``vocabulary.tsv`` lists their meanings.
"""

from lexicept.exports.folder import ExportedIndex as ExportedIndex
from lexicept.exports.folder import ExportFormat as ExportFormat
from lexicept.exports.folder import export_index as export_index
from lexicept.exports.folder import left_out as left_out
from lexicept.exports.impacts import CIFF as CIFF
from lexicept.exports.impacts import Anserini as Anserini
from lexicept.exports.servers import Elasticsearch as Elasticsearch
from lexicept.exports.servers import OpenSearch as OpenSearch
from lexicept.exports.servers import Qdrant as Qdrant
