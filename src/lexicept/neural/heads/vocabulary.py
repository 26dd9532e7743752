"""Language-modelling heads: dimensions are sub-words or words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from safetensors.torch import save as to_safetensors
from torch import Tensor, nn
from transformers.activations import ACT2FN

from lexicept.encoding.head_settings import HeadSettings, read_settings
from lexicept.errors import InputError
from lexicept.neural.heads.base import DAMAGED, Head
from lexicept.storage.files import replace_file, write_json
from lexicept.storage.texts import TextStore

_NORMS = {"layer": nn.LayerNorm, "rms": nn.RMSNorm}


class VocabularyHead(Head):
    """A language-modelling head: dimensions are sub-words or words.

    It computes ``v = rows · LayerNorm(act(dense · h)) + bias`` for an encoder and ``v = rows ·
    RMSNorm(h)`` for a decoder. SPLADE uses the backbone's own rows, ESPLADE the means of sub-words'
    rows; see ``language.language_head``, ``expanded`` and ``random``. Raises InputError for rows,
    biases and terms that differ in number, an unknown activation or norm, or a bad epsilon.

    Args:
        rows: [size, d]; copied.
        bias: [size]; None for a fixed 0, which only ``calibrate`` makes a parameter.
        terms: the word or sub-word of each dimension.
        activation: a name that transformers knows; None for a head without dense layer, activation
            and following norm.
        layer_norm_eps: the epsilon of all norms.
        final_norm: the norm of h (layer, rms or None) after the last block of decoders and
            ModernBERT.
        settings: the defaults of ``HeadSettings`` by default.
        d_in: size of h for a dense layer that projects to smaller rows (ELECTRA); d by default.
    """

    def __init__(
        self,
        rows: Tensor,
        bias: Tensor | None,
        terms: Sequence[str],
        activation: str | None = "gelu",
        layer_norm_eps: float = 1e-12,
        final_norm: str | None = None,
        settings: HeadSettings | None = None,
        d_in: int | None = None,
    ) -> None:
        super().__init__()
        biases = len(rows) if bias is None else len(bias)
        if not len(rows) == biases == len(terms):
            raise InputError(f"{len(rows)} rows, {biases} biases and {len(terms)} terms")
        if activation is not None and activation not in ACT2FN:
            raise InputError(f"no activation function {activation!r}")
        if final_norm is not None and final_norm not in _NORMS:
            raise InputError(f"a final norm is layer or rms, not {final_norm!r}")
        if not isinstance(layer_norm_eps, float | int) or not 0 <= layer_norm_eps < math.inf:
            raise InputError(f"layer_norm_eps must be at least 0, not {layer_norm_eps!r}")
        d = rows.shape[1]
        d_in = d_in or d
        if activation is None and d_in != d:
            raise InputError(f"rows of size {d} for states of size {d_in}, without a dense layer")
        self.settings = settings or HeadSettings()
        self.activation, self.final_norm = activation, final_norm
        self.layer_norm_eps = layer_norm_eps
        self.final = _NORMS[final_norm](d_in, eps=layer_norm_eps) if final_norm else nn.Identity()
        self.dense: nn.Module = nn.Identity()
        self._act: nn.Module = nn.Identity()
        self.norm: nn.Module = nn.Identity()
        if activation is not None:
            self.dense, self._act = nn.Linear(d_in, d), ACT2FN[activation]
            self.norm = nn.LayerNorm(d, eps=layer_norm_eps)
            with torch.no_grad():
                self.dense.get_parameter("weight").copy_(torch.eye(d, d_in))
                self.dense.get_parameter("bias").zero_()
        self.weight = nn.Parameter(rows.detach().clone())
        if bias is None:  # not a parameter, and not saved
            self.register_buffer("offset", torch.zeros(len(rows)), persistent=False)
        else:
            self.offset = nn.Parameter(bias.detach().clone())
        self._terms = terms

    def transform(self, states: Tensor) -> Tensor:
        return cast(Tensor, self.norm(self._act(self.dense(self.final(states)))))

    @property
    def rows(self) -> Tensor:
        return self.weight

    @property
    def bias(self) -> Tensor:
        return self.offset

    @property
    def d_in(self) -> int:
        return self.dense.in_features if isinstance(self.dense, nn.Linear) else super().d_in

    @property
    def terms(self) -> Sequence[str]:
        return self._terms

    def dimension_kind(self, num_tokens: int) -> str:
        return "sub-words" if self.size >= num_tokens else "words"

    def calibrate(self, states: Tensor, active_dims: int) -> None:
        """Shift all biases as ``Head.calibrate`` does; a head without biases gets biases."""
        if not isinstance(self.offset, nn.Parameter):
            zeros = self.offset
            del self.offset
            self.offset = nn.Parameter(zeros)
        super().calibrate(states, active_dims)

    def with_rows(self, rows: Tensor, bias: Tensor, terms: Sequence[str]) -> VocabularyHead:
        """Return a head with this transform over new rows, without bias if this head has none."""
        head = VocabularyHead(
            rows,
            bias if isinstance(self.offset, nn.Parameter) else None,
            terms,
            **self._transform_config(),
            settings=self.settings,
            d_in=self.d_in,
        )
        for name in ("final", "dense", "norm"):
            getattr(head, name).load_state_dict(getattr(self, name).state_dict())
        return head

    def expanded(self, subwords: Sequence[Sequence[int]], words: Sequence[str]) -> VocabularyHead:
        """Return a head over words: rows and biases are means over ``subwords``, the dimensions of
        each word's sub-words here (ESPLADE, section 3). Raises InputError for a word without."""
        for word, ids in zip(words, subwords, strict=True):
            if not ids or not all(0 <= subword < self.size for subword in ids):
                raise InputError(f"{word!r} has no sub-words in a vocabulary of {self.size}")
        # A bag of sub-words for each word.
        flat = torch.tensor([subword for ids in subwords for subword in ids], dtype=torch.long)
        lengths = torch.tensor([len(ids) for ids in subwords])
        offsets = torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)[:-1]])
        with torch.no_grad():
            weight = F.embedding_bag(flat, self.weight.cpu(), offsets, mode="mean")
            bias = F.embedding_bag(flat, self.offset.cpu()[:, None], offsets, mode="mean")
        return self.with_rows(weight, bias[:, 0], words)

    def random(self, size: int, seed: int = 0) -> VocabularyHead:
        """Return a head of random rows, with this head's standard deviation, and biases of 0."""
        generator = torch.Generator().manual_seed(seed)
        deviation = float(self.weight.detach().std())
        weight = torch.randn((size, self.rows.shape[1]), generator=generator) * deviation
        return self.with_rows(weight, torch.zeros(size), [f"#{i}" for i in range(size)])

    def _transform_config(self) -> dict[str, Any]:
        return {
            "activation": self.activation,
            "layer_norm_eps": self.layer_norm_eps,
            "final_norm": self.final_norm,
        }

    def get_config_dict(self) -> dict[str, Any]:
        return {**super().get_config_dict(), **self._transform_config()}

    def save(self, output_path: str, *args: Any, **kwargs: Any) -> None:
        """Write rows, transform, terms and settings into a module folder."""
        folder = Path(output_path)
        tensors = {name: tensor.contiguous() for name, tensor in self.state_dict().items()}
        replace_file(folder / "model.safetensors", to_safetensors(tensors))
        TextStore.write(folder / "terms", self._terms)
        write_json(folder / "config.json", self.get_config_dict())

    @classmethod
    def read(cls, folder: Path) -> VocabularyHead:
        settings, config = read_settings(folder)
        try:
            tensors = load_file(folder / "model.safetensors")
            terms = TextStore(folder / "terms")
            bias, dense = tensors.get("offset"), tensors.get("dense.weight")
            d_in = None if dense is None else dense.shape[1]
            head = cls(tensors["weight"], bias, terms, **config, settings=settings, d_in=d_in)
            head.load_state_dict(tensors)
        except (OSError, ValueError, KeyError, TypeError, RuntimeError, *DAMAGED) as error:
            raise InputError(f"{folder}: not a saved head: {error}") from None
        return head
