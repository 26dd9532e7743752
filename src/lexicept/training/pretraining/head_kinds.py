"""Kinds of language heads: a kind is a name in ``LanguageHead`` and a line in ``HEAD_KINDS``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from lexicept.neural.heads.vocabulary import VocabularyHead

LanguageHead = Literal["mlm", "expanded", "random"]
Masking = Literal["subwords", "words", "mntp", "causal"]

SUBWORD_MASKINGS: tuple[Masking, ...] = ("subwords", "mntp", "causal")


class HeadVocabulary(NamedTuple):
    """The dimensions of a new head."""

    terms: Sequence[str]
    subwords: Sequence[Sequence[int]] | None = None
    """Sub-words of each term, for terms that are words."""


def expanded_head(head: VocabularyHead, vocabulary: HeadVocabulary, seed: int) -> VocabularyHead:
    """Return a head over words, with means over sub-words (ESPLADE, 3.1.3)."""
    assert vocabulary.subwords is not None
    return head.expanded(vocabulary.subwords, vocabulary.terms)


def random_head(head: VocabularyHead, vocabulary: HeadVocabulary, seed: int) -> VocabularyHead:
    """Return a head of random rows over any terms."""
    random = head.random(len(vocabulary.terms), seed)
    return head.with_rows(random.rows, random.bias, vocabulary.terms)


class HeadKind(NamedTuple):
    """A kind of language head."""

    make: Callable[[VocabularyHead, HeadVocabulary, int], VocabularyHead]
    """(the backbone's own head, the new dimensions, a seed) → the head to train."""
    dimensions: Literal["subwords", "words", "numbers"]
    """Dimensions in training for ranking; words and numbers need ``model.size``."""
    maskings: tuple[Masking, ...]
    """Maskings of pretraining, the default first."""


HEAD_KINDS: dict[LanguageHead, HeadKind] = {
    "mlm": HeadKind(lambda head, vocabulary, seed: head, "subwords", SUBWORD_MASKINGS),
    "expanded": HeadKind(expanded_head, "words", ("words",)),
    "random": HeadKind(random_head, "numbers", (*SUBWORD_MASKINGS, "words")),
}
