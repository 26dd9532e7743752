"""Named pairs of dimensions of two indexes of the same documents.

``python -m reproduction.index_pairs TOKENS LATENTS [--token-vocabulary NAME]
[--latent-vocabulary NAME] [--groups senses]`` prints them as JSON.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from lexicept.checks import checked_arguments
from lexicept.errors import InputError
from lexicept.index.reader import IndexReader
from lexicept.pipelines.opened import IndexLike, reader_of
from lexicept.vectors import SparseVectors
from reproduction.pairs import Group, Pairs, dimension_pairs, senses, synonyms


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
    SAE-SPLADE (SAE-SPLADE, appendix E); see ``reproduction.pairs``.

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


def named_groups(named: NamedPairs, groups: str, top_k: int = 20) -> list[dict[str, Any]]:
    """Return the largest groups with names.

    Args:
        groups: "synonyms", the tokens that a latent covers (SAE-SPLADE, Table 8), or "senses", the
            latents that tell a token's meanings apart (Table 9).
        top_k: number of groups.
    """
    of_latents = groups == "synonyms"
    make = synonyms if of_latents else senses
    return [_named(group, named, of_latents) for group in make(named.pairs)[:top_k]]


def _named(group: Group, named: NamedPairs, of_latents: bool) -> dict[str, Any]:
    """Return a group with names, the probabilities of its members, and their lift."""
    heads, names = named.latents, named.tokens
    if not of_latents:
        heads, names = names, heads
    members = [
        {
            "name": names[pair.token if of_latents else pair.latent],
            "P(latent|token)": round(pair.latent_given_token, 4),
            "P(token|latent)": round(pair.token_given_latent, 4),
            "documents": pair.both,
            "lift": round(pair.lift, 2),
        }
        for pair in group.pairs
    ]
    return {"dimension": group.dimension, "name": heads[group.dimension], "members": members}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the pairs of two indexes as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tokens", help="index with dimensions that are tokens or words")
    parser.add_argument("latents", help="index of the same documents, with latents")
    parser.add_argument("--token-vocabulary")
    parser.add_argument("--latent-vocabulary")
    parser.add_argument("--groups", choices=("synonyms", "senses"), default="synonyms")
    options = parser.parse_args(arguments)
    named = index_pairs(
        options.tokens,
        options.latents,
        token_vocabulary=options.token_vocabulary,
        latent_vocabulary=options.latent_vocabulary,
    )
    counts = {str(relation): count for relation, count in named.pairs.counts.items()}
    groups = named_groups(named, options.groups)
    print(json.dumps({"associated": named.pairs.associated, **counts, "groups": groups}, indent=1))


if __name__ == "__main__":
    main()
