"""Words: texts as term counts over a vocabulary of stemmed words, or of character bigrams.

Tokens, stop words and stemming are those of bm25s and PyStemmer, so that BM25 scores agree.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import Stemmer
from bm25s import stopwords

from lexicept.errors import IndexFormatError, InputError
from lexicept.storage import TextStore, read_json, write_json

STEMMERS = {
    "ar": "arabic", "ca": "catalan", "da": "danish", "de": "german", "el": "greek",
    "en": "english", "es": "spanish", "et": "estonian", "eu": "basque", "fi": "finnish",
    "fr": "french", "ga": "irish", "hi": "hindi", "hu": "hungarian", "hy": "armenian",
    "id": "indonesian", "it": "italian", "lt": "lithuanian", "ne": "nepali", "nl": "dutch",
    "no": "norwegian", "pt": "portuguese", "ro": "romanian", "ru": "russian", "sr": "serbian",
    "sv": "swedish", "ta": "tamil", "tr": "turkish", "yi": "yiddish",
}  # fmt: skip
"""Language codes and their Snowball stemmers."""

STOP_WORDS: dict[str, tuple[str, ...]] = {
    "da": stopwords.STOPWORDS_DANISH, "de": stopwords.STOPWORDS_GERMAN,
    "en": stopwords.STOPWORDS_EN, "es": stopwords.STOPWORDS_SPANISH,
    "fr": stopwords.STOPWORDS_FRENCH, "it": stopwords.STOPWORDS_ITALIAN,
    "nl": stopwords.STOPWORDS_DUTCH, "no": stopwords.STOPWORDS_NORWEGIAN,
    "pt": stopwords.STOPWORDS_PORTUGUESE, "ru": stopwords.STOPWORDS_RUSSIAN,
    "sv": stopwords.STOPWORDS_SWEDISH, "tr": stopwords.STOPWORDS_TURKISH,
}  # fmt: skip

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


@dataclass(frozen=True)
class Tokenizer:
    """A text's terms, in order, for one language.

    Raises:
        InputError: a language without stemmer and bigrams.
    """

    language: str = "en"
    """ISO 639-1 code; see ``STEMMERS`` and ``BIGRAM_LANGUAGES``."""

    _stems: dict[str, str | None] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.language not in STEMMERS and self.language not in BIGRAM_LANGUAGES:
            known = ", ".join(sorted([*STEMMERS, *BIGRAM_LANGUAGES]))
            raise InputError(f"no language {self.language!r}, only: {known}")
        marks = _MARKS if self.language in _MARKED_LANGUAGES else ""
        # Without marks this is bm25s' pattern, on which the agreement of scores rests.
        pattern = rf"[\w{marks}]+" if self.bigrams else rf"(?<![\w{marks}])[\w{marks}]{{2,}}"
        object.__setattr__(self, "_split", re.compile(pattern).findall)
        stemmer = None if self.bigrams else Stemmer.Stemmer(STEMMERS[self.language])
        object.__setattr__(self, "_stemmer", stemmer)
        object.__setattr__(self, "_stop", frozenset(STOP_WORDS.get(self.language, ())))

    @property
    def bigrams(self) -> bool:
        """Whether this language is cut into character bigrams."""
        return self.language in BIGRAM_LANGUAGES

    def __call__(self, text: str) -> list[str]:
        tokens: list[str] = self._split(text.lower())  # type: ignore[attr-defined]
        if self.bigrams:
            return [term for token in tokens for term in _bigrams(token)]
        stems = self._stems
        terms = []
        for token in tokens:
            if token not in stems:
                stop = token in self._stop  # type: ignore[attr-defined]
                stems[token] = None if stop else self._stemmer.stemWord(token)  # type: ignore[attr-defined]
            if (stem := stems[token]) is not None:
                terms.append(stem)
        return terms


def _bigrams(token: str) -> list[str]:
    """Overlapping character pairs of spaceless scripts; what stands between them stays whole."""
    terms = []
    position = 0
    for run in _SPACELESS.finditer(token):
        if run.start() > position:
            terms.append(token[position : run.start()])
        characters = run.group()
        terms += [a + b for a, b in pairwise(characters)] or [characters]
        position = run.end()
    return terms + ([token[position:]] if position < len(token) else [])


class WordVectorizer:
    """Texts to term counts. The vocabulary grows with the documents and never forgets a term.

    Args:
        language: ISO 639-1 code of the tokenizer.
        terms: the vocabulary to start from, in the order of its dimensions.
    """

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
        """Term counts [n, size]; terms not seen before get new dimensions."""
        return self._counts(texts, lambda term: self._dimensions.setdefault(term, self.size))

    def queries(self, texts: Sequence[str]) -> sp.csr_array:
        """Term counts [n, size]; unknown terms are left out."""
        return self._counts(texts, self._dimensions.get)

    def _counts(self, texts: Sequence[str], dimension: Any) -> sp.csr_array:
        columns: list[int] = []
        indptr = [0]
        for text in texts:
            numbers = (dimension(term) for term in self.tokenizer(text))
            columns += [number for number in numbers if number is not None]
            indptr.append(len(columns))
        ones = np.ones(len(columns), np.float32)
        parts = (ones, np.array(columns, np.int32), np.array(indptr, np.int64))
        counts = sp.csr_array(parts, shape=(len(texts), self.size))
        counts.sum_duplicates()
        return counts

    def save(self, folder: Path) -> None:
        """Write the language and the terms into a folder."""
        write_json(folder / "tokenizer.json", {"language": self.tokenizer.language})
        TextStore.write(folder / "terms", self._dimensions)

    @classmethod
    def load(cls, folder: Path) -> WordVectorizer:
        """Read what ``save`` wrote. Raises IndexFormatError for anything else."""
        language = str(read_json(folder / "tokenizer.json").get("language"))
        try:
            return cls(language, TextStore(folder / "terms"))
        except InputError as error:
            raise IndexFormatError(f"{folder}: {error}") from None
