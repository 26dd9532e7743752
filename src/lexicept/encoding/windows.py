"""Windows: the runs of tokens that a backbone reads at once, and their words."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from lexicept.encoding.word_spans import split_words, whole_words
from lexicept.errors import IndexFormatError, InputError, message_of

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

LONGEST_WINDOW = 512
"""Tokens of a window by default (SPLARE evaluates at 512)."""

BORDERS = ("bos_token", "eos_token", "cls_token", "sep_token")
"""Names of the tokens that are special wherever they are."""

READ = 512
"""Documents read together, so that texts of similar length share a batch."""

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

    def counted(self) -> list[int]:
        """Return the positions of the tokens that are not left out."""
        return [position for position, out in enumerate(self.left_out) if not out]

    def key(self) -> tuple[int, int]:
        """Return a hash of 128 bits of the tokens."""
        encoded = array("q", [*self.token_ids, *self.left_out]).tobytes()
        low, high = array("q", hashlib.blake2b(encoded, digest_size=16).digest())
        return low, high

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


def read_tokenizer(path: Path) -> Tokenizer:
    """Read a tokenizer that returns texts whole, without padding. Raises IndexFormatError for a
    damaged or missing file."""
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing more specific
        raise IndexFormatError(f"{path}: {message_of(error)}") from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


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
    an added padding token. Raises InputError if tokens of ordinary words have none: the tokenizer
    is another model's."""
    added = tokenizer.added_tokens_decoder
    last_token = max([len(tokenizer) - 1, *added])
    if last_token < rows:
        return frozenset()
    outside = {token for token in tokenizer.get_vocab().values() if token >= rows}
    special = {*tokenizer.all_special_ids, *(token for token in added if added[token].special)}
    if outside - special or not outside.isdisjoint(tokenizer("")["input_ids"]):
        raise InputError(
            f"{name}: the tokenizer has {last_token + 1} tokens, the model embeddings of {rows}: "
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


def cut_windows(
    texts: Sequence[str],
    encodings: Sequence[Encoding],
    cut: Cut,
    *,
    special: Collection[int] | None,
    left: bool,
) -> list[Window]:
    """Cut tokenized texts into overlapping windows, each with its own special tokens.

    An empty text has one window, without any token where the tokenizer adds none. A token in two
    windows counts in the window with more context: each of two windows leaves out the outer half of
    the overlap. Tokens with ids in ``special`` and those that the tokenizer added are left out of
    vectors; None counts all tokens. With ``left``, windows begin at the end of the text. Raises
    InputError if special tokens leave no room for text."""
    windows = []
    for text, encoded in enumerate(encodings):
        # The tokenizer's mask marks only the tokens that it added itself, by its template.
        ids, added, offsets = encoded.ids, encoded.special_tokens_mask, encoded.offsets
        words = split_words(texts[text], encoded.word_ids, offsets)
        left_out = [0] * len(ids)
        if special is not None:
            left_out = [int(mark or i in special) for mark, i in zip(added, ids, strict=True)]
        # Every window has the special tokens before the text and after it.
        lead = added.index(0) if 0 in added else len(ids)
        text_end = len(ids) - (added[::-1].index(0) if 0 in added else 0)
        room = cut.length - lead - (len(ids) - text_end)
        if room < min(1, text_end - lead):
            raise InputError(f"windows of {cut.length} tokens have no room for text")
        runs = _runs(text_end - lead, room, cut.overlap, left)[: cut.most]
        for (start, end), (begin, stop) in zip(runs, _counted(runs), strict=True):
            positions = [*range(lead), *range(lead + start, lead + end), *range(text_end, len(ids))]
            window = Window(
                text,
                token_ids=[ids[i] for i in positions],
                left_out=[left_out[i] for i in positions],
                words=[words[i] for i in positions],
                offsets=[offsets[i] for i in positions],
            )
            # Tokens of the overlap that count in the window before or after.
            window.left_out[lead : lead + begin - start] = [1] * (begin - start)
            window.left_out[lead + stop - start : lead + end - start] = [1] * (end - stop)
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
    """Yield the indices of windows of similar length, the longest first: a single window, or
    several of at most ``tokens`` tokens, padding included."""
    order = sorted(range(len(windows)), key=lambda i: -len(windows[i].token_ids))
    while order:
        count = max(1, tokens // max(1, len(windows[order[0]].token_ids)))
        yield order[:count]
        order = order[count:]


def prompt_for(task: str, prompts: Mapping[str, str], default: str | None) -> str:
    """Return the prompt before every text of a task, else the prompt named ``default``."""
    names = ("query",) if task == "query" else ("document", "passage", "corpus")
    name = next((name for name in names if name in prompts), default)
    return prompts.get(name, "") if name else ""
