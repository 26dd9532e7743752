"""Words: texts as term counts over a vocabulary of stemmed words, or of character bigrams.

Tokens, stop words and stemming are those of bm25s and PyStemmer, so that BM25 scores agree.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import Stemmer

from lexicept.errors import IndexFormatError, InputError
from lexicept.explanation.contributions import Sources, Span, whole
from lexicept.storage.files import read_json, write_json
from lexicept.storage.texts import TextStore
from lexicept.vectorizers.interface import CountedPart, EncodedQuery
from lexicept.vectors import canonical_entries, row_numbers

STEMMERS = {
    "ar": "arabic", "ca": "catalan", "da": "danish", "de": "german", "el": "greek",
    "en": "english", "es": "spanish", "et": "estonian", "eu": "basque", "fi": "finnish",
    "fr": "french", "ga": "irish", "hi": "hindi", "hu": "hungarian", "hy": "armenian",
    "id": "indonesian", "it": "italian", "lt": "lithuanian", "ne": "nepali", "nl": "dutch",
    "no": "norwegian", "pt": "portuguese", "ro": "romanian", "ru": "russian", "sr": "serbian",
    "sv": "swedish", "ta": "tamil", "tr": "turkish", "yi": "yiddish",
}  # fmt: skip
"""Language codes and their Snowball stemmers."""


@cache
def stop_words(name: str) -> frozenset[str]:
    """Return the stop words of a language, an ISO 639-1 code, or ``en_plus``, a longer English
    list; empty without a list. They are those of bm25s 0.3 (MIT licence), so that scores agree."""
    lists = json.loads(Path(__file__).with_name("stop_words.json").read_text(encoding="utf-8"))
    return frozenset(lists.get(name, "").split())


BIGRAM_LANGUAGES = ("ja", "km", "ko", "lo", "my", "th", "zh")
"""Languages whose words are not set apart by spaces, or not cleanly: character bigrams."""

# Vowel signs and other marks of these scripts are part of a word, but not of Python's ``\w``.
_MARKS = (
    "\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed"  # Arabic
    "\u0900-\u0963\u0b82-\u0bd7"  # Devanagari and Tamil
    "\u0e31-\u0e4e\u0eb1-\u0ecd\u102b-\u103e\u17b4-\u17d3"  # Thai, Lao, Burmese, Khmer
)
_MARKED_LANGUAGES = ("ar", "hi", "ne", "ta", *BIGRAM_LANGUAGES)
_SPACELESS = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff]+"
)


Word = tuple[str, bool]
"""A word of a text, and whether it is a term."""

REMEMBERED = 2**18
"""Number of words with remembered stems: typically 40 MB, at most 150 MB."""

LONGEST_REMEMBERED = 40
"""Most characters of a word with a remembered stem: longer words are rare, unless sent on
purpose."""


class Tokenizer:
    """A text's terms, in order, for one language: an ISO 639-1 code of ``STEMMERS`` or
    ``BIGRAM_LANGUAGES``. Raises InputError for other languages."""

    def __init__(self, language: str = "en") -> None:
        if language not in STEMMERS and language not in BIGRAM_LANGUAGES:
            languages = ", ".join(sorted([*STEMMERS, *BIGRAM_LANGUAGES]))
            raise InputError(f"no language {language!r}, only: {languages}")
        self.language = language
        self.bigrams = language in BIGRAM_LANGUAGES
        """True if this language is cut into character bigrams."""
        marks = _MARKS if language in _MARKED_LANGUAGES else ""
        self._every = re.compile(rf"[\w{marks}]+")
        # Without marks this is bm25s' pattern, on which the agreement of scores rests.
        words = re.compile(rf"(?<![\w{marks}])[\w{marks}]{{2,}}")
        self._pattern = self._every if self.bigrams else words
        # Without the stemmer's own cache, which keeps long words too.
        self._stemmer: Any = None if self.bigrams else Stemmer.Stemmer(STEMMERS[language], 0)
        self._stop = stop_words(language)
        self._stems: dict[str, str | None] = {}

    def __call__(self, text: str) -> list[str]:
        if self.bigrams:
            return self.split(text)
        terms = []
        # A loop: a comprehension would be a frame more on the way of every search.
        for token in self._pattern.findall(text.lower()):
            if (stem := self._stem(token)) is not None:
                terms.append(stem)
        return terms

    def spans(self, text: str) -> Iterator[tuple[str, Span]]:
        """Yield the terms in order, each with the characters in the text."""
        lower = text.lower()
        # In lower case a character may be two, as the Turkish İ is.
        origin: Sequence[int] = range(len(text))
        if len(lower) != len(text):
            origin = [i for i, character in enumerate(text) for _ in character.lower()]
        for match in self._pattern.finditer(lower):
            token, first = match.group(), match.start()
            pieces = _bigrams(token) if self.bigrams else [(0, len(token))]
            for start, end in pieces:
                term = token[start:end] if self.bigrams else self._stem(token)
                if term is not None:
                    yield term, whole(text, origin[first + start], origin[first + end - 1] + 1)

    def split(self, text: str) -> list[str]:
        """Return every word of a text in order, in lower case; bigrams of spaceless scripts."""
        tokens: list[str] = self._every.findall(text.lower())
        if self.bigrams:
            return [token[start:end] for token in tokens for start, end in _bigrams(token)]
        return tokens

    def sequence(self, text: str, known: dict[str, Word] | None = None) -> list[Word]:
        """Return every word of a text in order, marked as a term or not. Terms are stemmed; stop
        words and single letters, which are no terms, keep the spelling. ``known`` caches words."""
        tokens = self.split(text)
        if self.bigrams:
            return [(token, True) for token in tokens]
        known = {} if known is None else known
        for token in set(tokens).difference(known):
            stem = self._stem(token) if len(token) > 1 else None
            known[token] = (token, False) if stem is None else (stem, True)
        return [known[token] for token in tokens]

    def _stem(self, token: str) -> str | None:
        """Return the stem of a word; None for a stop word."""
        stem = self._stems.get(token, "")
        if stem == "":  # not seen yet: no stem is empty
            stem = None if token in self._stop else self._stemmer.stemWord(token)
            if len(token) <= LONGEST_REMEMBERED:
                if len(self._stems) >= REMEMBERED:  # a server sees new words for ever
                    self._stems.clear()
                self._stems[token] = stem
        return stem


def _bigrams(token: str) -> list[tuple[int, int]]:
    """Return the places of overlapping character pairs of spaceless scripts, and of each stretch
    between."""
    places = []
    position = 0
    for run in _SPACELESS.finditer(token):
        first, last = run.span()
        if first > position:
            places.append((position, first))
        places += [(i, i + 2) for i in range(first, last - 1)] or [(first, last)]
        position = last
    return places + ([(position, len(token))] if position < len(token) else [])


class WordVectorizer:
    """Texts to term counts. The vocabulary starts from ``terms`` in the order of dimensions, grows
    with the documents and never forgets a term."""

    name = "words"
    grows = True

    def __init__(self, language: str = "en", terms: Iterable[str] = ()) -> None:
        self.tokenizer = Tokenizer(language)
        self._dimensions = {term: number for number, term in enumerate(terms)}

    @property
    def size(self) -> int:
        """Number of terms."""
        return len(self._dimensions)

    @property
    def terms(self) -> list[str]:
        """The stem or bigram of every dimension."""
        return list(self._dimensions)

    def documents(self, texts: Sequence[str]) -> sp.csr_array:
        """Return term counts [n, size]; new terms get new dimensions."""
        return self._counts(texts, lambda term: self._dimensions.setdefault(term, self.size))

    def part_counter(self) -> Callable[[Sequence[str]], CountedPart]:
        """Return ``count_part`` for this language."""
        return partial(count_part, self.tokenizer.language)

    def join(self, part: CountedPart) -> sp.csr_array:
        """Return term counts [n, size] of documents that were counted elsewhere, as ``documents``
        does; new terms get new dimensions."""
        dimensions = self._dimensions
        # Terms of a part come in order of occurrence, so that numbers are those of one process.
        numbers = [dimensions.setdefault(term, len(dimensions)) for term in part.terms]
        indices = np.array(numbers, np.int32)[part.tf.indices]
        order = np.lexsort((indices, row_numbers(part.tf)))
        return canonical_entries(part.tf.data[order], indices[order], part.tf.indptr, self.size)

    def queries(self, texts: Sequence[str]) -> sp.csr_array:
        """Return term counts [n, size]; unknown terms are left out."""
        return self._counts(texts, self._dimensions.get)

    def encode_query(self, text: str) -> EncodedQuery:
        """Return a query's tf; its sources are all occurrences of its terms."""
        return EncodedQuery(
            self.queries([text]), lambda dimensions: self._occurrences(text, dimensions)
        )

    def document_sources(
        self, texts: Sequence[str], dimensions: Sequence[Sequence[int]]
    ) -> list[dict[int, Sources]]:
        """Return all occurrences of the terms in each document."""
        return [self._occurrences(text, of) for text, of in zip(texts, dimensions, strict=True)]

    def dimension(self, term: str) -> int | None:
        """Return the dimension of a term; None for an unknown one."""
        return self._dimensions.get(term)

    def terms_in(self, text: str) -> Iterator[tuple[int | None, Span]]:
        """Yield the dimension of each term, None for an unknown one, and its characters."""
        for term, span in self.tokenizer.spans(text):
            yield self._dimensions.get(term), span

    def _occurrences(self, text: str, dimensions: Sequence[int]) -> dict[int, Sources]:
        spans: dict[int, list[Span]] = {dimension: [] for dimension in dimensions}
        for dimension, span in self.terms_in(text):
            if dimension is not None and dimension in spans:
                spans[dimension].append(span)
        return {dimension: Sources.alike(occurrences) for dimension, occurrences in spans.items()}

    def _counts(self, texts: Sequence[str], dimension: Any) -> sp.csr_array:
        columns: list[int] = []
        counts: list[int] = []
        indptr = [0]
        for text in texts:
            tf = Counter(map(dimension, self.tokenizer(text)))
            tf.pop(None, None)
            for number, count in sorted(tf.items()):
                columns.append(number)
                counts.append(count)
            indptr.append(len(columns))
        data, indices = np.array(counts, np.float32), np.array(columns, np.int32)
        return canonical_entries(data, indices, np.array(indptr, np.int32), self.size)

    def save(self, folder: Path) -> None:
        """Write the language and the terms into a folder."""
        write_json(folder / "tokenizer.json", {"language": self.tokenizer.language})
        TextStore.write(folder / "terms", self._dimensions)

    @classmethod
    def load(cls, folder: Path) -> WordVectorizer:
        """Read the files of ``save``. Raises IndexFormatError for damaged files."""
        language = str(read_json(folder / "tokenizer.json").get("language"))
        try:
            return cls(language, TextStore(folder / "terms"))
        except InputError as error:
            raise IndexFormatError(f"{folder}: {error}") from None


def count_part(language: str, texts: Sequence[str]) -> CountedPart:
    """Count texts over their own words."""
    words = WordVectorizer(language)
    tf = words.documents(texts)
    return CountedPart(words.terms, tf)
