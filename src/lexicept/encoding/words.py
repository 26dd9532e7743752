"""Words: texts as term counts over a vocabulary of stemmed words, or of character bigrams.

Stop words and stemming are those of bm25s and PyStemmer, and texts in ASCII have the words of
bm25s, so that BM25 scores agree.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache, partial
from pathlib import Path
from threading import Lock
from typing import Any
from unicodedata import normalize

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import Stemmer

from lexicept.encoding.vectorizer import CountedPart, EncodedQuery
from lexicept.errors import IndexFormatError, InputError
from lexicept.explanation.contributions import Sources, Span, whole
from lexicept.fields.normal_forms import (
    normal,
    origins,
    pattern,
    without_optional,
    word_matches,
    words_of,
)
from lexicept.storage.files import read_json, write_json
from lexicept.storage.texts import TextStore
from lexicept.vectors import canonical_entries

STEMMERS = {
    "ar": "arabic", "ca": "catalan", "cs": "czech", "da": "danish", "de": "german", "el": "greek",
    "en": "english", "eo": "esperanto", "es": "spanish", "et": "estonian", "eu": "basque",
    "fa": "persian", "fi": "finnish", "fr": "french", "ga": "irish", "hi": "hindi",
    "hu": "hungarian", "hy": "armenian", "id": "indonesian", "it": "italian", "lt": "lithuanian",
    "nb": "norwegian", "ne": "nepali", "nl": "dutch", "nn": "norwegian", "no": "norwegian",
    "pl": "polish", "pt": "portuguese", "ro": "romanian", "ru": "russian", "sr": "serbian",
    "st": "sesotho", "sv": "swedish", "ta": "tamil", "tr": "turkish", "yi": "yiddish",
}  # fmt: skip
"""Language codes and their Snowball stemmers."""

LANGUAGES = frozenset(
    """
    aa ab ae af ak am an ar as av ay az ba be bg bi bm bn bo br bs ca ce ch co cr cs cu cv cy da
    de dv dz ee el en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy
    hz ia id ie ig ii ik io is it iu ja jv ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg
    li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne ng nl nn no nr nv ny oc oj om or
    os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg si sk sl sm sn so sq sr ss st su sv sw ta
    te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu
    """.split()  # noqa: SIM905
)
"""Language codes of ISO 639-1."""


@cache
def stop_words(name: str) -> frozenset[str]:
    """Return the stop words of a language, an ISO 639-1 code, or ``en_plus``, a longer English
    list; empty without a list. They are those of bm25s 0.3 (MIT licence), so that scores agree."""
    lists = json.loads(Path(__file__).with_name("stop_words.json").read_text(encoding="utf-8"))
    return frozenset(lists.get("no" if name in ("nb", "nn") else name, "").split())


QUERY_STOP_WORDS = {"en": "en_plus"}
"""Languages with a longer list, for queries: questions have function words that no document needs,
such as how, do and what."""

BIGRAM_LANGUAGES = ("ii", "ja", "km", "ko", "lo", "my", "th", "zh")
"""Languages whose words are not set apart by spaces, or not cleanly: character bigrams."""

_SPACELESS = (
    r"[[\p{Han}\p{scx=Hiragana}\p{scx=Katakana}\p{Hangul}\p{Yi}"
    r"\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Line_Break=Complex_Context}]--\p{Nd}]+"
)

# Words of texts in ASCII. Without single letters, they are bm25s' words.
_ASCII = re.compile(r"\w+")
_ASCII_WORDS = re.compile(r"(?<!\w)\w{2,}")

Word = tuple[str, bool]
"""A word of a text, and whether it is a term."""

REMEMBERED = 2**18
"""Number of words with remembered stems: typically 40 MB, at most 150 MB."""

LONGEST_REMEMBERED = 40
"""Most characters of a word with a remembered stem: longer words are rare, or sent on purpose."""


def missing_analysis(language: str) -> str:
    """Return a sentence on the stemmer or stop words that a language lacks; "" if it needs none."""
    if language in BIGRAM_LANGUAGES:
        return ""
    available = {"stemmer": language in STEMMERS, "stop words": bool(stop_words(language))}
    missing = " and no ".join(name for name in available if not available[name])
    return f"no {missing} for the language {language!r}" if missing else ""


def check_language(language: str) -> None:
    """Raise InputError for a code that is not in ISO 639-1, with the nearest code."""
    if language in LANGUAGES:
        return
    codes = {name: code for code, name in STEMMERS.items()} | {code: code for code in LANGUAGES}
    near = get_close_matches(str(language).lower(), sorted(codes), 1, 0.3)
    nearest = f"; the nearest is {codes[near[0]]!r}" if near else ""
    raise InputError(f"no language {language!r:.40}: a code of ISO 639-1, such as 'en'{nearest}")


class Tokenizer:
    """A text's terms, in order, for one language: a code of ISO 639-1. Raises InputError for other
    languages.

    Terms are made of words in normal form (see ``form``; NFKC, case folded by the language's
    rules), without single letters.

    Args:
        other_stop_words: words that are no terms, beyond the language's stop words.
    """

    def __init__(self, language: str = "en", other_stop_words: Iterable[str] = ()) -> None:
        check_language(language)
        self.language = language
        self.bigrams = language in BIGRAM_LANGUAGES
        """True if this language is cut into character bigrams."""
        # Without the stemmer's own cache, which keeps long words too.
        stemmer = Stemmer.Stemmer(STEMMERS[language], 0) if language in STEMMERS else None
        self._stemmer: Any = stemmer
        self._lock = Lock()  # threads share a tokenizer, but a stemmer is for one at a time
        self._dotless = language in ("az", "tr")
        self._stop = frozenset(map(self.form, [*stop_words(language), *other_stop_words]))
        self._stems: dict[str, str | list[str] | None] = {}

    def __call__(self, text: str) -> list[str]:
        if self.bigrams:
            return self.split(text)
        terms: list[str] = []
        # A loop: a comprehension would be a frame more on the way of every search.
        for token in self._tokens(text, _ASCII_WORDS):
            stem = self._stem(token)
            if type(stem) is str:
                terms.append(stem)
            elif stem is not None:
                terms.extend(stem)
        return terms

    def counts(self, text: str) -> dict[str, int]:
        """Return how often each term occurs, in the order of their first occurrences."""
        if self.bigrams:
            return Counter(self.split(text))
        counts: dict[str, int] = {}
        # Each distinct word is stemmed once: half of a text's words are repetitions.
        for token, count in Counter(self._tokens(text, _ASCII_WORDS)).items():
            stem = self._stem(token)
            for term in (stem,) if type(stem) is str else stem or ():
                counts[term] = counts.get(term, 0) + count
        return counts

    def form(self, text: str) -> str:
        """Return the normal form of a text: no case, no optional vowel points, digits 0 to 9."""
        text = without_optional(normal(text))
        if self._dotless:
            text = text.replace("I", "ı")
        if text.isascii():
            return text.lower()
        # A single letter stays one, as ß does in bm25s.
        text = text.casefold() if len(text) > 1 else text.lower()
        # İ, and an accented i in Lithuanian, have a second dot in lower case.
        return normalize("NFC", text.replace("i\u0307", "i"))

    def spans(self, text: str) -> Iterator[tuple[str, Span]]:
        """Yield the terms in order, each with the characters in the text."""
        for match in word_matches(text):
            token, first = match.group(), match.start()
            form = self.form(token)
            origin = [(i, i + 1) for i in range(len(token))]
            if not token.isascii() and form != token:
                origin = origins(token, self.form)
            for start, end in self._pieces(form):
                term = form[start:end] if self.bigrams else self._term(form[start:end])
                if term is not None:
                    yield term, whole(text, first + origin[start][0], first + origin[end - 1][1])

    def split(self, text: str) -> list[str]:
        """Return every word of a text in order, in normal form; bigrams of spaceless scripts."""
        words: list[str] = []
        for token in self._tokens(text, _ASCII):
            words += self._words(token)
        return words

    def sequence(self, text: str, known: dict[str, list[Word]] | None = None) -> list[Word]:
        """Return every word of a text in order, marked as a term or not. Terms are stemmed; stop
        words and single letters, which are no terms, keep the spelling. ``known`` caches words."""
        tokens = self._tokens(text, _ASCII)
        known = {} if known is None else known
        for token in set(tokens).difference(known):
            known[token] = [self._word(word) for word in self._words(token)]
        return [word for token in tokens for word in known[token]]

    def _tokens(self, text: str, ascii_words: re.Pattern[str]) -> list[str]:
        """Return the words of a text, in ASCII in lower case, otherwise as they are written."""
        if text.isascii() and not (self._dotless and "I" in text):
            return ascii_words.findall(text.lower())
        return words_of(text)

    def _words(self, token: str) -> list[str]:
        """Return the words or bigrams in the normal form of a word."""
        form = self.form(token)
        return [form[start:end] for start, end in self._pieces(form)]

    def _pieces(self, form: str) -> list[tuple[int, int]]:
        """Return the spans of words or bigrams in a word's normal form, which may be several."""
        if form.isascii() and form.isalnum():
            return [(0, len(form))]
        words = [match.span() for match in word_matches(form)]
        if not self.bigrams:
            return words
        pieces = []
        for start, end in words:
            pieces += [(start + first, start + last) for first, last in _bigrams(form[start:end])]
        return pieces

    def _word(self, word: str) -> Word:
        term = word if self.bigrams else self._term(word)
        return (word, False) if term is None else (term, True)

    def _term(self, word: str) -> str | None:
        """Return the stem of a word in normal form; None for a stop word or a single letter."""
        if len(word) < 2 or word in self._stop:
            return None
        if self._stemmer is None:
            return word
        with self._lock:
            stem: str = self._stemmer.stemWord(word)
        return stem

    def _stem(self, token: str) -> str | list[str] | None:
        """Return the term of a word; None or a list if its normal form has none or several."""
        stem = self._stems.get(token, "")
        if stem == "":  # not seen yet: no stem is empty
            terms = [term for word in self._words(token) if (term := self._term(word)) is not None]
            stem = terms if len(terms) > 1 else terms[0] if terms else None
            if len(token) <= LONGEST_REMEMBERED:
                if len(self._stems) >= REMEMBERED:  # a server sees new words for ever
                    self._stems.clear()
                self._stems[token] = stem
        return stem


def _bigrams(token: str) -> list[tuple[int, int]]:
    """Return the spans of overlapping character pairs of spaceless scripts, and of each stretch
    between."""
    spans = []
    position = 0
    for run in pattern(_SPACELESS).finditer(token):
        first, last = run.span()
        if first > position:
            spans.append((position, first))
        spans += [(i, i + 2) for i in range(first, last - 1)] or [(first, last)]
        position = last
    return spans + ([(position, len(token))] if position < len(token) else [])


class WordVectorizer:
    """Texts to term counts. The vocabulary grows with the documents and never forgets a term.

    Args:
        terms: the first terms, in the order of dimensions.
        query_stop_words: a list of ``stop_words`` that are no terms of queries either, unless a
            query has nothing else.
    """

    name = "words"
    grows = True

    def __init__(
        self, language: str = "en", terms: Iterable[str] = (), query_stop_words: str = ""
    ) -> None:
        self.tokenizer = Tokenizer(language)
        self.query_stop_words = query_stop_words
        self._for_queries = self.tokenizer
        if query_stop_words:
            if not stop_words(query_stop_words):
                raise InputError(f"no list of stop words {query_stop_words!r:.40}")
            self._for_queries = Tokenizer(language, stop_words(query_stop_words))
        self._dimensions = {term: number for number, term in enumerate(terms)}

    @property
    def size(self) -> int:
        return len(self._dimensions)

    @property
    def terms(self) -> list[str]:
        """The stem or bigram of every dimension."""
        return list(self._dimensions)

    def documents(self, texts: Sequence[str]) -> sp.csr_array:
        """Return term counts [n, size]; new terms get new dimensions."""
        dimensions = self._dimensions
        entries = _entries(
            {dimensions.setdefault(term, len(dimensions)): count for term, count in tf.items()}
            for tf in map(self.tokenizer.counts, texts)
        )
        return _sorted_rows(*entries, self.size)

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
        return _sorted_rows(part.tf.data, indices, part.tf.indptr, self.size)

    def queries(self, texts: Sequence[str]) -> sp.csr_array:
        """Return term counts [n, size]; unknown terms are left out."""
        rows: list[dict[int, int]] = []
        # A loop: in Python 3.11, comprehensions would be frames more on the way of every search.
        for text in texts:
            row: dict[int, int] = {}
            for term in self._for_queries(text) or self.tokenizer(text):
                if (dimension := self._dimensions.get(term)) is not None:
                    row[dimension] = row.get(dimension, 0) + 1
            rows.append(row)
        return _sorted_rows(*_entries(rows), len(self._dimensions))

    def query_tokenizer(self, text: str) -> Tokenizer:
        return self._for_queries if self._for_queries(text) else self.tokenizer

    def query_stems(self, text: str) -> list[str]:
        """Return the stems of a text without any stop words of queries, in order."""
        return self._for_queries(text)

    def encode_query(self, text: str) -> EncodedQuery:
        """Return a query's tf; its sources are all occurrences of its terms."""
        tokenizer = self.query_tokenizer(text)
        return EncodedQuery(
            self.queries([text]),
            lambda dimensions: self._occurrences(tokenizer.spans(text), dimensions),
            tuple(dict.fromkeys(word for word, is_term in tokenizer.sequence(text) if not is_term)),
        )

    def document_sources(
        self, texts: Sequence[str], dimensions: Sequence[Sequence[int]]
    ) -> list[dict[int, Sources]]:
        """Return all occurrences of the terms in each document."""
        terms = map(self.tokenizer.spans, texts)
        return [self._occurrences(of, wanted) for of, wanted in zip(terms, dimensions, strict=True)]

    def dimension(self, term: str) -> int | None:
        """Return the dimension of a term; None for an unknown one."""
        return self._dimensions.get(term)

    def terms_in(self, text: str) -> Iterator[tuple[int | None, Span]]:
        """Yield the dimension of each term, None for an unknown one, and its characters."""
        return ((self._dimensions.get(term), span) for term, span in self.tokenizer.spans(text))

    def _occurrences(
        self, terms: Iterable[tuple[str, Span]], dimensions: Sequence[int]
    ) -> dict[int, Sources]:
        spans: dict[int, list[Span]] = {dimension: [] for dimension in dimensions}
        for term, span in terms:
            if (dimension := self._dimensions.get(term)) in spans:
                spans[dimension].append(span)
        return {dimension: Sources.alike(occurrences) for dimension, occurrences in spans.items()}

    def save(self, folder: Path) -> None:
        settings = {
            "language": self.tokenizer.language, "query_stop_words": self.query_stop_words
        }  # fmt: skip
        write_json(folder / "tokenizer.json", settings)
        TextStore.write(folder / "terms", self._dimensions)

    @classmethod
    def load(cls, folder: Path) -> WordVectorizer:
        """Read the files of ``save``. Raises IndexFormatError for damaged files."""
        settings = read_json(folder / "tokenizer.json")
        language, names = settings.get("language"), settings.get("query_stop_words", "")
        try:
            return cls(str(language), TextStore(folder / "terms"), str(names))
        except InputError as error:
            raise IndexFormatError(f"{folder}: {error}") from None


def _entries(rows: Iterable[Mapping[int, int]]) -> tuple[list[int], list[int], list[int]]:
    """Return the counts and dimensions of all rows, and where each row begins."""
    counts: list[int] = []
    indices: list[int] = []
    indptr = [0]
    for row in rows:
        counts += row.values()
        indices += row
        indptr.append(len(indices))
    return counts, indices, indptr


def _sorted_rows(
    counts: npt.ArrayLike, indices: npt.ArrayLike, indptr: npt.ArrayLike, size: int
) -> sp.csr_array:
    """Return counts [n, size] of entries whose rows have their dimensions in any order."""
    data, columns = np.asarray(counts, np.float32), np.asarray(indices, np.int32)
    starts = np.asarray(indptr, np.int32)
    order = np.lexsort((columns, np.repeat(np.arange(len(starts) - 1), np.diff(starts))))
    return canonical_entries(data[order], columns[order], starts, size)


def count_part(language: str, texts: Sequence[str]) -> CountedPart:
    """Count texts over their own words."""
    words = WordVectorizer(language)
    tf = words.documents(texts)  # adds to the terms
    return CountedPart(words.terms, tf)
