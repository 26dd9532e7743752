"""Masks of documents for a query's conditions: phrases, excluded words, fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache

import numpy as np

from lexicept.checks import Count, check
from lexicept.encoding.words import Tokenizer, Word, WordVectorizer
from lexicept.engines import PostingsEngine
from lexicept.engines.mask import Mask
from lexicept.errors import InputError
from lexicept.fields.columns import FieldColumn, FieldColumns, ValueCount
from lexicept.fields.filters import Condition, Filter, parse
from lexicept.fields.matching import Flags, matching
from lexicept.index.passages import Passages
from lexicept.index.query_encoders import VocabularyEncoder
from lexicept.index.stored import StoredDocuments
from lexicept.queries.syntax import Conditions
from lexicept.vectors import Integers

CACHED_MASKS = 16
"""Masks that are kept in memory, at a byte per document."""

FEW_VALUES = 50
"""Most distinct values of a field that is offered for filters although values hardly repeat."""

LONG_TEXT = 100
"""Most bytes of the mean text of a field that is offered for filters."""


class FieldMasks:
    """Masks of filters over the fields of an index, with a small cache."""

    def __init__(self, columns: FieldColumns, passages: Passages) -> None:
        # Not a method: the cycle would keep the index, and its generation, for longer.
        self.matching = lru_cache(CACHED_MASKS)(lambda entry: Mask(matching(entry, columns)))
        """Function from an expression to its mask; raises InputError where the fields differ."""
        self._columns, self._passages = columns, passages

    def of(self, filter: Filter | None) -> Mask | None:  # noqa: A002
        """Return the mask of a filter, if any; InputError for one that does not fit the fields."""
        return None if filter is None else self.matching(parse(filter))

    def having(self, name: str) -> int:
        """Return the number of documents with a field."""
        return self.num_documents(self.matching(Condition(name, "exists", ())))

    @cached_property
    def offered(self) -> list[str]:
        """Fields to offer for filters: no long texts, nor texts and numbers that hardly repeat."""
        return [name for name in self._columns if self._is_offered(self._columns[name])]

    def _is_offered(self, column: FieldColumn) -> bool:
        if column.type.name == "date":
            return True
        terms, present = column.terms, column.present
        distinct = np.unique(column.values[present]).size if terms is None else len(terms)
        lengths = present if column.offsets is None else np.diff(column.offsets)
        repeated = 2 * distinct <= lengths[self._passages.firsts].sum()
        long = terms and distinct and terms.encoded(0, distinct)[1].mean() > LONG_TEXT
        return bool(not long and (repeated or distinct <= FEW_VALUES))

    def num_documents(self, mask: Mask) -> int:
        """Return the number of documents with an allowed passage."""
        if not len(self._passages):
            return mask.count
        return int(np.count_nonzero(self._passages.per_document(mask.allowed)))

    def counts(
        self, names: Sequence[str], mask: Mask | None, most: int
    ) -> dict[str, list[ValueCount]]:
        """Return the most frequent values of fields among the documents of a mask. Raises
        InputError for an unknown field, or ``most`` below 1."""
        check("most", most, Count)
        listed = isinstance(names, Sequence) and not isinstance(names, str)
        if not listed or not all(isinstance(name, str) for name in names):
            raise InputError(f"fields must be a list of names, not {names!r:.80}")
        for name in names:
            if name not in self._columns:
                names_of_fields = ", ".join(self._columns) or "none"
                raise InputError(f"there is no field {name!r}, only: {names_of_fields}")
        everything = np.ones(self._columns.num_documents, bool)
        allowed = self._passages.per_document(everything if mask is None else mask.allowed)
        return {name: self._columns[name].most_frequent(allowed, most) for name in names}


def positions_by_mask(masks: Sequence[Mask | None]) -> list[tuple[Mask | None, list[int]]]:
    """Return each mask once, with the mask's positions in the list."""
    groups: dict[int, tuple[Mask | None, list[int]]] = {}
    for position, mask in enumerate(masks):
        groups.setdefault(id(mask), (mask, []))[1].append(position)
    return list(groups.values())


class ConditionMasks:
    """Finds the documents that meet the conditions of a query."""

    def __init__(
        self,
        stored: StoredDocuments,
        field_masks: FieldMasks,
        engine: PostingsEngine,
        encoders: Mapping[str, VocabularyEncoder],
    ) -> None:
        self._stored, self._field_masks, self._engine = stored, field_masks, engine
        self._words = encoders.get("words")

    def of(self, query: Conditions) -> Mask:
        """Return the mask of the documents that meet conditions. Raises InputError for a condition
        that does not fit the fields, a phrase without a searched word, or an unknown hidden
        document."""
        allowed = np.ones(len(self._stored.ids), bool)
        if (expression := query.expression) is not None:
            fitting = self._field_masks.matching(expression)
            if not (query.phrases or query.without or query.hidden):
                return fitting
            allowed &= fitting.allowed
        for document_id in query.hidden:
            passages = self._stored.entries_of(document_id)
            if passages is None:
                raise InputError(f"no document {document_id!r} to hide")
            allowed[passages.start : passages.stop] = False
        for text in query.phrases:
            allowed = self._containing(text, allowed)
        for text in query.without:
            # No passage of a document may have it.
            everywhere = np.ones(len(self._stored.ids), bool)
            allowed &= ~self._stored.passages.whole(self._containing(text, everywhere))
        return Mask(allowed)

    def _containing(self, text: str, candidates: Flags) -> Flags:
        """Return the candidates with all words of a text side by side [N].

        The words are the analyser's: stems, so that "sleeping cats" matches "sleep, cat". Stop
        words and single letters have to be spelled alike. A phrase lies in the title or in the
        text, not across the border. Raises InputError if the index has no words, or the phrase no
        searched word.
        """
        if self._words is None:
            raise InputError(
                f"{text!r:.80}: exact phrases and excluded words need an index with words"
            )
        vectorizer = self._words.get()
        assert isinstance(vectorizer, WordVectorizer)
        phrase = vectorizer.tokenizer.sequence(text)
        dimensions = [vectorizer.dimension(term) for term, searched in phrase if searched]
        if not dimensions:
            problem = "has no word that is searched: stop words and single letters are not"
            raise InputError(f"the phrase {text!r:.80} {problem}")
        # Documents without one of the words are left out before any text is read.
        for dimension in dimensions:
            having = np.zeros(candidates.size, bool)
            if dimension is not None:
                global_dimension = np.array([self._words.vocabulary.dimensions.start + dimension])
                having[self._engine.posting_lists(global_dimension).documents] = True
            candidates = candidates & having
        if len(phrase) > 1:
            candidates = self._verified(vectorizer.tokenizer, phrase, np.flatnonzero(candidates))
        return candidates

    def _verified(self, tokenizer: Tokenizer, phrase: list[Word], candidates: Integers) -> Flags:
        """Return the candidates with the phrase in the title or text [N]."""
        having = np.zeros(self._engine.num_documents, bool)
        analysed: dict[str, list[Word]] = {}
        for number in candidates.tolist():
            texts = (self._stored.titles[number], self._stored.texts[number])
            sequences = (tokenizer.sequence(text, analysed) for text in texts)
            having[number] = any(_contains(words, phrase) for words in sequences)
        return having


def _contains(words: list[Word], phrase: list[Word]) -> bool:
    """Return True if the words of a phrase stand side by side in a text."""
    count, position = len(phrase), -1
    with suppress(ValueError):  # the first word does not occur again
        while True:
            position = words.index(phrase[0], position + 1)
            if words[position : position + count] == phrase:
                return True
    return False
