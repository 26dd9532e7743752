"""Pairs of dimensions of two indexes of the same documents, with their names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from lexicept.errors import InputError
from lexicept.index.reader import IndexReader
from lexicept.interpretation.pairs import Pairs, dimension_pairs
from lexicept.pipelines.arguments import checked_arguments
from lexicept.pipelines.opened import IndexLike, reader_of
from lexicept.vectors import SparseVectors


class NamedPairs(NamedTuple):
    """Pairs of tokens and latents, and what people call them."""

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
        tokens: an opened index, or the path of one, whose dimensions take the tokens' part.
        latents: likewise, for the latents' part. Both may be one index of words and concepts.
        token_vocabulary: a vocabulary of ``tokens``; by default its only one.
        latent_vocabulary: a vocabulary of ``latents``; by default its only one.

    Raises:
        InputError: documents of other ids, no such vocabulary, or none named among several.
    """
    first, second = reader_of(tokens), reader_of(latents)
    names = (_chosen(first, token_vocabulary), _chosen(second, latent_vocabulary))
    T = first.document_vectors().select(names[0])
    L = second.document_vectors().select(names[1])
    return NamedPairs(dimension_pairs(T, L), _terms(T), _terms(L))


def _terms(vectors: SparseVectors) -> Sequence[str]:
    (vocabulary,) = vectors.vocabularies
    return vocabulary.terms or [str(number) for number in range(vocabulary.size)]


def _chosen(index: IndexReader, vocabulary: str | None) -> str:
    """Return a vocabulary of an index. Raises InputError for an unknown one, and where none of
    several is named."""
    names = [entry.name for entry in index.vocabularies]
    if vocabulary is None and len(names) > 1:
        raise InputError(f"{index.path} has several vocabularies, name one: {', '.join(names)}")
    chosen = names[0] if vocabulary is None else vocabulary
    index.span(chosen)  # which refuses an unknown one
    return chosen
