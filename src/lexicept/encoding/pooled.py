"""Token states → pooled activations of texts, and the tokens behind the activations; in NumPy."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from lexicept.encoding.windows import Window
from lexicept.vectors import Floats, Integers, canonical_entries, run_starts

POOL_CELLS = 2**24
"""Limit on the cells of one dense [texts, size] or [tokens, size] array: 64 MB."""

KEPT_TOKENS = 2_000_000
"""Tokens with activations that are kept while an index is built: 50 MB with three each."""


class TokenActivations(NamedTuple):
    """The most active dimensions of tokens."""

    acts: Floats
    """Activations, f32 [tokens, k]."""
    dimensions: Integers
    """Dimensions, int64 [tokens, k]."""
    tokens: list[tuple[int, int]]
    """Each token's window, and position in the window."""


class TokenStates(NamedTuple):
    """Texts as windows, and the tokens' states in batches."""

    windows: list[Window]
    batches: Iterable[tuple[list[int], Any]]
    """See ``Backbone.token_states``."""


class TokenShare(NamedTuple):
    """A token's share in the pooled activation of a dimension."""

    window: int
    """Number of the window."""
    position: int
    """Position in the window."""
    share: float
    """Share in the pooled activation, before the root."""


class MeanStates:
    """Adds up the states of each text's tokens."""

    def __init__(self, count: int, d: int) -> None:
        self._sums = np.zeros((count, d), np.float32)
        self._tokens = np.zeros(count, np.float32)

    def add(self, texts: Integers, states: Any) -> None:
        """Add tokens: the text of each [n], a text's tokens side by side, and the states [n, d]."""
        if len(texts):
            starts = run_starts(texts)
            np.add.at(self._sums, texts[starts], np.add.reduceat(as_array(states), starts))
            np.add.at(self._tokens, texts, np.float32(1))

    def result(self) -> Floats:
        """Return the means, f32 [count, d]; zeros for a text without tokens."""
        return self._sums / np.maximum(self._tokens, 1)[:, None]


def as_array(states: Any) -> Floats:
    """Return states [n, d], perhaps a tensor, as an array."""
    return states if isinstance(states, np.ndarray) else states.float().cpu().numpy()


class KeptActivations:
    """The largest activations of tokens, by window, of some windows.

    Args:
        among: the windows to keep; None for the first with ``KEPT_TOKENS`` tokens.
    """

    def __init__(self, among: Container[Window] | None = None) -> None:
        self._among, self._left = among, KEPT_TOKENS
        self._by_window: dict[tuple[int, int], tuple[Floats, Integers]] = {}

    def add(self, windows: Sequence[Window], acts: Floats, dimensions: Integers) -> None:
        """Keep activations and dimensions [tokens, k] of the counted tokens of windows."""
        ends = np.cumsum([window.left_out.count(0) for window in windows])[:-1]
        numbers = np.split(dimensions.astype(np.int32), ends)
        for window, values, columns in zip(windows, np.split(acts, ends), numbers, strict=True):
            wanted = self._left > 0 if self._among is None else window in self._among
            if wanted:
                self._left -= len(values)
                self._by_window[window.key()] = values, columns

    def find(self, window: Window) -> tuple[Floats, Integers] | None:
        """Return activations and dimensions [tokens, k]; None if they are not kept."""
        return self._by_window.get(window.key())


class TokenReader(ABC):
    """Encodes texts through the states of their tokens, with or without torch."""

    head: Any
    """A ``Head`` or ``LatentHead``."""

    kept: KeptActivations | None = None
    """Keeps what ``encode_with_means`` finds in documents; for a head with k."""

    @abstractmethod
    def prompt(self, task: str) -> str:
        """Return the prompt before every text of a task, query or document."""

    @abstractmethod
    def windows(self, texts: Sequence[str], task: str = "document") -> list[Window]:
        """Cut texts of a task, with prompts or without, into windows."""

    @abstractmethod
    def token_states(
        self, windows: Sequence[Window], task: str = "document"
    ) -> Iterator[tuple[list[int], Any]]:
        """Yield the states of all tokens counted in windows; see ``Backbone.token_states``."""

    def read(self, texts: Sequence[str], task: str) -> TokenStates:
        """Return the states of the tokens of prompts and texts, computed during iteration.

        Offsets count from the prompt's start.
        """
        windows = self.windows([self.prompt(task) + text for text in texts], task)
        return TokenStates(windows, self.token_states(windows, task))

    def encode_activations(self, texts: Sequence[str], task: str = "document") -> sp.csr_array:
        """Return the pooled activations of texts of a task (query or document): CSR f32 [n, size].

        With max pooling these are the values before log1p, otherwise the vectors' values.
        """
        return self.encode_with_means(texts, task)[0]

    def encode_with_means(self, texts: Sequence[str], task: str) -> tuple[sp.csr_array, Floats]:
        """Return the texts' pooled activations [n, size] and mean token states [n, d]: zeros for a
        text without tokens."""
        means = MeanStates(len(texts), self.head.d_in)
        kept = self.kept if task == "document" else None
        tf = pooled_activations(self.head, self.read(texts, task), len(texts), task, means, kept)
        return tf, means.result()

    def token_activations(self, windows: Sequence[Window]) -> Iterator[TokenActivations]:
        """Yield the most active dimensions of documents' counted tokens: batches of windows."""
        limit = POOL_CELLS // self.head.size  # a head without k may find every dimension active
        if self.kept is not None:
            yield from self._activations_in_order(windows, self.kept, limit)
            return
        for window_numbers, states in self.token_states(windows):
            start = 0
            tokens: list[tuple[int, int]] = []
            for index in window_numbers:
                if tokens and len(tokens) + len(windows[index].left_out) > limit:
                    acts, dimensions = self.head.largest_acts(states[start : start + len(tokens)])
                    yield TokenActivations(acts, dimensions, tokens)
                    start += len(tokens)
                    tokens = []
                tokens += [(index, position) for position in windows[index].counted()]
            acts, dimensions = self.head.largest_acts(states[start:])
            yield TokenActivations(acts, dimensions, tokens)

    def _activations_in_order(
        self, windows: Sequence[Window], kept: KeptActivations, limit: int
    ) -> Iterator[TokenActivations]:
        """Yield the activations of windows in order, kept or computed now: batches do not depend on
        how many are kept."""
        computed, k = KeptActivations(), self.head.settings.document_k
        fresh = [window for window in windows if kept.find(window) is None]
        for window_numbers, states in self.token_states(fresh):
            selected = [fresh[index] for index in window_numbers]
            computed.add(selected, *self.head.largest_addends(states, k))
        batch: list[tuple[Floats, Integers]] = []
        tokens: list[tuple[int, int]] = []
        for index, window in enumerate(windows):
            of_window = kept.find(window) or computed.find(window)
            if of_window is not None:
                batch.append(of_window)
                tokens += [(index, position) for position in window.counted()]
            if batch and (len(tokens) >= limit or index == len(windows) - 1):
                acts, dimensions = map(np.concatenate, zip(*batch, strict=True))
                yield TokenActivations(acts, dimensions.astype(np.int64), tokens)
                batch, tokens = [], []

    def token_shares(
        self, read: TokenStates, dimensions: Sequence[Sequence[int]], task: str
    ) -> list[dict[int, list[TokenShare]]]:
        """Find the tokens behind the pooled activation of each text's dimensions, in the result of
        ``read``: active dimension → tokens. With max pooling this is the token of the largest
        activation alone, else every token with an activation."""
        shares: list[dict[int, list[TokenShare]]] = [{} for _ in dimensions]
        for numbers, states in read.batches:
            start = 0
            for index in numbers:
                window = read.windows[index]
                positions = window.counted()
                # A batch holds the counted tokens of its windows, one window after another.
                window_states = states[start : start + len(positions)]
                start += len(positions)
                columns = dimensions[window.text]
                if not positions or not columns:
                    continue
                acts = self.head.token_addends(window_states, columns, task)
                for token, column in np.argwhere(acts > 0).tolist():
                    share = TokenShare(index, positions[token], float(acts[token, column]))
                    shares[window.text].setdefault(columns[column], []).append(share)
        for text_shares in shares:
            for dimension, tokens in text_shares.items():
                if self.head.settings.pooling == "max":
                    largest = max(tokens, key=lambda token: token.share)
                    text_shares[dimension] = [largest._replace(share=1.0)]
                else:
                    total = math.fsum(token.share for token in tokens)
                    text_shares[dimension] = [t._replace(share=t.share / total) for t in tokens]
        return shares


def pooled_activations(
    head: Any,
    read: TokenStates,
    count: int,
    task: str,
    means: MeanStates | None = None,
    kept: KeptActivations | None = None,
) -> sp.csr_array:
    """Return the pooled activations of ``count`` texts, CSR [count, size]; ``means`` gets the
    states, ``kept`` the largest addends of tokens."""
    cells: list[Integers] = [np.empty(0, np.int64)]
    values: list[Floats] = [np.empty(0, np.float32)]
    k = head.settings.k(task)
    for numbers, states in read.batches:
        windows = [read.windows[index] for index in numbers]
        tokens = [window.text for window in windows for out in window.left_out if not out]
        texts = np.array(tokens, np.int64)
        if means is not None:
            means.add(texts, states)
        # Without k a batch is pooled in a dense array, with k every token keeps few.
        if k is None:
            batch_cells, batch_values = head.pool_batch(states, texts, task)
        else:
            batch_values, columns = head.largest_addends(states, k)
            if kept is not None:
                kept.add(windows, batch_values, columns)
            batch_cells = (texts[:, None] * head.size + columns).ravel()
        cells.append(batch_cells)
        values.append(batch_values.ravel())
    # A text may have several windows, in several batches: equal cells are combined.
    cell, data = np.concatenate(cells), np.concatenate(values)
    cell, data = cell[data != 0], data[data != 0]  # a NaN must not get lost
    order = np.argsort(cell, kind="stable")
    cell, data = cell[order], data[order]
    starts = run_starts(cell)
    combine = np.maximum if head.settings.pooling == "max" else np.add
    data = combine.reduceat(data, starts) if len(starts) else data
    data = np.sqrt(data) if head.settings.pooling == "sqrt_sum" else data
    cell = cell[starts]
    ends = np.searchsorted(cell, head.size * np.arange(count + 1)).astype(np.int32)
    return canonical_entries(data, (cell % head.size).astype(np.int32), ends, head.size)
