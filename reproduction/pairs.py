"""Pairs of associated dimensions of two vocabularies, such as SPLADE's tokens and SAE latents.

SAE-SPLADE, appendix E: for a token t and a latent l over the same documents, P(l|t) and P(t|l)
say whether the latent covers more than the token (synonymy), less (polysemy), or just as much
(identity).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import betainc

from lexicept.errors import InputError
from lexicept.vectors import Floats, Integers, SparseVectors

MIN_OCCURRENCES = 5
"""Smallest document frequency of the dimensions that are compared."""

MIN_PROBABILITY = 0.1
"""Smallest value of both conditional probabilities."""

CONFIDENCE = 0.95

LOW, HIGH = 0.4, 0.6
"""Upper bound of a small conditional probability, and lower bound of a large one."""

CELLS = 2**18
"""Co-occurrence counts held in memory at once: about 40 bytes for each."""

Relation = Literal["synonymy", "polysemy", "identity"]
RELATIONS: tuple[Relation, ...] = ("synonymy", "polysemy", "identity")


class Pair(NamedTuple):
    """A token, a latent, and numbers of documents with each and both."""

    token: int
    """The token: a dimension of the first collection."""
    latent: int
    """The latent: a dimension of the second collection."""
    token_count: int
    latent_count: int
    both: int
    relation: Relation
    num_documents: int
    """Number of documents of the collection."""

    @property
    def lift(self) -> float:
        """P(l|t) / P(l): 1 where token and latent are independent."""
        return self.both * self.num_documents / (self.token_count * self.latent_count)

    @property
    def latent_given_token(self) -> float:
        """P(l|t)."""
        return self.both / self.token_count

    @property
    def token_given_latent(self) -> float:
        """P(t|l)."""
        return self.both / self.latent_count


class Group(NamedTuple):
    """A dimension with the pairs of one relation."""

    dimension: int
    pairs: tuple[Pair, ...]
    """Pairs in most documents first."""


@dataclass(frozen=True)
class Pairs:
    """All pairs with a relation, as arrays [P] in the order of token, then latent."""

    token: Integers
    latent: Integers
    token_count: Integers
    latent_count: Integers
    both: Integers
    relation: Integers
    """Indices into ``RELATIONS``."""
    associated: int
    """Number of pairs that passed the tests, with or without a relation."""
    num_documents: int

    def __len__(self) -> int:
        return int(self.token.size)

    def __getitem__(self, number: int) -> Pair:
        return Pair(
            int(self.token[number]),
            int(self.latent[number]),
            int(self.token_count[number]),
            int(self.latent_count[number]),
            int(self.both[number]),
            RELATIONS[self.relation[number]],
            self.num_documents,
        )

    def __iter__(self) -> Iterator[Pair]:
        return (self[number] for number in range(len(self)))

    @property
    def counts(self) -> dict[Relation, int]:
        """The number of pairs by relation."""
        counts = Counter(self.relation.tolist())
        return {name: counts[number] for number, name in enumerate(RELATIONS)}


def dimension_pairs(tokens: SparseVectors, latents: SparseVectors) -> Pairs:
    """Classify the pairs of dimensions of two collections of the same documents.

    A dimension occurs in a document where its weight is above 0. Pairs count where both
    dimensions occur in ``MIN_OCCURRENCES`` documents, both probabilities reach
    ``MIN_PROBABILITY``, and two one-sided binomial tests, one for each probability, reject with
    ``CONFIDENCE`` that the two are together by chance (H0: l occurs in a document with t as often
    as in any document, and the reverse). The paper does not name H0's side or correct for the
    number of pairs; neither is corrected here. Then

    - synonymy: P(t|l) ≤ ``LOW`` and P(l|t) ≥ ``HIGH``: the latent covers this token and others;
    - polysemy: P(l|t) ≤ ``LOW`` and P(t|l) ≥ ``HIGH``: one of several latents of the token;
    - identity: both ≥ ``HIGH``.

    Args:
        tokens: words, or the vocabulary of a model [N, T].
        latents: [N, L], with the same ids in any order.

    Raises:
        InputError: the ids differ.
    """
    T, L = align([tokens, latents])
    t_numbers, t_counts, t_ones = _by_frequency(T)
    l_numbers, l_counts, l_ones = _by_frequency(L)
    N, by_token = T.shape[0], t_ones.T.tocsr()
    del tokens, latents, T, L, t_ones  # as large as what follows
    step = max(1, CELLS // max(1, l_numbers.size))
    blocks = [np.zeros((3, 0), np.int64)]
    # Both sides are ordered by frequency, so that a block of tokens can reach a range of latents.
    for start in range(0, t_numbers.size, step):
        end = min(start + step, t_numbers.size)
        # Probabilities of .1 are out of reach where one of the two is ten times as frequent.
        # Rounded down: .1 · 70 is above 7, and 7 of 70 do reach .1.
        first = np.searchsorted(l_counts, np.floor(MIN_PROBABILITY * t_counts[start]))
        last = np.searchsorted(l_counts, t_counts[end - 1] / MIN_PROBABILITY, side="right")
        both = sp.csr_array(by_token[start:end] @ l_ones[:, first:last])
        tokens_of_block = np.arange(start, end, dtype=np.int32)
        t, l = np.repeat(tokens_of_block, np.diff(both.indptr)), both.indices + int(first)  # noqa: E741
        k = both.data
        probable = k / np.maximum(t_counts[t], l_counts[l]) >= MIN_PROBABILITY
        t, l, k = t[probable], l[probable], k[probable]  # noqa: E741
        n_t, n_l, rejected = t_counts[t], l_counts[l], 1 - CONFIDENCE
        together = (tail(k, n_t, n_l / N) <= rejected) & (tail(k, n_l, n_t / N) <= rejected)
        blocks.append(np.stack([t[together], l[together], k[together]]).astype(np.int64))
    t, l, k = np.concatenate(blocks, axis=1)  # noqa: E741
    p_l, p_t = k / t_counts[t], k / l_counts[l]
    high = (p_l >= HIGH, p_t >= HIGH)
    cases = [(p_t <= LOW) & high[0], (p_l <= LOW) & high[1], high[0] & high[1]]
    relation = np.select(cases, range(len(RELATIONS)), -1)
    order = np.lexsort((l_numbers[l], t_numbers[t]))
    order = order[relation[order] >= 0]
    t, l = t[order], l[order]  # noqa: E741
    return Pairs(
        token=t_numbers[t],
        latent=l_numbers[l],
        token_count=t_counts[t],
        latent_count=l_counts[l],
        both=k[order],
        relation=relation[order],
        associated=relation.size,
        num_documents=N,
    )


def align(collections: Sequence[SparseVectors]) -> list[sp.csr_array]:
    """Return the weights of each collection [N, V_i], in the order of the first ids. Raises
    InputError without collections, and for an id that is not in all of them."""
    if not collections:
        raise InputError("no collections to compare")
    ids = collections[0].ids
    aligned = []
    for collection in collections:
        if collection.ids == ids:
            aligned.append(collection.weights)
            continue
        numbers = {name: number for number, name in enumerate(collection.ids)}
        if strange := set(ids) ^ numbers.keys():
            name = min(strange)
            raise InputError(f"collections of different texts: {name!r} is not in all of them")
        aligned.append(collection.weights[[numbers[name] for name in ids]])
    return aligned


def synonyms(pairs: Pairs) -> list[Group]:
    """Return the latents of two tokens and more, most tokens first (SAE-SPLADE, Table 8)."""
    return _groups(pairs, "synonymy", "latent")


def senses(pairs: Pairs) -> list[Group]:
    """Return the tokens of two latents and more, most latents first (SAE-SPLADE, Table 9)."""
    return _groups(pairs, "polysemy", "token")


def _groups(pairs: Pairs, relation: Relation, side: Literal["token", "latent"]) -> list[Group]:
    groups: dict[int, list[Pair]] = {}
    for number in np.flatnonzero(pairs.relation == RELATIONS.index(relation)).tolist():
        pair = pairs[number]
        groups.setdefault(getattr(pair, side), []).append(pair)
    several = [
        Group(dimension, tuple(sorted(pairs_of_group, key=lambda pair: -pair.both)))
        for dimension, pairs_of_group in groups.items()
        if len(pairs_of_group) > 1
    ]
    return sorted(several, key=lambda group: (-len(group.pairs), group.dimension))


def _by_frequency(matrix: sp.csr_array) -> tuple[Integers, Integers, sp.csr_array]:
    """Return the dimensions that occur often enough, rarest first: numbers, df, and ones [N, n]."""
    counts = np.bincount(matrix.indices, minlength=matrix.shape[1])
    order = np.argsort(counts, kind="stable")
    order = order[counts[order] >= MIN_OCCURRENCES]
    kind = np.min_scalar_type(matrix.shape[0])  # counts of documents fit it
    ones = sp.csr_array(
        (np.ones(matrix.nnz, kind), matrix.indices, matrix.indptr), shape=matrix.shape
    )
    return order, counts[order], ones[:, order]


def tail(k: Integers, n: Integers, p: Floats) -> Floats:
    """Return P(X ≥ k) for X ~ Binomial(n, p), the p-value of the one-sided test; k ≥ 1."""
    values: Floats = betainc(k, n - k + 1, p)
    return values
