"""Concepts of texts, and the words behind concepts, by an encoder with or without torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import scipy.sparse as sp

from lexicept.explanation.contributions import Sources, Span, whole
from lexicept.models.pooled import (
    MeanStates,
    TokenReader,
    TokenShare,
    TokenStates,
    pooled_activations,
)
from lexicept.models.windows import Window
from lexicept.vectorizers.interface import EncodedQuery
from lexicept.vectors import Floats

LISTED = 8
"""Dimensions of a token that are listed for a head without k."""


class EncodedConcepts:
    """Texts → the pooled activation of every dimension of an encoder's head, for queries, few
    documents and explanations."""

    name = "concepts"
    grows = False

    def __init__(self, encoder: TokenReader) -> None:
        self.encoder: Any = encoder

    @classmethod
    def load_light(cls, folder: Path) -> EncodedConcepts | None:
        """Load the encoder of a saved ``ConceptVectorizer`` without torch; see
        ``LightEncoder.load``."""
        from lexicept.models.light_encoder import LightEncoder

        encoder = LightEncoder.load(folder / "model")
        return None if encoder is None else cls(encoder)

    @property
    def size(self) -> int:
        """Number of dimensions."""
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
        return EncodedQuery(tf, sources), means.result()

    def activations(self, text: str) -> list[tuple[Span, list[tuple[int, float]]]]:
        """Return the characters of each token of a document in order, and the active dimensions
        with the activations, largest first."""
        windows, batches = self.encoder.read([text], "document")
        head, before = self.encoder.head, len(self.encoder.prompt("document"))
        tokens = []
        for numbers, states in batches:
            acts, dimensions = head.largest_addends(states, head.settings.document_k or LISTED)
            places = [
                windows[number].offsets[place]
                for number in numbers
                for place in windows[number].counted()
            ]
            for (start, end), numbers, of_token in zip(
                places, dimensions.tolist(), acts.tolist(), strict=True
            ):
                pairs = zip(numbers, of_token, strict=True)
                active = [(number, act) for number, act in pairs if act > 0]
                if end > before:
                    tokens.append((Span(max(0, start - before), end - before), active))
        return sorted(tokens)

    def document_sources(
        self, texts: Sequence[str], dimensions: Sequence[Sequence[int]]
    ) -> list[dict[int, Sources]]:
        """Return the words of each document with tokens that make up each activation."""
        read = self.encoder.read(texts, "document")
        tokens = self.encoder.token_shares(read, dimensions, "document")
        return [
            spans_of(text, active, _words(read.windows, shares), self.encoder.prompt("document"))
            for text, active, shares in zip(texts, dimensions, tokens, strict=True)
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
        dimension: [(*spans[token.window][token.place], token.share) for token in shares]
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
