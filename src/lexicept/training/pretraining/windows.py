"""The stream of batches that pretraining reads: windows of a corpus, in random order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from lexicept.errors import InputError
from lexicept.models.backbone import Backbone
from lexicept.models.heads.vocabulary import VocabularyHead
from lexicept.models.windows import Window
from lexicept.models.word_vocabulary import Span, WordFinder
from lexicept.training.pretraining.masking import subword_spans
from lexicept.training.pretraining.settings import PretrainingSettings

SHUFFLED_BATCHES = 8
"""Batches whose texts are read and shuffled together, if each text were one window."""


class Position(NamedTuple):
    """A place in a stream of batches, from which it continues with the same batches."""

    epoch: int = 0
    document: int = 0
    """Number of texts of the epoch before those that are shuffled together now."""
    batch: int = 0
    """Number of their batches that were used."""


class Example(NamedTuple):
    """A window and the spans that can be masked in it."""

    token_ids: list[int]
    spans: list[Span]


class WindowStream:
    """Endless batches of windows of a corpus, in a new random order every epoch.

    The batches are a function of the seed and the position. Windows in which nothing can be masked
    are left out of their batches; otherwise the batches of texts that are shuffled together differ
    in size by at most one.
    """

    def __init__(
        self,
        backbone: Backbone,
        head: VocabularyHead,
        texts: Sequence[str],
        settings: PretrainingSettings,
    ) -> None:
        self._backbone = backbone
        self._texts = texts
        self._settings = settings
        self._special = set(backbone.tokenizer.all_special_ids)
        words = head.terms if settings.masking == "words" else []
        self._finder = WordFinder(words, backbone.tokenizer)

    def batches(self, start: Position) -> Iterator[tuple[Position, list[Example]]]:
        """Yield the batches from a position on, each with the position after it.

        Raises:
            InputError: no text has anything to mask.
        """
        epoch, document, batch = start
        any_example = start != Position()
        texts, size = self._texts, self._settings.batch_size
        read = SHUFFLED_BATCHES * size
        while True:
            order = self._random(1, epoch).permutation(len(texts))
            for first in range(document, len(texts), read):
                together = [texts[int(i)] for i in order[first : first + read]]
                windows = self._backbone.windows(together, self._settings.max_tokens)
                shuffled = self._random(2, epoch, first).permutation(len(windows))
                parts = np.array_split(shuffled, -(-len(windows) // size))
                for number in range(batch, len(parts)):
                    if examples := self._examples(together, windows, parts[number]):
                        any_example = True
                        yield Position(epoch, first, number + 1), examples
                batch = 0
            if not any_example:
                what = "words" if self._settings.masking == "words" else "sub-words"
                raise InputError(f"pretraining: the texts have no {what} to mask")
            epoch, document = epoch + 1, 0

    def _random(self, *key: int) -> np.random.Generator:
        return np.random.default_rng((self._settings.seed, *key))

    def _examples(
        self, texts: Sequence[str], windows: Sequence[Window], numbers: np.ndarray
    ) -> list[Example]:
        examples = []
        for number in numbers.tolist():
            window = windows[number]
            if self._settings.masking == "words":
                cut_start = number > 0 and windows[number - 1].text == window.text
                cut_end = number + 1 < len(windows) and windows[number + 1].text == window.text
                if self._settings.max_tokens is not None:
                    before, after = _beyond(window, texts[window.text])
                    cut_start, cut_end = cut_start or before, cut_end or after
                spans = self._finder.spans(window, cut_start=cut_start, cut_end=cut_end)
            else:
                first = int(self._settings.shifted)  # nothing is before the first token
                places = enumerate(window.token_ids)
                ordinary = [p >= first and token not in self._special for p, token in places]
                spans = subword_spans(window.token_ids, ordinary)
            if spans:
                examples.append(Example(window.token_ids, spans))
        return examples


def _beyond(window: Window, text: str) -> tuple[bool, bool]:
    """Return whether a text has anything before a window, and after it."""
    places = zip(window.offsets, window.left_out, strict=True)
    own = [place for place, left_out in places if not left_out]
    if not own:
        return False, False
    first, last = min(start for start, _ in own), max(end for _, end in own)
    return bool(text[:first].strip()), bool(text[last:].strip())
