"""Search engines over sparse vectors, behind one interface.

``exact`` returns exactly the product's ranking. Seismic is imported when it is used, because it
needs a package of its own; ``store`` keeps its files beside an index.
"""

from lexicept.engines.exact import ExactEngine
from lexicept.engines.interface import Engine, PostingsEngine

__all__ = ["Engine", "ExactEngine", "PostingsEngine"]
