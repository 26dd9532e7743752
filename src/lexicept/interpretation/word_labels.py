"""Labels of concepts from the words that their strongest documents share, and that they fire on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import scipy.sparse as sp

from lexicept.interpretation.document_terms import DocumentTerms
from lexicept.segments import csr_of_rows, firsts, ranks
from lexicept.vectors import Floats, Integers, row_numbers

SIGNIFICANT = 1.96
"""z-score above which a word is significant at 95 %."""

STRONGEST_DOCUMENTS = 30
"""Documents of a concept that are compared with all; this and what follows was chosen on CACM and
MedQuAD (docs/default-model.md#names)."""

FEWEST_DOCUMENTS = 10
"""Documents that a concept needs for a name: what fewer share may be chance, or one topic."""

OF_FIRING = 3.0
"""Documents that a concept's firing counts as."""

COVERED = 0.4
"""Smallest share of a concept's evidence that a label of one word has."""

COVERED_TOGETHER = 0.6
"""Smallest share that a label of several words has."""

SHARED = 0.1
"""Smallest share of the documents that have a word of a label."""

UNFIRED = 0.1
"""Score of a word that the concept does not fire on, relative to one that has all its firing."""

FIRED = 0.2
"""Share of the firing from which a word may be common in all documents."""

RARE = 4.0
"""Smallest ratio of the frequencies of any other word in the concept's documents and in all."""

FAINT = 0.05
"""Smallest share of the firing of a word that names a concept which fires on words."""

ON_WORDS = 0.5
"""Share of a concept's activations on stems from which it fires on words; one that fires less on
them, for example on commas, is named by what its documents are about."""

PAIRED = 0.75
"""Smallest share of a word's documents that have the pair which replaces it."""

COHERENT = 0.25
"""Smallest cosine of two words that have a common meaning."""

WORDS_PER_LABEL = 3

TRIED = 8
"""Words that are tried for a label of several."""

BLOCK = 512
"""Concepts whose terms are in memory at once."""


@dataclass(frozen=True)
class Firing:
    """The stems that concepts fire on."""

    shares: sp.csr_array
    """The share of a concept's activations that each stem has [M, S]."""
    spelled: sp.csr_array
    """The place in ``words``, from 1, of the word that has most of it [M, S]."""
    words: Sequence[str]
    vectors: Floats
    """The mean state of each stem's words at unit length; zeros for one that was not read
    [S, d]."""

    @classmethod
    def of(
        cls,
        counts: sp.csr_array,
        log_odds: sp.csr_array,
        words: Sequence[str],
        vectors: Floats,
        stem_of: Integers,
        size: int,
    ) -> Self:
        """Add up words with the same stem.

        Args:
            counts: activations by word [M, W].
            log_odds: z-scores of the words [M, W]; those below ``SIGNIFICANT`` are chance.
            words: in lower case [W].
            vectors: of the words [W, d].
            stem_of: the number of each word's stem; −1 for none [W].
            size: the number of stems, S.
        """
        significant = sp.csr_array(log_odds >= SIGNIFICANT)
        counted = sp.coo_array(significant.multiply(counts))
        totals = np.asarray(counts.sum(axis=1)).ravel()
        concept, word = (part[stem_of[counted.col] >= 0] for part in (counted.row, counted.col))
        share = counted.data[stem_of[counted.col] >= 0] / totals[concept]
        stem = stem_of[word]
        order = np.lexsort((word, -share, stem, concept))
        first = order[firsts(concept[order], stem[order])] if order.size else order
        shape = (counts.shape[0], size)
        known = np.flatnonzero(stem_of >= 0)
        of_stem = sp.csr_array(
            (np.ones(known.size), (stem_of[known], known)), shape=(size, len(words))
        )
        means = np.asarray(of_stem @ vectors)
        return cls(
            sp.csr_array((share, (concept, stem)), shape=shape),
            sp.csr_array((word[first] + 1, (concept[first], stem[first])), shape=shape),
            words,
            means / np.maximum(np.linalg.norm(means, axis=1), 1e-12)[:, None],
        )


class Namer:
    """Names concepts by the terms that their strongest documents share.

    The evidence for a term is the share of the ``STRONGEST_DOCUMENTS`` that have it, weighted by
    the concept's frequency in them, and the share of the concept's activations on it, which counts
    as ``OF_FIRING`` documents. Its score is that evidence times the logarithm of its lift (its
    share of these documents by its share of all) times ``UNFIRED`` + the share of the activations.

    Args:
        tf: of the concepts in the documents of ``terms`` [D, M].
    """

    def __init__(self, tf: sp.csr_array, terms: DocumentTerms, firing: Firing) -> None:
        self._terms, self._firing = terms, firing
        self._strongest = _strongest(tf)
        self._frequencies = terms.frequencies

    def labels(self) -> list[str]:
        """Return the label of each concept; an empty text for one without a name [M]."""
        labels = []
        for start in range(0, self._strongest.shape[0], BLOCK):
            shares = sp.csr_array(self._strongest[start : start + BLOCK] @ self._terms.contained)
            shares.sort_indices()
            for row in range(shares.shape[0]):
                own = slice(int(shares.indptr[row]), int(shares.indptr[row + 1]))
                kept = shares.data[own] >= SHARED
                label = self._label(start + row, shares.indices[own][kept], shares.data[own][kept])
                labels.append(label)
        return labels

    def _label(self, concept: int, terms: Integers, shares: Floats) -> str:
        """Return the label of a concept whose strongest documents have terms with shares [n].

        It is the stem with the highest score of those with ``COVERED`` of the evidence, or the pair
        with that stem which ``PAIRED`` of its documents have. Where no stem has enough, up to
        ``WORDS_PER_LABEL`` with a common meaning may have it together.
        """
        if self._count(concept) < FEWEST_DOCUMENTS:
            return ""
        size = len(self._terms.stems)
        stems = terms[terms < size]
        own = shares[: stems.size]
        on_words = self._fired(concept)
        fired = on_words[stems]
        lifts = own / self._frequencies[stems]
        covered = self._evidence(concept, own, fired)
        scores = covered * np.log(np.maximum(lifts, 1.0)) * (UNFIRED + fired)
        topical = (lifts >= RARE) & ((fired >= FAINT) | (on_words.sum() < ON_WORDS))
        scores[~topical & (fired < FIRED)] = 0.0
        if not scores.any():
            return ""
        enough = np.where(covered >= COVERED, scores, 0.0)
        if not enough.any():
            return self._together(concept, stems, fired, scores)
        best = int(enough.argmax())
        pairs = self._terms.pairs[terms[stems.size :] - size]
        of_pairs = np.where((pairs == stems[best]).any(axis=1), shares[stems.size :], 0.0)
        if of_pairs.max(initial=0.0) >= PAIRED * own[best]:
            pair: str = self._terms.spelled[terms[stems.size + int(of_pairs.argmax())]]
            return pair
        beside = self._beside(stems, fired, best)
        return " ".join(self._spelled(concept, stems[place]) for place in beside)

    def _beside(self, stems: Integers, fired: Floats, best: int) -> list[int]:
        """Return the place of the best stem, and of the one that has most firing beside it if that
        is at least ``FIRED`` and the two have a common meaning; the stronger first."""
        places = [place for place in np.argsort(-fired, kind="stable")[:3] if place != best]
        for place in places:
            if fired[place] >= FIRED and self._near(stems[place], stems[best]):
                return sorted([best, int(place)], key=lambda one: -fired[one])
        return [best]

    def _together(self, concept: int, stems: Integers, fired: Floats, scores: Floats) -> str:
        """Return the label of several stems, the best first, each near all before it; an empty text
        if they are few or have less than ``COVERED_TOGETHER`` of the evidence together."""
        own = slice(*self._strongest.indptr[[concept, concept + 1]].tolist())
        documents, weights = self._strongest.indices[own], self._strongest.data[own]
        having = self._terms.contained[documents]
        chosen: list[int] = []
        covered = np.zeros(documents.size, bool)
        for place in np.argsort(-scores, kind="stable")[:TRIED].tolist():
            if not scores[place] or len(chosen) == WORDS_PER_LABEL:
                break
            adds = (having[:, [stems[place]]].toarray().ravel() > 0) & ~covered
            near = all(self._near(stems[place], stems[one]) for one in chosen)
            if near and weights[adds].sum() >= SHARED:
                chosen.append(place)
                covered |= adds
        evidence = self._evidence(concept, weights[covered].sum(), fired[chosen].sum())
        if len(chosen) < 2 or evidence < COVERED_TOGETHER:
            return ""
        return " ".join(self._spelled(concept, stems[place]) for place in chosen)

    def _evidence(self, concept: int, shares: Floats, fired: Floats) -> Floats:
        count = self._count(concept)
        return (count * shares + OF_FIRING * np.minimum(fired, 1.0)) / (count + OF_FIRING)

    def _count(self, concept: int) -> int:
        """Return the number of a concept's strongest documents."""
        return int(self._strongest.indptr[concept + 1] - self._strongest.indptr[concept])

    def _fired(self, concept: int) -> Floats:
        """Return the share of a concept's activations on every stem [S]."""
        shares = self._firing.shares
        own = slice(int(shares.indptr[concept]), int(shares.indptr[concept + 1]))
        dense = np.zeros(shares.shape[1])
        dense[shares.indices[own]] = shares.data[own]
        return dense

    def _near(self, one: int, other: int) -> bool:
        """Return whether two stems have a common meaning, and not only a beginning."""
        words = self._terms.spelled[one], self._terms.spelled[other]
        vectors = self._firing.vectors
        return words[0][:2] != words[1][:2] and bool(vectors[one] @ vectors[other] >= COHERENT)

    def _spelled(self, concept: int, stem: int) -> str:
        """Return the word of a stem that a concept fires on most, or else the commonest."""
        place = int(self._firing.spelled[concept, stem])
        return self._firing.words[place - 1] if place else self._terms.spelled[stem]


def _strongest(tf: sp.csr_array) -> sp.csr_array:
    """Return the documents with most of each concept, and their weights, which add up to 1
    [M, D]."""
    columns = sp.csr_array(sp.csc_array(tf).T)
    concept = row_numbers(columns)
    order = np.lexsort((columns.indices, -columns.data, concept))
    order = order[ranks(concept[order]) < STRONGEST_DOCUMENTS]
    concept, weight = concept[order], columns.data[order].astype(np.float64)
    lengths = np.bincount(concept, minlength=tf.shape[1])
    totals = np.bincount(concept, weight, tf.shape[1])
    return csr_of_rows(weight / totals[concept], columns.indices[order], lengths, columns.shape)
