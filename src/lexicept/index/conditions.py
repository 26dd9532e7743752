"""The documents that meet a query's conditions: phrases, words to leave out, and fields."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import lru_cache, partial, reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from lexicept.engines import PostingsEngine
from lexicept.engines.mask import Mask
from lexicept.errors import InputError
from lexicept.fields.filters import Expression, Filter, all_of, parse
from lexicept.index.loaded import LoadedVectorizers
from lexicept.index.masks import KEPT, Masks
from lexicept.index.stored import StoredDocuments
from lexicept.queries.syntax import ParsedQuery
from lexicept.vectorizers.words import Tokenizer, Word, WordVectorizer
from lexicept.vectors import Integers

READ = 64
"""Documents that are read for a phrase before other threads may use the words' vectorizer."""

Passing = npt.NDArray[np.bool_]


class Conditions:
    """The masks of queries' conditions over an index; those of the last ones are kept.

    Args:
        words: the dimensions of the words; None for an index without.
    """

    def __init__(
        self,
        stored: StoredDocuments,
        masks: Masks,
        engine: PostingsEngine,
        vectorizers: LoadedVectorizers,
        words: slice | None,
    ) -> None:
        phrases = _Phrases(stored, engine, vectorizers, words)
        # Not a method: the cycle would keep the index, and its generation, for longer.
        self._of = lru_cache(KEPT)(partial(_mask, phrases, masks, stored))
        self._masks = masks

    def of(self, query: ParsedQuery, given: Filter | None) -> Mask | None:
        """Return the documents that meet a query's conditions and a filter; None without any.

        Raises:
            InputError: a filter or a condition that does not fit the fields, a phrase or an
                excluded word that can't be looked up, or no such hidden document.
        """
        parts = [] if query.condition is None else [query.condition]
        if given is not None:
            parts.append(parse(given))
        expression = all_of(parts) if parts else None
        if not (query.phrases or query.without or query.hidden):
            return None if expression is None else self._masks.matching(expression)
        return self._of(query.phrases, query.without, query.hidden, expression)


def alike(queries: Sequence[ParsedQuery]) -> list[list[int]]:
    """Return the places of queries, those with the same conditions together."""
    groups: dict[object, list[int]] = {}
    for place, query in enumerate(queries):
        groups.setdefault(query.conditions, []).append(place)
    return list(groups.values())


def _mask(
    phrases: _Phrases,
    masks: Masks,
    stored: StoredDocuments,
    wanted: Iterable[str],
    unwanted: Iterable[str],
    hidden: Iterable[str],
    expression: Expression | None,
) -> Mask:
    allowed = np.ones(len(stored.ids), bool)
    if expression is not None:
        allowed &= masks.matching(expression).allowed
    for name in hidden:
        rows = stored.rows(name)
        if rows is None:
            raise InputError(f"no document {name!r} to hide")
        allowed[rows.start : rows.stop] = False
    for text in wanted:
        allowed = phrases.found(text, allowed)
    for text in unwanted:
        # No passage of a document may have it.
        everywhere = np.ones(len(stored.ids), bool)
        allowed &= ~stored.passages.whole(phrases.found(text, everywhere))
    return Mask(allowed)


class _Phrases:
    """Documents that have phrases."""

    def __init__(
        self,
        stored: StoredDocuments,
        engine: PostingsEngine,
        vectorizers: LoadedVectorizers,
        words: slice | None,
    ) -> None:
        self._stored, self._engine, self._words = stored, engine, words
        self._vectorizers = vectorizers

    def found(self, text: str, among: Passing) -> Passing:
        """Return which of some documents have all words of a text side by side [N].

        The words are those of the index's analyser: stems, so that "sleeping cats" is found where
        "sleep, cat" stands. Stop words and single letters have to be there as they are spelled. A
        phrase lies in the title or in the text, not across their border.

        Raises:
            InputError: the index has no words, or the phrase has no word that is searched.
        """
        if self._words is None:
            raise InputError(
                f"{text!r:.80}: exact phrases and excluded words need an index with words"
            )
        words = self._vectorizers.get("words")
        assert isinstance(words, WordVectorizer)
        with self._vectorizers.lock("words"):
            wanted = words.tokenizer.sequence(text)
            dimensions = [words.dimension(term) for term, searched in wanted if searched]
        if not dimensions:
            problem = "has no word that is searched: stop words and single letters are not"
            raise InputError(f"the phrase {text!r:.80} {problem}")
        if None in dimensions:
            return np.zeros(among.size, bool)
        candidates = reduce(np.logical_and, map(self._having, dimensions), among)
        if len(wanted) > 1:
            candidates = self._verified(words.tokenizer, wanted, np.flatnonzero(candidates))
        return candidates

    def _having(self, dimension: Any) -> Passing:
        """Return whether each document has a word [N]."""
        assert self._words is not None
        place = self._words.start + dimension
        having = np.zeros(self._engine.num_documents, bool)
        having[self._engine.postings(slice(place, place + 1))[0]] = True
        return having

    def _verified(self, tokenizer: Tokenizer, wanted: list[Word], numbers: Integers) -> Passing:
        having = np.zeros(self._engine.num_documents, bool)
        known: dict[str, Word] = {}
        for start in range(0, numbers.size, READ):
            with self._vectorizers.lock("words"):
                for number in numbers[start : start + READ].tolist():
                    parts = (self._stored.titles[number], self._stored.texts[number])
                    read = (tokenizer.sequence(part, known) for part in parts)
                    having[number] = any(_within(wanted, words) for words in read)
        return having


def _within(wanted: list[Word], words: list[Word]) -> bool:
    """Return whether some words stand side by side in others."""
    count, place = len(wanted), -1
    with suppress(ValueError):  # the first word does not occur again
        while True:
            place = words.index(wanted[0], place + 1)
            if words[place : place + count] == wanted:
                return True
    return False
