"""Token states of a frozen backbone on disk: read once, trained on and encoded from."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lexicept.encoding.light_encoder import LightEncoder
from lexicept.encoding.windows import Window
from lexicept.errors import IndexFormatError, InputError
from lexicept.kernels.compiled import in_order, num_threads
from lexicept.neural.backbones.backbone import Backbone
from lexicept.neural.backbones.blocks import autocast, has_bfloat16
from lexicept.neural.sae.states import Reader
from lexicept.progress import Progress, silent
from lexicept.storage.arrays import let_go, load_array, return_memory, save_array
from lexicept.storage.cached import cached
from lexicept.storage.workspace import Workspace
from lexicept.vectors import Integers

SHARD, ENDS = 128, ("", ".starts", ".windows")
"""Texts of a file, the unit of work after an interruption; ends of the names of its files."""


class CachedStates:
    """Token states in half precision, text by text, memory-mapped. Raises IndexFormatError for
    damaged files, or files of different texts."""

    def __init__(self, folder: Path, count: int) -> None:
        self._count = count
        shards = range(-(-count // SHARD))
        self._states = [load_array(folder / f"{i:06d}.npy", np.float16, ndim=2) for i in shards]
        self._starts = [load_array(folder / f"{i:06d}.starts.npy", np.int64) for i in shards]
        self._windows = [load_array(folder / f"{i:06d}.windows.npy", np.int64, 2) for i in shards]
        sizes = [starts.size - 1 for starts in self._starts]
        sound = sum(sizes) == count and set(sizes[:-1]) <= {SHARD}
        for states, starts, windows in zip(self._states, self._starts, self._windows, strict=True):
            # Texts, and windows, have to divide a file's tokens without a gap.
            sound &= starts.size > 0 and starts[0] == 0 and windows.shape[1] == 3
            for ends in (starts, windows[:, -1]):
                sound &= bool((np.diff(ends, prepend=0) >= 0).all())
                sound &= len(ends) == 0 or ends[-1] == len(states)
        if not sound or len({states.shape[1] for states in self._states if len(states)}) > 1:
            raise IndexFormatError(f"{folder}: these states of {count} texts do not fit together")

    @classmethod
    def build(
        cls,
        folder: Path,
        backbone: Backbone | LightEncoder,
        texts: Sequence[str],
        progress: Progress = silent,
        *,
        bf16: bool = False,
        task: str = "document",
    ) -> CachedStates:
        """Open the states of texts; absent or damaged states are computed. Calling again resumes an
        interrupted call. Raises InputError while another process computes the same states.

        Args:
            folder: a cache for many backbones, texts and precisions.
            bf16: run the backbone in bfloat16, if the device multiplies bfloat16.
        """
        light = isinstance(backbone, LightEncoder)
        device = torch.device("cpu")
        if not isinstance(backbone, LightEncoder):
            device = backbone.model.device
        bf16 = bf16 and has_bfloat16(device)
        key = _fingerprint(backbone, texts, bf16, task)
        out = folder / key[:16]

        def make() -> None:
            def compute(index: int) -> tuple[int, Sequence[np.ndarray]]:
                shard_texts = texts[index * SHARD : (index + 1) * SHARD]
                with autocast(device, bf16):
                    return index, _states(backbone, shard_texts, task)

            def write(shard: tuple[int, Sequence[np.ndarray]]) -> int:
                index, arrays = shard
                files = [shards.folder / f"{index:06d}{end}.npy" for end in ENDS]
                for file, values in zip(files, arrays, strict=True):
                    save_array(file, values)
                shards.finish(f"{index:06d}", files)
                return_memory()
                return index

            with Workspace(out, "states", {"states": key}) as work:
                shards = work.units("states")
                shards_of_texts = range(-(-len(texts) // SHARD))
                left = (i for i in shards_of_texts if shards.facts(f"{i:06d}") is None)
                computed = in_order(compute, left, num_threads()) if light else map(compute, left)
                # A thread writes, as flushing a file to disk takes long, while others compute.
                for index in in_order(write, computed, 1):
                    progress("states", min((index + 1) * SHARD, len(texts)), len(texts))
                work.publish(shards.folder)

        return cached(out, make, lambda path: cls(path, len(texts)))

    def __len__(self) -> int:
        return self._count

    @property
    def num_tokens(self) -> int:
        """Number of tokens of all texts."""
        return sum(map(len, self._states))

    def read(
        self, indices: Sequence[int], max_tokens: int | None = None, dtype: Any = np.float32
    ) -> tuple[Tensor, Tensor]:
        """Return the states [tokens, d] of the first tokens of texts, and the place of each token's
        text among ``indices`` [tokens]."""
        texts = []
        for index in indices:
            shard, offset = divmod(int(index), SHARD)
            start, end = self._starts[shard][offset : offset + 2]
            if max_tokens is not None:
                end = min(end, start + max_tokens)
            texts.append(self._copy(shard, slice(start, end), dtype))
        lengths = torch.tensor([len(text) for text in texts])
        states = torch.from_numpy(np.concatenate(texts))
        return states, torch.repeat_interleave(torch.arange(len(texts)), lengths)

    def find(self, window: Window) -> Tensor | None:
        """Return the states [tokens, d] of a window's counted tokens, in single precision; None for
        an unknown window or a window without counted tokens."""
        shard, start, end = self._spans.get(window.key(), (0, 0, 0))
        if start == end:
            return None
        return torch.from_numpy(self._copy(shard, slice(start, end), np.float32))

    def __contains__(self, window: object) -> bool:
        return isinstance(window, Window) and window.key() in self._spans

    def _copy(self, shard: int, tokens: slice, dtype: Any) -> np.ndarray:
        states: np.ndarray = self._states[shard][tokens].astype(dtype)
        let_go(self._states[shard])  # of which the system maps several times as much as is read
        return states

    @cached_property
    def _spans(self) -> dict[tuple[int, int], tuple[int, int, int]]:
        """Key of each window → shard, start and end of the window's states."""
        spans = {}
        for shard, windows in enumerate(self._windows):
            start = 0
            for low, high, end in windows.tolist():
                spans[low, high] = (shard, start, end)
                start = end
        return spans

    def features(self, indices: Sequence[int], max_tokens: int | None = None) -> dict[str, Tensor]:
        """Return the states of ``read`` as a backbone's output: every token is a window."""
        states, text = self.read(indices, max_tokens)
        # A text without tokens still counts, as a window without a real token.
        empty = torch.ones(len(indices), dtype=torch.bool)
        empty[text] = False
        missing = torch.nonzero(empty).ravel()
        mask = torch.arange(len(text) + len(missing)) < len(text)
        padded = torch.cat([states, states.new_zeros(len(missing), states.shape[1])])
        return {
            "token_embeddings": padded[:, None],
            "token_mask": mask[:, None],
            "window_text": torch.cat([text, missing]),
        }


def cached_reader(
    caches: Sequence[CachedStates],
    device: torch.device,
    transform: Callable[[Tensor], Tensor] | None = None,
    dtype: Any = np.float32,
) -> Reader:
    """Return a reader of cached states by number; the numbers run through all caches. States are of
    type ``dtype``, in single precision after a transform."""
    starts = np.cumsum([0, *map(len, caches)])

    def read(indices: Sequence[int]) -> Tensor:
        texts, batches = np.asarray(indices), []
        for cache, start in zip(caches, starts, strict=False):
            in_cache = texts[(texts >= start) & (texts < start + len(cache))] - start
            if in_cache.size:
                batches.append(cache.read(in_cache.tolist(), dtype=dtype)[0])
        states = (batches[0] if len(batches) == 1 else torch.cat(batches)).to(device)
        if transform is None:
            return states
        with torch.no_grad():
            return transform(states.float()).float()

    return read


def _states(
    backbone: Backbone | LightEncoder, texts: Sequence[str], task: str
) -> tuple[np.ndarray, Integers, Integers]:
    """Return the states [tokens, d] of texts, the place of each text's first token [texts + 1], and
    each window's key and the place after the last token [windows, 3]."""
    windows = backbone.windows(texts, task=task)
    lengths = np.array([window.left_out.count(0) for window in windows], np.int64)
    ends = np.cumsum(lengths)
    # In place, as states are by far the most of memory.
    written = np.empty((0, 0), np.float16)
    for indices, states in backbone.token_states(windows):
        if not written.size:
            written = np.empty((int(ends[-1]), states.shape[1]), np.float16)
        window_states = torch.as_tensor(states).half().cpu().split(lengths[indices].tolist())
        for index, values in zip(indices, window_states, strict=True):
            written[ends[index] - len(values) : ends[index]] = values.numpy()
    if not np.isfinite(written).all():
        raise InputError("states beyond 65,504, or not finite, can't be kept in half precision")
    starts = np.zeros(len(texts) + 1, np.int64)
    np.add.at(starts, [window.text + 1 for window in windows], lengths)
    keys = np.array([window.key() for window in windows], np.int64).reshape(-1, 2)
    return written, np.cumsum(starts), np.column_stack([keys, ends])


def _fingerprint(
    backbone: Backbone | LightEncoder, texts: Sequence[str], bf16: bool, task: str
) -> str:
    digest = hashlib.sha256(str(bf16).encode())
    for text in texts:
        digest.update(hashlib.sha256(text.encode()).digest())
    if isinstance(backbone, LightEncoder):
        digest.update(backbone.fingerprint(task).encode())
        return digest.hexdigest()
    for parameter in backbone.parameters():
        digest.update(parameter.detach().cpu().contiguous().view(torch.uint8).numpy())
    if not backbone.bidirectional:
        digest.update(b"causal")
    if backbone.special_tokens:
        digest.update(b"special tokens")
    digest.update(f"windows of {backbone.window}".encode())
    if (length := backbone.max_tokens(task)) is not None:
        digest.update(f"cut at {length}".encode())
    return digest.hexdigest()
