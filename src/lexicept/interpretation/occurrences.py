"""Occurrences of a word and the latents that fire on them, from which its senses are found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from lexicept.analysis.senses import Occurrence
from lexicept.corpora import Document
from lexicept.errors import InputError
from lexicept.explanation.contributions import Span, whole
from lexicept.models.encoder import Encoder
from lexicept.models.windows import Window, word_spans

BATCH = 64
"""Documents read at once."""


def word_occurrences(
    encoder: Encoder, documents: Iterable[Document], word: str
) -> Iterator[Occurrence]:
    """Yield every occurrence of a word, spelled like this in either case, in document order.

    A latent's activation is its largest on the word's tokens. Spans are of ``Document.content``.
    Documents without the word are not encoded.

    Raises:
        InputError: an empty word, or one with spaces.
    """
    wanted = word.lower()
    if len(wanted.split()) != 1 or wanted != wanted.strip():
        raise InputError(f"{word!r} is not one word")
    having = (document for document in documents if wanted in document.content.lower())
    while batch := list(islice(having, BATCH)):
        yield from _occurrences(encoder, batch, wanted)


def _occurrences(
    encoder: Encoder, documents: Sequence[Document], wanted: str
) -> Iterator[Occurrence]:
    texts = [document.content for document in documents]
    windows, spans = [], []
    for window in encoder.backbone.windows(texts):
        if word_spans := _spans(window, texts[window.text], wanted):
            windows.append(window)
            spans.append(word_spans)
    fired: dict[tuple[int, int, int], dict[int, float]] = {}
    for acts, latents, tokens, _ in encoder.token_activations(windows):
        for row, (number, place) in enumerate(tokens):
            if place not in spans[number]:
                continue
            active = fired.setdefault((windows[number].text, *spans[number][place]), {})
            for latent, act in zip(latents[row].tolist(), acts[row].tolist(), strict=True):
                if act > 0:
                    active[latent] = max(act, active.get(latent, 0.0))
    for (text, start, end), active in sorted(fired.items()):
        yield Occurrence(documents[text].id, start, end, active)


def _spans(window: Window, text: str, wanted: str) -> dict[int, Span]:
    """Return the span of the wanted word for every token that is a piece of it."""
    words = [whole(text, *span) for span in word_spans(window)]
    return {
        place: span
        for place, span in enumerate(words)
        if text[span.start : span.end].lower() == wanted
    }
