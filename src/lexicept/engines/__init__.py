"""Exact search over sparse vectors: a single set of postings, or several joined."""

from lexicept.engines.exact import ExactEngine
from lexicept.engines.interface import PostingsEngine

__all__ = ["ExactEngine", "PostingsEngine"]
