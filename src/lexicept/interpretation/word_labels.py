"""Labels of concepts: terms that the strongest documents share, preferably with firing.

Terms are stems, and pairs of stems side by side.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import scipy.sparse as sp

from lexicept.segments import csr_of_rows, firsts, ranks
from lexicept.vectorizers.words import Tokenizer, stop_words
from lexicept.vectors import Floats, Integers, row_numbers

SIGNIFICANT = 1.96
"""z-score above which a word is significant at 95 %."""

FEWEST = 3
"""Smallest number of documents that have a pair."""

GENERIC = {"en": stop_words("en_plus")}
"""Words by language that are no name, beside the tokenizer's stop words."""

STRONGEST_DOCUMENTS = 30
"""Documents of a concept that are compared with all; the constants below were chosen on CACM and
MedQuAD (docs/default-model.md#names)."""

FEWEST_DOCUMENTS = 10
"""Documents that a concept needs for a name: fewer may share words by chance, or one topic."""

OF_FIRING = 3.0
"""Documents that a concept's firing counts as."""

COVERED = 0.4
"""Smallest share of a concept's evidence that a label of one word has."""

COVERED_TOGETHER = 0.6
"""Smallest share that a label of several words has."""

SHARED = 0.1
"""Smallest share of the documents that have a word of a label."""

UNFIRED = 0.1
"""Score of a word without any firing of the concept, relative to a word with all firing."""

FIRED = 0.2
"""Share of the firing from which a word may be common in all documents."""

RARE = 4.0
"""Smallest ratio of the frequencies of a word in the concept's documents and in all."""

FAINT = 0.05
"""Smallest share of the firing on a word that names a concept of words."""

ON_WORDS = 0.5
"""Share of activations on stems from which a concept is a concept of words; other concepts, for
example of commas, are named by the topic of the documents."""

PAIRED = 0.75
"""Smallest share of a word's documents with the pair that replaces the word."""

COHERENT = 0.25
"""Smallest cosine of two words that have a common meaning."""

WORDS_PER_LABEL = 3

TRIED = 8
"""Words that are tried for a label of several."""

BLOCK = 512
"""Concepts whose terms are in memory at once."""


@dataclass(frozen=True)
class DocumentTerms:
    """The terms of D documents: S stems, and after them the pairs."""

    contained: sp.csr_array
    """1 for each term of a document, f32 [D, T]."""
    spelled: list[str]
    """The commonest spelling of each term [T]."""
    pairs: Integers
    """The two stems of each pair [T − S, 2]."""
    stems: Mapping[str, int]
    """The number of each stem."""

    def stem(self, word: str, tokenizer: Tokenizer) -> int:
        """Return the number of a word's stem; −1 for a word outside the terms."""
        stem = _single_stem(word, tokenizer)
        return -1 if stem is None else self.stems.get(stem, -1)

    @property
    def frequencies(self) -> Floats:
        """The share of the documents with each term [T]."""
        documents = max(1, self.contained.shape[0])
        return np.asarray(self.contained.sum(axis=0) / documents).ravel()


def document_terms(texts: Iterable[str], tokenizer: Tokenizer) -> DocumentTerms:
    """Find the terms of documents.

    Stop words, generic words and words without a letter are no terms. A pair is two stems side by
    side in at least ``FEWEST`` documents; languages of character bigrams have none.
    """
    numbers: dict[str, int] = {}
    word_numbers = [
        np.array([numbers.setdefault(w, len(numbers)) for w in tokenizer.split(text)], np.int64)
        for text in texts
    ]
    documents = len(word_numbers)
    word: Integers = np.concatenate([np.zeros(0, np.int64), *word_numbers])
    document: Integers = np.repeat(np.arange(documents), [array.size for array in word_numbers])
    stems: dict[str, int] = {}
    stem_of = np.full(len(numbers), -1, np.int64)
    for number, spelling in enumerate(numbers):
        if (single := _single_stem(spelling, tokenizer)) is not None:
            stem_of[number] = stems.setdefault(single, len(stems))
    stem = stem_of[word]
    spelled = _commonest(stem_of, np.bincount(word, minlength=len(numbers)), len(stems))
    words = list(numbers)
    spellings = [words[place] for place in spelled]
    size = max(1, len(stems))
    entries = np.unique(document[stem >= 0] * size + stem[stem >= 0])
    term_documents, columns = [entries // size], [entries % size]
    pairs: Integers = np.zeros((0, 2), np.int64)
    if not tokenizer.bigrams:
        pair_documents, pair, pairs, pair_words = _pairs(document, stem, word)
        term_documents.append(pair_documents)
        columns.append(pair + len(stems))
        spellings += [f"{words[a]} {words[b]}" for a, b in pair_words.tolist()]
    places = np.concatenate(term_documents), np.concatenate(columns)
    ones = np.ones(places[0].size, np.float32)
    contained = sp.csr_array((ones, places), shape=(documents, len(spellings)))
    return DocumentTerms(contained, spellings, pairs, stems)


def _single_stem(word: str, tokenizer: Tokenizer) -> str | None:
    """Return the stem of a word; None for several stems, no letter or a generic word."""
    stems = tokenizer(word)
    generic = word in GENERIC.get(tokenizer.language, ())
    return None if len(stems) != 1 or generic or not any(map(str.isalpha, word)) else stems[0]


def _commonest(group: Integers, counts: Integers, size: int) -> Integers:
    """Return the place of the largest count in each of ``size`` groups; −1 is no group."""
    order = np.lexsort((-counts, group))
    order = order[group[order] >= 0]
    return order[firsts(group[order])][:size]


def _pairs(
    document: Integers, stem: Integers, word: Integers
) -> tuple[Integers, Integers, Integers, Integers]:
    """Return documents and pairs, both [n]; the stems and the commonest words of each pair, both
    [pairs, 2]."""
    beside = (stem[:-1] >= 0) & (stem[1:] >= 0) & (stem[:-1] != stem[1:])
    places = np.flatnonzero(beside & (document[:-1] == document[1:]))
    # A pair of numbers is one key: the first number in the upper 32 bits.
    keys, pair = np.unique(stem[places] << 32 | stem[places + 1], return_inverse=True)
    entries = np.unique(document[places] * max(1, keys.size) + pair)
    documents, numbers = entries // max(1, keys.size), entries % max(1, keys.size)
    frequent = np.bincount(numbers, minlength=keys.size) >= FEWEST
    number = np.where(frequent, np.cumsum(frequent) - 1, -1)
    spellings, first, counts = np.unique(
        word[places] << 32 | word[places + 1], return_index=True, return_counts=True
    )
    spelled = spellings[_commonest(number[pair[first]], counts, int(frequent.sum()))]
    entries = np.flatnonzero(number[numbers] >= 0)
    pair_numbers = number[numbers[entries]]
    return documents[entries], pair_numbers, _halves(keys[frequent]), _halves(spelled)


def _halves(keys: Integers) -> Integers:
    return np.stack([keys >> 32, keys & 0xFFFFFFFF], axis=1)


@dataclass(frozen=True)
class Firing:
    """The stems that concepts fire on."""

    shares: sp.csr_array
    """The share of each stem in a concept's activations [M, S]."""
    spelled: sp.csr_array
    """The place in ``words``, from 1, of the stem's word with the largest share [M, S]."""
    words: Sequence[str]
    vectors: Floats
    """The mean state of each stem's words at unit length; zeros for unread stems [S, d]."""

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
            log_odds: z-scores of the words [M, W]; below ``SIGNIFICANT`` is chance.
            words: in lower case [W].
            vectors: mean states of the words [W, d].
            stem_of: the number of each word's stem; −1 for none [W].
            size: the number of stems, S.
        """
        # Words by chance count in the total of a concept's activations, not as words of a stem.
        significant = sp.csr_array(log_odds >= SIGNIFICANT)
        counted = sp.coo_array(significant.multiply(counts))
        totals = np.asarray(counts.sum(axis=1)).ravel()
        has_stem = stem_of[counted.col] >= 0
        concept, word = counted.row[has_stem], counted.col[has_stem]
        share = counted.data[has_stem] / totals[concept]
        stem = stem_of[word]
        order = np.lexsort((word, -share, stem, concept))
        first = order[firsts(concept[order], stem[order])] if order.size else order
        shape = (counts.shape[0], size)
        stemmed = np.flatnonzero(stem_of >= 0)
        of_stem = sp.csr_array(
            (np.ones(stemmed.size), (stem_of[stemmed], stemmed)), shape=(size, len(words))
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

    The evidence for a term is the share of the ``STRONGEST_DOCUMENTS`` with the term, weighted by
    the concept's frequency, and the share of the concept's activations on the term, which counts
    as ``OF_FIRING`` documents. The score is the evidence times the logarithm of the lift (share of
    the strongest documents by share of all) times ``UNFIRED`` + the share of the activations.
    ``tf`` are the frequencies of the concepts in the documents of ``terms`` [D, M].
    """

    def __init__(self, tf: sp.csr_array, terms: DocumentTerms, firing: Firing) -> None:
        self._terms, self._firing = terms, firing
        self._strongest = _strongest(tf)
        self._counts = np.diff(self._strongest.indptr)
        self._frequencies = terms.frequencies

    def labels(self) -> list[str]:
        """Return the label of each concept, or an empty text [M]."""
        labels = []
        for start in range(0, self._strongest.shape[0], BLOCK):
            shares = sp.csr_array(self._strongest[start : start + BLOCK] @ self._terms.contained)
            shares.sort_indices()
            for number in range(shares.shape[0]):
                entries = slice(int(shares.indptr[number]), int(shares.indptr[number + 1]))
                terms, term_shares = shares.indices[entries], shares.data[entries]
                shared = term_shares >= SHARED
                labels.append(self._label(start + number, terms[shared], term_shares[shared]))
        return labels

    def _label(self, concept: int, terms: Integers, shares: Floats) -> str:
        """Return the label of a concept whose strongest documents have terms with shares [n].

        The label is the stem with the highest score among stems with ``COVERED`` of the evidence,
        or a pair with the stem in ``PAIRED`` of the stem's documents. Without enough evidence for
        one stem, up to ``WORDS_PER_LABEL`` stems with a common meaning may have enough together.
        """
        if self._counts[concept] < FEWEST_DOCUMENTS:
            return ""
        # Terms are sorted: stems first, then pairs.
        size = len(self._terms.stems)
        stems = terms[terms < size]
        stem_shares = shares[: stems.size]
        on_words = self._firing.shares[[concept]].toarray().ravel()
        fired = on_words[stems]
        lifts = stem_shares / self._frequencies[stems]
        covered = self._evidence(concept, stem_shares, fired)
        scores = covered * np.log(np.maximum(lifts, 1.0)) * (UNFIRED + fired)
        # A frequent stem names a concept only if the concept fires on the stem.
        topical = (lifts >= RARE) & ((fired >= FAINT) | (on_words.sum() < ON_WORDS))
        scores[~topical & (fired < FIRED)] = 0.0
        if not scores.any():
            return ""
        enough = np.where(covered >= COVERED, scores, 0.0)
        if not enough.any():
            return self._together(concept, stems, fired, scores)
        best = int(enough.argmax())
        # "neural network" rather than "network" if most documents with the stem have the pair.
        pairs = self._terms.pairs[terms[stems.size :] - size]
        pair_shares = np.where((pairs == stems[best]).any(axis=1), shares[stems.size :], 0.0)
        if pair_shares.max(initial=0.0) >= PAIRED * stem_shares[best]:
            pair: str = self._terms.spelled[terms[stems.size + int(pair_shares.argmax())]]
            return pair
        beside = self._beside(stems, fired, best)
        return " ".join(self._spelled(concept, stems[place]) for place in beside)

    def _beside(self, stems: Integers, fired: Floats, best: int) -> list[int]:
        """Return the place of the best stem and, with at least ``FIRED`` and a common meaning, of
        the stem with most firing; the stronger first."""
        places = [place for place in np.argsort(-fired, kind="stable")[:3] if place != best]
        for place in places:
            if fired[place] >= FIRED and self._near(stems[place], stems[best]):
                return sorted([best, int(place)], key=lambda stem: -fired[stem])
        return [best]

    def _together(self, concept: int, stems: Integers, fired: Floats, scores: Floats) -> str:
        """Return the label of several near stems, the best first; an empty text with less than
        ``COVERED_TOGETHER`` of the evidence or one stem."""
        start, end = self._strongest.indptr[[concept, concept + 1]].tolist()
        documents, weights = self._strongest.indices[start:end], self._strongest.data[start:end]
        contained = self._terms.contained[documents]
        label: list[int] = []
        covered = np.zeros(documents.size, bool)
        for place in np.argsort(-scores, kind="stable")[:TRIED].tolist():
            if not scores[place] or len(label) == WORDS_PER_LABEL:
                break
            adds = (contained[:, [stems[place]]].toarray().ravel() > 0) & ~covered
            near = all(self._near(stems[place], stems[other]) for other in label)
            if near and weights[adds].sum() >= SHARED:
                label.append(place)
                covered |= adds
        evidence = self._evidence(concept, weights[covered].sum(), fired[label].sum())
        if len(label) < 2 or evidence < COVERED_TOGETHER:
            return ""
        return " ".join(self._spelled(concept, stems[place]) for place in label)

    def _evidence(self, concept: int, shares: Floats, fired: Floats) -> Floats:
        count = int(self._counts[concept])
        return (count * shares + OF_FIRING * np.minimum(fired, 1.0)) / (count + OF_FIRING)

    def _near(self, first: int, second: int) -> bool:
        """Return True if two stems have a common meaning, and not only a beginning."""
        words = self._terms.spelled[first], self._terms.spelled[second]
        vectors = self._firing.vectors
        return words[0][:2] != words[1][:2] and bool(vectors[first] @ vectors[second] >= COHERENT)

    def _spelled(self, concept: int, stem: int) -> str:
        """Return the stem's word with most firing of a concept, or else the commonest word."""
        place = int(self._firing.spelled[concept, stem])
        return self._firing.words[place - 1] if place else self._terms.spelled[stem]


def _strongest(tf: sp.csr_array) -> sp.csr_array:
    """Return the weights of each concept's strongest documents, which add up to 1 [M, D]."""
    columns = sp.csr_array(sp.csc_array(tf).T)
    concept = row_numbers(columns)
    order = np.lexsort((columns.indices, -columns.data, concept))
    order = order[ranks(concept[order]) < STRONGEST_DOCUMENTS]
    concept, weight = concept[order], columns.data[order].astype(np.float64)
    lengths = np.bincount(concept, minlength=tf.shape[1])
    totals = np.bincount(concept, weight, tf.shape[1])
    return csr_of_rows(weight / totals[concept], columns.indices[order], lengths, columns.shape)
