"""Layouts of pretrained SAEs, behind one interface."""

from collections.abc import Callable
from pathlib import Path

from lexicept.neural.sae.model import SAE
from lexicept.neural.sae_formats.layout import Layout, LexiceptLayout, PathFacts
from lexicept.neural.sae_formats.libraries import (
    DictionaryLearning,
    SAELens,
    Sparsify,
    save_dictionary_learning,
    save_saelens,
)
from lexicept.neural.sae_formats.releases import GemmaScope, GemmaScope2, LlamaScope

LAYOUTS: list[type[Layout]] = [LexiceptLayout, LlamaScope, GemmaScope, GemmaScope2]
LAYOUTS += [SAELens, Sparsify, DictionaryLearning]
"""Layouts that are read."""

WRITERS: dict[str, Callable[[SAE, Path], None]] = {
    "lexicept": SAE.save,
    "saelens": save_saelens,
    "dictionary-learning": save_dictionary_learning,
}
"""Layouts that are written, by their names in ``lexicept.convert``."""

__all__ = ["LAYOUTS", "WRITERS", "Layout", "PathFacts"]
