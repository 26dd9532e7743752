"""Windows: the runs of tokens that a backbone reads at once; their words, and stored states."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Protocol, TypeAlias

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from lexicept.errors import InputError
from lexicept.models.word_spans import split_words, whole_words

LONGEST_WINDOW = 512
"""Tokens of a window by default (SPLARE evaluates at 512)."""

BORDERS = ("bos_token", "eos_token", "cls_token", "sep_token")
"""Names of the tokens that are special wherever they are."""

UNLIMITED = 10**9
"""The limit of a tokenizer without a limit, which may be infinite."""


class Window(NamedTuple):
    """A run of a text's tokens that fits the backbone, with special tokens around it."""

    text: int
    """Number of the window's text."""
    token_ids: list[int]
    left_out: list[int]
    """1 for each token left out of vectors, else 0: special tokens, and tokens counted in the
    window before or after, where two overlap."""
    words: list[int | None]
    """Number of each token's word, equal for all tokens of a word; None for no word."""
    offsets: list[tuple[int, int]]
    """Start and end of each token in the text, in characters."""

    def word_spans(self) -> list[tuple[int, int]]:
        """Return start and end of every token's word, or of the token itself, in characters."""
        return whole_words(self.words, self.offsets)

    def without(self, unreadable: Collection[int], unknown: int) -> Window:
        """Return the window with the token ``unknown`` in place of unreadable tokens, which are
        left out of vectors."""
        marks = [int(token in unreadable) for token in self.token_ids]
        pairs = list(zip(marks, self.token_ids, strict=True))
        return self._replace(
            token_ids=[unknown if mark else token for mark, token in pairs],
            left_out=[left or mark for left, mark in zip(self.left_out, marks, strict=True)],
        )


def keep_whole(tokenizer: Any) -> None:
    """Make a fast tokenizer return texts whole, without padding.

    Calls of ``cut_windows`` then leave the tokenizer unchanged, and threads can share it.
    """
    fast = tokenizer.backend_tokenizer
    fast.no_truncation()
    fast.no_padding()
    fast.encode_special_tokens = tokenizer.split_special_tokens


def longest_input(tokenizer: Any) -> int:
    """Return the token limit of a tokenizer's model, special tokens included. Raises InputError for
    a limit that is no number, or leaves no room beside special tokens."""
    limit, special = tokenizer.model_max_length, tokenizer.num_special_tokens_to_add()
    if isinstance(limit, bool) or not isinstance(limit, int | float) or not limit > special:
        raise InputError(
            f"max_seq_length (model_max_length of the tokenizer) must be above {special}, the "
            f"number of special tokens, not {limit!r:.40}"
        )
    return int(min(limit, UNLIMITED))


def tokens_outside(name: str, tokenizer: Any, rows: int) -> frozenset[int]:
    """Return the ids of special tokens that a model with ``rows`` embeddings has none for, such as
    an added padding token.

    Raises:
        InputError: texts of ordinary words would have such tokens: the tokenizer is another
            model's.
    """
    added = tokenizer.added_tokens_decoder
    last = max([len(tokenizer) - 1, *added])
    if last < rows:
        return frozenset()
    outside = {token for token in tokenizer.get_vocab().values() if token >= rows}
    special = {*tokenizer.all_special_ids, *(token for token in added if added[token].special)}
    if outside - special or not outside.isdisjoint(tokenizer("")["input_ids"]):
        raise InputError(
            f"{name}: the tokenizer has {last + 1} tokens, the model embeddings of {rows}: "
            "they do not belong together, or the model was not resized for added tokens"
        )
    return frozenset(outside)


OVERLAP = 32
"""Tokens that neighbouring windows share, at most."""


class Cut(NamedTuple):
    """Sizes of windows."""

    length: int
    """Tokens of a window at most, special tokens included."""
    overlap: int
    """Tokens that neighbouring windows share."""
    most: int | None = None
    """The most windows of a text, the first; None for all."""

    @classmethod
    def after(cls, max_tokens: int | None, window: int) -> Cut:
        """Return the sizes for texts cut after ``max_tokens``, in windows of ``window`` tokens."""
        length = min(window, max_tokens or window)
        most = None if max_tokens is None else -(-max_tokens // length)
        return cls(length, min(OVERLAP, max(0, length - 8)), most)

    def ordinary(self, tokenizer: Any) -> int | None:
        """Return the most tokens of a text in all windows, without special tokens; None for all."""
        if self.most is None:
            return None
        room = self.length - int(tokenizer.num_special_tokens_to_add())
        return room + (self.most - 1) * max(1, room - self.overlap)


def cut_windows(
    texts: Sequence[str], tokenizer: Any, cut: Cut, *, leave_out_special: bool
) -> list[Window]:
    """Cut texts into overlapping windows, each with its own special tokens.

    An empty text has one window, without any token where the tokenizer adds none. Windows begin at
    the end of the text if the tokenizer truncates on the left. A token in two windows counts in the
    window with more context: each of two windows leaves out the outer half of the overlap. Raises
    InputError if the tokenizer's special tokens leave no room for text.

    Args:
        tokenizer: a fast tokenizer of transformers, after ``keep_whole``.
        leave_out_special: whether vectors leave out special tokens.
    """
    options = {"return_special_tokens_mask": True, "return_offsets_mapping": True}
    encoded = tokenizer(list(texts), verbose=False, **options)
    borders = {getattr(tokenizer, f"{name}_id") for name in BORDERS}
    windows = []
    for text, ids in enumerate(encoded["input_ids"]):
        # The tokenizer's mask marks only the tokens that it added itself, by its template.
        added, offsets = encoded["special_tokens_mask"][text], encoded["offset_mapping"][text]
        words = split_words(texts[text], encoded.word_ids(text), offsets)
        left_out = [0] * len(ids)
        if leave_out_special:
            left_out = [int(mark or i in borders) for mark, i in zip(added, ids, strict=True)]
        # Every window has the special tokens before first, and from last on.
        first = added.index(0) if 0 in added else len(ids)
        last = len(ids) - (added[::-1].index(0) if 0 in added else 0)
        room = cut.length - first - (len(ids) - last)
        if room < min(1, last - first):
            raise InputError(f"windows of {cut.length} tokens have no room for text")
        left = tokenizer.truncation_side == "left"
        runs = _runs(last - first, room, cut.overlap, left)[: cut.most]
        for (start, end), (begin, stop) in zip(runs, _counted(runs), strict=True):
            places = [*range(first), *range(first + start, first + end), *range(last, len(ids))]
            window = Window(
                text,
                token_ids=[ids[i] for i in places],
                left_out=[left_out[i] for i in places],
                words=[words[i] for i in places],
                offsets=[offsets[i] for i in places],
            )
            # Tokens of the overlap that count in the window before or after.
            window.left_out[first : first + begin - start] = [1] * (begin - start)
            window.left_out[first + stop - start : first + end - start] = [1] * (end - stop)
            windows.append(window)
    return windows


def _runs(count: int, room: int, overlap: int, left: bool) -> list[tuple[int, int]]:
    """Return start and end of the runs of at most ``room`` of ``count`` tokens that overlap."""
    runs, start = [(0, min(room, count))], 0
    while runs[-1][1] < count:
        start += max(1, room - overlap)
        runs.append((start, min(start + room, count)))
    return [(count - end, count - start) for start, end in runs] if left else runs


def _counted(runs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return start and end of the counted tokens of each run: up to the middle of an overlap."""
    ordered = sorted(runs)
    middles = [(after[0] + before[1]) // 2 for before, after in pairwise(ordered)]
    borders = zip([ordered[0][0], *middles], [*middles, ordered[-1][1]], strict=True)
    counted = dict(zip(ordered, borders, strict=True))
    return [counted[run] for run in runs]


class HasTokens(Protocol):
    """A run of tokens, such as a ``Window``."""

    @property
    def token_ids(self) -> list[int]: ...


def group_windows(windows: Sequence[HasTokens], tokens: int) -> Iterator[list[int]]:
    """Yield the numbers of windows of similar length, the longest first: a single window, or
    several of at most ``tokens`` tokens, padding included."""
    order = sorted(range(len(windows)), key=lambda i: -len(windows[i].token_ids))
    while order:
        count = max(1, tokens // max(1, len(windows[order[0]].token_ids)))
        yield order[:count]
        order = order[count:]


def pad_windows(windows: Sequence[Window], padding: int) -> dict[str, Tensor]:
    """Return windows as tensors of one length, padded at the end with the token ``padding``.

    Returns:
        ``input_ids``, ``attention_mask`` and ``token_mask`` (False for padding and tokens left
        out), all [windows, length].
    """
    return _stack([_attended(window, padding) for window in windows], padding)


def pack_windows(windows: Sequence[Window], padding: int) -> tuple[Tensor, Tensor, list[int]]:
    """Return windows one after another; a window without tokens is a token ``padding``.

    Returns:
        The tokens [n]; a mask [n], False for tokens left out; and the lengths of the windows.
    """
    runs = [_attended(window, padding) for window in windows]
    ids = torch.tensor([token for token_ids, _ in runs for token in token_ids])
    left_out = torch.tensor([mark for _, marks in runs for mark in marks])
    return ids, left_out == 0, [len(token_ids) for token_ids, _ in runs]


def join_windows(windows: Sequence[Window], padding: int) -> dict[str, Tensor]:
    """Return the windows of each text one after another, in a row.

    Losses of sentence-transformers slice and concatenate the rows of a batch and pad them with
    zeros; ``split_rows`` finds the windows in the result.

    Args:
        windows: of all texts, in order.
        padding: the token at the end of short rows.

    Returns:
        The tensors of ``pad_windows`` and ``window_start`` (True for the first token of a window),
        all [texts, length].
    """
    texts: list[tuple[list[int], list[int]]] = []
    starts: list[list[int]] = []
    for window in windows:
        ids, left_out = _attended(window, padding)
        if window.text == len(texts):
            texts.append(([], []))
            starts.append([])
        texts[-1][0].extend(ids)
        texts[-1][1].extend(left_out)
        starts[-1] += [1] + [0] * (len(ids) - 1)
    start = pad_sequence([torch.tensor(marks) for marks in starts], batch_first=True)
    return {**_stack(texts, padding), "window_start": start.bool()}


def split_rows(features: Mapping[str, Tensor], padding: int) -> dict[str, Tensor]:
    """Return the windows in the rows of ``join_windows``.

    Returns:
        The tensors of ``pad_windows``, and ``window_text`` [windows], the row of each window.
    """
    # Tokens in order, without padding; each knows its window and its place there.
    real = features["attention_mask"].bool()
    start = features["window_start"][real]
    window, first = start.cumsum(0) - 1, start.nonzero().ravel()
    place = torch.arange(len(start), device=start.device) - first[window]
    shape = (len(first), int(place.max()) + 1)
    spaced = {}
    for name, fill in (("input_ids", padding), ("attention_mask", 0), ("token_mask", 0)):
        spaced[name] = features[name].new_full(shape, fill)
        spaced[name][window, place] = features[name][real]
    return {**spaced, "window_text": real.nonzero()[first, 0]}


def _attended(window: Window, padding: int) -> tuple[list[int], list[int]]:
    """Return a window's tokens and marks, or a token of padding: attention to nothing is NaN."""
    return (window.token_ids, window.left_out) if window.token_ids else ([padding], [1])


def _stack(runs: Sequence[tuple[list[int], list[int]]], padding: int) -> dict[str, Tensor]:
    ids = [torch.tensor(token_ids) for token_ids, _ in runs]
    counted = [torch.tensor(marks) == 0 for _, marks in runs]
    attended = [torch.ones_like(token_ids) for token_ids in ids]
    return {
        "input_ids": pad_sequence(ids, batch_first=True, padding_value=padding),
        "attention_mask": pad_sequence(attended, batch_first=True),
        "token_mask": pad_sequence(counted, batch_first=True),
    }


def prompt_for(task: str, prompts: Mapping[str, str], default: str | None) -> str:
    """Return the prompt before every text of a task, else the prompt named ``default``."""
    names = ("query",) if task == "query" else ("document", "passage", "corpus")
    name = next((name for name in names if name in prompts), default)
    return prompts.get(name, "") if name else ""


Batches: TypeAlias = Iterator[tuple[list[int], Tensor]]
"""Numbers of windows, and states of the windows' tokens, window by window."""


class KnownStates(Protocol):
    """Stored states of windows."""

    def find(self, window: Window) -> Tensor | None:
        """Return the states [tokens, d] of a window's counted tokens; None if unknown."""


def read_known(
    windows: Sequence[Window], stored: KnownStates | None, limit: int, fresh: list[int]
) -> Batches:
    """Yield batches of stored states, full after ``limit`` tokens, and add the numbers of unknown
    windows to ``fresh``."""
    batch: list[int] = []
    batch_states: list[Tensor] = []
    tokens = 0
    for number, window in enumerate(windows):
        states = None if stored is None else stored.find(window)
        if states is None:
            fresh.append(number)
            continue
        batch.append(number)
        batch_states.append(states)
        tokens += len(states)
        if tokens >= limit:
            yield batch, torch.cat(batch_states)
            batch, batch_states, tokens = [], [], 0
    if batch:
        yield batch, torch.cat(batch_states)


def read_once(
    windows: Sequence[Window],
    numbers: Sequence[int],
    run: Callable[[Sequence[Window]], Batches],
    limit: int,
) -> Batches:
    """Yield the states of windows, computed once for windows of equal tokens.

    Args:
        run: computes the states of windows.
        limit: most tokens of a batch of copies, unless a single window has more.
    """
    # The first window of each content is read; the others are copies of it.
    first: dict[tuple[bytes, bytes], int] = {}
    copies: dict[int, list[int]] = {}
    for number in numbers:
        window = windows[number]
        key = (array("q", window.token_ids).tobytes(), bytes(window.left_out))
        if (original := first.setdefault(key, number)) != number:
            copies.setdefault(original, []).append(number)
    distinct = list(first.values())
    for batch, states in run([windows[number] for number in distinct]):
        originals = [distinct[place] for place in batch]
        yield originals, states
        if copies.keys().isdisjoint(originals):
            continue
        lengths = [windows[number].left_out.count(0) for number in originals]
        for number, window_states in zip(originals, states.split(lengths), strict=True):
            equal, step = copies.get(number, []), max(1, limit // max(1, len(window_states)))
            for start in range(0, len(equal), step):
                some = equal[start : start + step]
                yield some, window_states.repeat(len(some), 1)
