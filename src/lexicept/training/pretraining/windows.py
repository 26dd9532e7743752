"""Batches of pretraining: windows of texts in random order, and the masking of their tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from lexicept.encoding.windows import Window
from lexicept.errors import InputError
from lexicept.neural.backbones.backbone import Backbone
from lexicept.neural.heads.vocabulary import VocabularyHead
from lexicept.training.pretraining.settings import HIDDEN_SHARE, PretrainingSettings
from lexicept.training.pretraining.word_vocabulary import WordFinder, WordSpan

SHUFFLED_BATCHES = 8
"""Batches read and shuffled together, counting each text as one window."""

BLANK = "_"
"""Mask token of a tokenizer without a mask token (BehnamGhader et al. 2024)."""


class Masked(NamedTuple):
    """A window with tokens to predict."""

    token_ids: list[int]
    positions: list[int]
    """Positions to predict from: the tokens', or the previous positions."""
    labels: list[int]
    """Dimension to predict at each position."""


def mask(
    token_ids: Sequence[int],
    spans: Sequence[WordSpan],
    share: float,
    mask_id: int,
    replacements: np.ndarray,
    random: np.random.Generator,
    hidden_share: float = HIDDEN_SHARE,
) -> Masked:
    """Mask ``round(share · spans)`` of the spans (sub-words or words, without overlap), at least
    one. The tokens of ``hidden_share`` of the masked spans become ``mask_id`` or, one time in nine,
    random tokens; the others stay. The label at every token is the span's dimension (ESPLADE,
    3.1.2)."""
    masked = Masked(list(token_ids), [], [])
    drawn = random.choice(len(spans), max(1, round(share * len(spans))), replace=False)
    for index, fate in zip(drawn, random.random(len(drawn)), strict=True):
        start, end, dimension = spans[index]
        if fate < hidden_share * 8 / 9:
            masked.token_ids[start:end] = [mask_id] * (end - start)
        elif fate < hidden_share:
            masked.token_ids[start:end] = random.choice(replacements, end - start).tolist()
        masked.positions.extend(range(start, end))
        masked.labels.extend([dimension] * (end - start))
    return masked


def mask_token(tokenizer: Any) -> int:
    """Return the id of the tokenizer's mask token, or of ``BLANK``. Raises InputError without."""
    token = tokenizer.mask_token_id
    token = tokenizer.get_vocab().get(BLANK) if token is None else token
    if token is None:
        raise InputError(f"pretraining: the tokenizer has no mask token and no {BLANK!r}")
    return int(token)


class StreamPosition(NamedTuple):
    """A position in a stream of batches, to continue with the same batches."""

    epoch: int = 0
    document: int = 0
    """Number of the epoch's texts before the current block of shuffled texts."""
    batch: int = 0
    """Number of the block's batches before the position."""


class MaskableWindow(NamedTuple):
    """A window and the spans that can be masked."""

    token_ids: list[int]
    spans: list[WordSpan]


class WindowStream:
    """Endless batches of windows of a corpus, in a new random order every epoch.

    The batches are a function of the seed and the position. Windows with nothing to mask are left
    out; apart from these, the batches of a block of texts differ in size by at most one.
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

    def batches(
        self, start: StreamPosition
    ) -> Iterator[tuple[StreamPosition, list[MaskableWindow]]]:
        """Yield the batches from a position on, each with the next position. Raises InputError for
        nothing to mask in any text."""
        epoch, document, batch = start
        any_example = start != StreamPosition()
        texts, size = self._texts, self._settings.batch_size
        read = SHUFFLED_BATCHES * size
        while True:
            order = self._random(1, epoch).permutation(len(texts))
            for block_start in range(document, len(texts), read):
                together = [texts[int(i)] for i in order[block_start : block_start + read]]
                windows = self._backbone.windows(together, self._settings.max_tokens)
                shuffled = self._random(2, epoch, block_start).permutation(len(windows))
                splits = np.array_split(shuffled, -(-len(windows) // size))
                for index in range(batch, len(splits)):
                    if examples := self._examples(together, windows, splits[index]):
                        any_example = True
                        yield StreamPosition(epoch, block_start, index + 1), examples
                batch = 0
            if not any_example:
                what = "words" if self._settings.masking == "words" else "sub-words"
                raise InputError(f"pretraining: the texts have no {what} to mask")
            epoch, document = epoch + 1, 0

    def _random(self, *key: int) -> np.random.Generator:
        return np.random.default_rng((self._settings.seed, *key))

    def _examples(
        self, texts: Sequence[str], windows: Sequence[Window], indices: np.ndarray
    ) -> list[MaskableWindow]:
        examples = []
        for index in indices.tolist():
            window = windows[index]
            if self._settings.masking == "words":
                # A word cut by the window's border is no whole word, and is not masked.
                cut_start = index > 0 and windows[index - 1].text == window.text
                cut_end = index + 1 < len(windows) and windows[index + 1].text == window.text
                if self._settings.max_tokens is not None:
                    before, after = _beyond(window, texts[window.text])
                    cut_start, cut_end = cut_start or before, cut_end or after
                spans = self._finder.spans(window, cut_start=cut_start, cut_end=cut_end)
            else:
                # Nothing is before the first token, from where it could be predicted.
                earliest = int(self._settings.masking == "mntp")
                spans = [
                    WordSpan(position, position + 1, token)
                    for position, token in enumerate(window.token_ids)
                    if position >= earliest and token not in self._special
                ]
            if spans:
                examples.append(MaskableWindow(window.token_ids, spans))
        return examples


def _beyond(window: Window, text: str) -> tuple[bool, bool]:
    """Return True for text before a window, and True for text after the window."""
    pairs = zip(window.offsets, window.left_out, strict=True)
    spans = [span for span, left_out in pairs if not left_out]
    if not spans:
        return False, False
    begin, stop = min(start for start, _ in spans), max(end for _, end in spans)
    return bool(text[:begin].strip()), bool(text[stop:].strip())
