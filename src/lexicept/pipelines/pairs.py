"""Named pairs of dimensions of two indexes of the same documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from lexicept.errors import InputError, checked_arguments
from lexicept.index.reader import IndexReader
from lexicept.interpretation.pairs import Pairs, dimension_pairs
from lexicept.pipelines.opened import IndexLike, reader_of
from lexicept.vectors import SparseVectors


class NamedPairs(NamedTuple):
    """Pairs of tokens and latents, with names."""

    pairs: Pairs
    tokens: Sequence[str]
    """Name of each token."""
    latents: Sequence[str]
    """Name of each latent."""


@checked_arguments
def index_pairs(
    tokens: IndexLike,
    latents: IndexLike,
    *,
    token_vocabulary: str | None = None,
    latent_vocabulary: str | None = None,
) -> NamedPairs:
    """Pair the dimensions of two indexes of the same documents, such as one by SPLADE and one by
    SAE-SPLADE (SAE-SPLADE, appendix E); see ``lexicept.interpretation.pairs``.

    Args:
        tokens: an index with dimensions that are tokens, opened or by path.
        latents: an index with dimensions that are latents; may be the index of ``tokens``.
        token_vocabulary: a vocabulary of ``tokens``; None for an index of one vocabulary.
        latent_vocabulary: a vocabulary of ``latents``; None for an index of one vocabulary.

    Raises:
        InputError: documents of other ids, no such vocabulary, or no name among several.
    """
    first, second = reader_of(tokens), reader_of(latents)
    token_name = _vocabulary_of(first, token_vocabulary)
    latent_name = _vocabulary_of(second, latent_vocabulary)
    T = first.document_vectors().select(token_name)
    L = second.document_vectors().select(latent_name)
    return NamedPairs(dimension_pairs(T, L), _terms(T), _terms(L))


def _terms(vectors: SparseVectors) -> Sequence[str]:
    (vocabulary,) = vectors.vocabularies
    return vocabulary.terms or [str(number) for number in range(vocabulary.size)]


def _vocabulary_of(index: IndexReader, vocabulary: str | None) -> str:
    """Return a vocabulary of an index. Raises InputError for an unknown or ambiguous vocabulary."""
    names = [entry.name for entry in index.vocabularies]
    if vocabulary is None and len(names) > 1:
        raise InputError(f"{index.path} has several vocabularies, name one: {', '.join(names)}")
    name = names[0] if vocabulary is None else vocabulary
    index.span(name)  # raises InputError for an unknown vocabulary
    return name
