"""Concepts of texts, and the words behind concepts, by an encoder with or without torch.

The folder of lexicept-mini's concepts in an index has no model: ``packaged.json`` tells the
checksums of the model in the package.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from lexicept.encoding.eight_bits import FILE
from lexicept.encoding.pooled import (
    MeanStates,
    TokenReader,
    TokenShare,
    TokenStates,
    as_array,
    pooled_activations,
)
from lexicept.encoding.sources import MINI, MINI_FILES, MINI_FOLDER
from lexicept.encoding.vectorizer import EncodedQuery
from lexicept.encoding.windows import Window
from lexicept.errors import IndexFormatError
from lexicept.explanation.contributions import Sources, Span, whole
from lexicept.explanation.similarity import WordStates
from lexicept.storage.files import read_json, write_json
from lexicept.storage.texts import TextStore
from lexicept.vectors import Floats

PACKAGED = "packaged.json"
"""File of the reference to the model in the package."""

LISTED = 8
"""Dimensions of a token that are listed for a head without k."""


class EncodedConcepts:
    """A vectorizer: texts → the pooled activation of every dimension of an encoder's head.

    Args:
        encoder: the encoder.
        terms: a name per dimension, for ``save``.
    """

    name = "concepts"
    grows = False
    named = True
    """True if the dimensions have names."""

    def __init__(self, encoder: TokenReader, terms: Sequence[str] = ()) -> None:
        self.encoder: Any = encoder
        self._terms = terms

    @classmethod
    def packaged(
        cls, max_query_tokens: int | None = None, max_document_tokens: int | None = None
    ) -> EncodedConcepts:
        """Load lexicept-mini, the model in the package, with these limits on texts."""
        from lexicept.encoding.light_encoder import packaged_encoder

        encoder = packaged_encoder().cut(max_query_tokens, max_document_tokens)
        return cls(encoder, TextStore(MINI_FOLDER / "terms"))

    @classmethod
    def load_light(cls, folder: Path) -> EncodedConcepts | None:
        """Load the encoder of saved concepts without torch; None where there is none, see
        ``LightEncoder.load``. Raises IndexFormatError for concepts of another lexicept-mini than
        the package's."""
        from lexicept.encoding.light_encoder import LightEncoder, packaged_encoder

        if not (folder / PACKAGED).exists():
            if not (folder / "model").is_dir():
                return None
            encoder = LightEncoder.load(folder / "model")
        else:
            reference = read_json(folder / PACKAGED)
            if reference.get("files") != MINI_FILES:
                problem = f"made with another {MINI} than the installed one"
                raise IndexFormatError(f"{folder}: {problem}: build the index again")
            limits: Any = reference.get("limits")
            named = isinstance(limits, dict) and limits.keys() == {"query", "document"}
            if not named or not all(type(n) is int and n > 0 for n in limits.values() if n):
                raise IndexFormatError(f"{folder / PACKAGED} is damaged: limits {limits!r:.80}")
            encoder = packaged_encoder().cut(**limits)
        return None if encoder is None else cls(encoder, TextStore(folder / "terms"))

    @staticmethod
    def is_light(folder: Path) -> bool:
        """Return True for saved concepts that are always read without torch: lexicept-mini's, as
        packaged or adapted."""
        return (folder / PACKAGED).exists() or (folder / "model" / FILE).exists()

    def save(self, folder: Path) -> None:
        """Write a reference to the model in the package or, of an adapted one, the model; and the
        names of the dimensions."""
        source = self.encoder.folder
        if source == MINI_FOLDER:
            reference = {"model": MINI, "files": MINI_FILES, "limits": self.encoder.limits}
            write_json(folder / PACKAGED, reference)
        else:
            shutil.copytree(source, folder / "model")
        TextStore.write(folder / "terms", self._terms)

    @classmethod
    def load(cls, folder: Path) -> EncodedConcepts:
        concepts = cls.load_light(folder)
        assert concepts is not None
        return concepts

    @property
    def terms(self) -> Sequence[str]:
        return self._terms

    @property
    def size(self) -> int:
        return int(self.encoder.head.size)

    def queries(self, texts: Sequence[str]) -> sp.csr_array:
        """Return the pooled activation of every dimension in every query [n, size]."""
        return self.encoder.encode_activations(texts, "query")

    def documents(self, texts: Sequence[str]) -> sp.csr_array:
        """Return the pooled activation of every dimension in every document [n, size]."""
        return self.encoder.encode_activations(texts, "document")

    def encode_query(self, text: str) -> EncodedQuery:
        """Encode a query once, for its tf and its spans.

        The sources of a dimension are the words with tokens that make up the activation: see
        ``TokenReader.token_shares``.
        """
        return self.encode_query_with_mean(text)[0]

    def encode_query_with_mean(self, text: str) -> tuple[EncodedQuery, Floats]:
        """Encode a query by the encoder; return the mean of the tokens' states too [1, d]."""
        windows, batches = self.encoder.read([text], "query")
        read, prompt = TokenStates(windows, list(batches)), self.encoder.prompt("query")
        means = MeanStates(1, self.encoder.head.d_in)

        def sources(dimensions: Sequence[int]) -> dict[int, Sources]:
            (tokens,) = self.encoder.token_shares(read, [dimensions], "query")
            return spans_of(text, dimensions, _words(windows, tokens), prompt)

        tf = pooled_activations(self.encoder.head, read, 1, "query", means=means)
        (words,) = word_states(read, [text], len(prompt))
        return EncodedQuery(tf, sources, words=words), means.result()

    def activations(self, text: str) -> list[tuple[Span, list[tuple[int, float]]]]:
        """Return the characters of each token of a document in order, and the active dimensions
        with the activations, largest first."""
        windows, batches = self.encoder.read([text], "document")
        head, before = self.encoder.head, len(self.encoder.prompt("document"))
        tokens = []
        for window_numbers, states in batches:
            acts, dimensions = head.largest_addends(states, head.settings.document_k or LISTED)
            spans = [
                windows[number].offsets[position]
                for number in window_numbers
                for position in windows[number].counted()
            ]
            of_tokens = zip(spans, dimensions.tolist(), acts.tolist(), strict=True)
            for (start, end), token_dimensions, token_acts in of_tokens:
                if end > before:
                    pairs = zip(token_dimensions, token_acts, strict=True)
                    active = [(dimension, act) for dimension, act in pairs if act > 0]
                    tokens.append((Span(max(0, start - before), end - before), active))
        return sorted(tokens)

    def document_sources(
        self, texts: Sequence[str], dimensions: Sequence[Sequence[int]]
    ) -> list[dict[int, Sources]]:
        """Return the words of each document with tokens that make up each activation."""
        return self.document_sources_and_words(texts, dimensions)[0]

    def document_sources_and_words(
        self, texts: Sequence[str], dimensions: Sequence[Sequence[int]]
    ) -> tuple[list[dict[int, Sources]], list[WordStates]]:
        """Return the words of each document with tokens that make up each activation, and the
        states of all words."""
        windows, batches = self.encoder.read(texts, "document")
        read, prompt = TokenStates(windows, list(batches)), self.encoder.prompt("document")
        tokens = self.encoder.token_shares(read, dimensions, "document")
        sources = [
            spans_of(text, active, _words(windows, shares), prompt)
            for text, active, shares in zip(texts, dimensions, tokens, strict=True)
        ]
        return sources, word_states(read, texts, len(prompt))


def word_states(read: TokenStates, texts: Sequence[str], prompt: int) -> list[WordStates]:
    """Return the states of the words of texts after a prompt of so many characters."""
    sums: list[dict[Span, Floats]] = [{} for _ in texts]
    for window_numbers, states in read.batches:
        vectors = iter(as_array(states))
        for window in (read.windows[number] for number in window_numbers):
            spans, of_text = window.word_spans(), sums[window.text]
            for position in window.counted():
                start, end = (max(0, edge - prompt) for edge in spans[position])
                span = whole(texts[window.text], start, end)
                of_text[span] = of_text.get(span, 0) + next(vectors)
    return [
        WordStates([*of_text], np.array([*of_text.values()] or np.empty((0, 0)), np.float32))
        for of_text in sums
    ]


_SharedSpan = tuple[int, int, float]
"""Start and end of characters, in the prompt followed by the text, and the share."""


def _words(
    windows: Sequence[Window], tokens: Mapping[int, Sequence[TokenShare]]
) -> dict[int, list[_SharedSpan]]:
    """Return, for each dimension, the words of the tokens."""
    numbers = {token.window for shares in tokens.values() for token in shares}
    spans = {number: windows[number].word_spans() for number in numbers}
    return {
        dimension: [(*spans[token.window][token.position], token.share) for token in shares]
        for dimension, shares in tokens.items()
    }


def spans_of(
    text: str, dimensions: Sequence[int], spans: Mapping[int, Sequence[_SharedSpan]], prompt: str
) -> dict[int, Sources]:
    """Return the sources of each dimension in the text, without spaces at the ends of spans."""
    before = len(prompt)
    return {
        dimension: Sources.of(
            (whole(text, max(0, start - before), end - before), share)
            for start, end, share in spans.get(dimension, ())
            if end > before
        )
        for dimension in dimensions
    }
