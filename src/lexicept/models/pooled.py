"""Pooled activations of texts, and sums of activations by token, for means over a collection."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from lexicept.models.heads.settings import HeadSettings
from lexicept.models.windows import Window
from lexicept.vectors import Floats, Integers

if TYPE_CHECKING:  # it imports sentence-transformers
    from lexicept.models.heads.base import Head


class TopKHead(Protocol):
    """The methods of a ``Head`` with k in pooling."""

    settings: HeadSettings

    @property
    def size(self) -> int:
        """See ``Head``."""

    def encode(self, states: Tensor, k: int | None = None) -> tuple[Tensor, Tensor]:
        """See ``Head``."""

    def finish(self, pooled: Tensor) -> Tensor:
        """See ``Head``."""


class TokenStates(NamedTuple):
    """Texts as windows, and the tokens' states in batches."""

    windows: list[Window]
    batches: Iterable[tuple[list[int], Tensor]]
    """See ``Backbone.token_states``."""


class TokenSums:
    """Adds up, for each token of a tokenizer, the activations of its occurrences."""

    def __init__(self, num_tokens: int, size: int) -> None:
        self._shape = (num_tokens, size + 1)
        self._tokens: list[Integers] = []
        self._columns: list[Integers] = []
        self._values: list[Floats] = []

    def add(self, ids: Integers, acts: Floats, dimensions: Integers) -> None:
        """Add occurrences: tokens [n], activations as pooled [n, k] and their dimensions [n, k]."""
        size = self._shape[1] - 1
        fired = acts > 0
        self._tokens += [np.repeat(ids, fired.sum(axis=1)), ids]
        self._columns += [dimensions[fired], np.full(len(ids), size)]
        self._values += [acts[fired], np.ones(len(ids), np.float32)]

    def result(self) -> sp.csr_array:
        """Return the sums, CSR f32 [tokens, size + 1]; the last column counts occurrences."""
        empty: Integers = np.empty(0, np.int64)
        tokens = np.concatenate([empty, *self._tokens])
        columns = np.concatenate([empty, *self._columns])
        values = np.concatenate([empty.astype(np.float32), *self._values])
        sums = sp.csr_array(sp.coo_array((values, (tokens, columns)), self._shape))
        sums.sort_indices()
        return sums


class MeanStates:
    """Adds up the states of each text's tokens."""

    def __init__(self, count: int, d: int) -> None:
        self._sums, self._tokens = torch.zeros(count, d), torch.zeros(count)

    def add(self, texts: Tensor, states: Tensor) -> None:
        """Add tokens: the text of each [n], and the states [n, d]."""
        self._sums.index_add_(0, texts, states.float().cpu())
        self._tokens.index_add_(0, texts, torch.ones(len(texts)))

    def result(self) -> Floats:
        """Return the means, f32 [count, d]; zeros for a text without tokens."""
        means: Floats = (self._sums / self._tokens.clamp_min(1)[:, None]).numpy()
        return means


def pooled_activations(
    head: Head | TopKHead,
    read: TokenStates,
    count: int,
    task: str,
    sums: TokenSums | None = None,
    means: MeanStates | None = None,
) -> sp.csr_array:
    """Return the pooled activations of ``count`` texts, CSR [count, size].

    ``sums`` gets the pooled activations of every token, if the head has k; ``means`` the states.
    """
    places: list[Integers] = [np.empty(0, np.int64)]
    values: list[Floats] = [np.empty(0, np.float32)]
    k = head.settings.k(task)
    for numbers, states in read.batches:
        windows = [read.windows[number] for number in numbers]
        tokens = [window.text for window in windows for out in window.left_out if not out]
        texts = torch.tensor(tokens, dtype=torch.long)
        with torch.inference_mode():
            if means is not None:
                means.add(texts, states)
            # Without k a batch is pooled in a dense array, with k every token keeps few.
            if k is None:
                place, value = _pool(cast("Head", head), states, texts, task)
            else:
                acts, dimensions = _to_pool(head, states, k)
                place, value = (texts.numpy()[:, None] * head.size + dimensions).ravel(), acts
                if sums is not None:
                    sums.add(_token_ids(windows), acts, dimensions)
        places.append(place)
        values.append(value.ravel())
    # A text may have several windows, in several batches: equal places are combined.
    place, value = np.concatenate(places), np.concatenate(values)
    place, value = place[value != 0], value[value != 0]  # a NaN must not get lost
    order = np.argsort(place, kind="stable")
    place, first = np.unique(place[order], return_index=True)
    combine = np.maximum if head.settings.pooling == "max" else np.add
    data = combine.reduceat(value[order], first) if len(first) else value
    data = head.finish(torch.from_numpy(data)).numpy()
    ends = np.searchsorted(place, head.size * np.arange(count + 1))
    return sp.csr_array((data, place % head.size, ends), shape=(count, head.size))


def _pool(head: Head, states: Tensor, texts: Tensor, task: str) -> tuple[Integers, Floats]:
    """Return places in [texts, size] and values of a batch's pooled activations."""
    numbers, inverse = torch.unique(texts, return_inverse=True)
    pooled = head.pool(states, inverse.to(states.device), len(numbers), task).cpu()
    text, dimension = torch.nonzero(pooled, as_tuple=True)
    return (numbers[text] * head.size + dimension).numpy(), pooled[text, dimension].numpy()


def _to_pool(head: Head | TopKHead, states: Tensor, k: int) -> tuple[Floats, Integers]:
    """Return the addends of tokens' k largest activations, and the dimensions, [n, k]."""
    acts, dimensions = head.encode(states, k)
    acts = torch.log1p(acts) if head.settings.pooling == "sum" else acts
    return acts.cpu().numpy(), dimensions.cpu().numpy()


def _token_ids(windows: Sequence[Window]) -> Integers:
    """Return the ids of the windows' counted tokens."""
    pairs = (pair for w in windows for pair in zip(w.token_ids, w.left_out, strict=True))
    return np.array([token for token, left_out in pairs if not left_out], np.int64)
