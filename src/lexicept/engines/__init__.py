"""Search engines over sparse vectors, behind a common interface.

``exact`` returns exactly the product's ranking. ``seismic`` needs a further package and is imported
on use; ``store`` keeps Seismic's files beside an index.
"""

from lexicept.engines.exact import ExactEngine
from lexicept.engines.interface import Engine, PostingsEngine

__all__ = ["Engine", "ExactEngine", "PostingsEngine"]
