"""Search engines over sparse vectors, behind one interface.

``exact`` returns exactly the product's ranking. The others are imported when they are used, because
each needs a package of its own; ``store`` keeps what they build beside an index.
"""

from lexicept.engines.exact import ExactEngine
from lexicept.engines.interface import Engine, PostingsEngine

__all__ = ["Engine", "ExactEngine", "PostingsEngine"]
