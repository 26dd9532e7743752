"""Layouts of pretrained SAEs, one module each, behind one interface."""

from lexicept.models.sae.formats.dictionary_learning import (
    DictionaryLearning,
    save_dictionary_learning,
)
from lexicept.models.sae.formats.gemma_scope import GemmaScope, GemmaScope2
from lexicept.models.sae.formats.layout import Layout, Place, Scale
from lexicept.models.sae.formats.lexicept import Lexicept
from lexicept.models.sae.formats.llama_scope import LlamaScope
from lexicept.models.sae.formats.saelens import SAELens, save_saelens
from lexicept.models.sae.formats.sparsify import Sparsify, save_sparsify

LAYOUTS: tuple[type[Layout], ...] = (
    Lexicept,
    LlamaScope,
    GemmaScope,
    GemmaScope2,
    SAELens,
    Sparsify,
    DictionaryLearning,
)

__all__ = [
    "LAYOUTS",
    "Layout",
    "Place",
    "Scale",
    "save_dictionary_learning",
    "save_saelens",
    "save_sparsify",
]
