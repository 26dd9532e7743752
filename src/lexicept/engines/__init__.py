"""Search engines over sparse vectors; ``exact`` returns exactly the product's ranking."""

from lexicept.engines.exact import ExactEngine

__all__ = ["ExactEngine"]
