"""Layouts of pretrained SAEs: a module for each, one interface."""

from lexicept.sae.formats.dictionary_learning import DictionaryLearning
from lexicept.sae.formats.gemma_scope import GemmaScope, GemmaScope2
from lexicept.sae.formats.layout import Layout, Place, Scale
from lexicept.sae.formats.lexicept import Lexicept
from lexicept.sae.formats.llama_scope import LlamaScope
from lexicept.sae.formats.saelens import SAELens, save_saelens
from lexicept.sae.formats.sparsify import Sparsify

LAYOUTS: tuple[type[Layout], ...] = (
    Lexicept,
    LlamaScope,
    GemmaScope,
    GemmaScope2,
    SAELens,
    Sparsify,
    DictionaryLearning,
)

__all__ = ["LAYOUTS", "Layout", "Place", "Scale", "save_saelens"]
