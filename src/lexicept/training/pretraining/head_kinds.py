"""Kinds of language heads, and the maskings that go with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from lexicept.neural.heads.vocabulary import VocabularyHead

LanguageHead = Literal["mlm", "expanded", "random"]
Masking = Literal["subwords", "words", "mntp", "causal"]

MASKINGS: dict[LanguageHead, tuple[Masking, ...]] = {
    "mlm": ("subwords", "mntp", "causal"),
    "expanded": ("words",),
    "random": ("subwords", "mntp", "causal", "words"),
}
"""Maskings of each kind of head, the default first."""


def new_head(
    kind: LanguageHead,
    own_head: VocabularyHead,
    terms: Sequence[str],
    subwords: Sequence[Sequence[int]] | None,
    seed: int,
) -> VocabularyHead:
    """Return the head to train: the backbone's own head; for ``expanded``, a head over words with
    means over their sub-words as rows (ESPLADE, 3.1.3); or random rows over any terms."""
    if kind == "mlm":
        return own_head
    if kind == "expanded":
        assert subwords is not None
        return own_head.expanded(subwords, terms)
    random = own_head.random(len(terms), seed)
    return own_head.with_rows(random.rows, random.bias, terms)
