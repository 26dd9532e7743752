"""Heads: hidden states of tokens → one sparse vector per text.

Every head is a linear map over a vocabulary, ``v_i = rows · transform(h_i) + bias``, then ReLU, the
k largest of every token, pooling and log1p. Heads differ in the vocabulary and in where the rows
come from.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file
from safetensors.torch import save as to_safetensors
from sentence_transformers.base.modules import Module
from sentence_transformers.util import select_max_active_dims
from torch import Tensor, nn
from transformers import AutoModelForMaskedLM, AutoTokenizer
from transformers.activations import ACT2FN

from lexicept.backbone import quiet_transformers, resolve
from lexicept.errors import IndexFormatError, InputError
from lexicept.ops.pooling import pool_max, pool_sum
from lexicept.ops.topk import top_columns
from lexicept.sae.model import TopKSAE
from lexicept.storage import TextStore, replace_file, write_json
from lexicept.weighting import BM25, Splade, Unchanged, Weighting

_DAMAGED = (SafetensorError, IndexFormatError)


@dataclass(frozen=True)
class HeadSettings:
    """What a head does with a text's tokens; the same for both sides, or not."""

    pooling: Literal["max", "sum"] = "max"
    """``log1p(max_i v_ij)`` (SPLADE v2) or ``Σ_i log1p(v_ij)`` (SPLADE)."""
    query_k: int | None = None
    """Active dimensions per query token; None for no constraint."""
    document_k: int | None = None
    """Active dimensions per document token; None for no constraint."""
    query_max_active_dims: int | None = None
    """Dimensions left in a query, those of the largest weights; None keeps all."""
    document_max_active_dims: int | None = None
    """Dimensions left in a document; None keeps all."""
    query_scale: float = 1.0
    """A factor on a query's weights, where they meet another vocabulary's in one score."""
    weighting: Literal["bm25", "splade"] = "bm25"
    """How an index weighs activations: as BM25 weighs words, which suits concepts that only
    reconstruct, or as they are pooled, as heads are trained for ranking."""
    k1: float = 1.5
    """Of BM25."""
    b: float = 0.75
    """Of BM25."""

    def __post_init__(self) -> None:
        if self.pooling not in ("max", "sum"):
            raise InputError(f"pooling is max or sum, not {self.pooling!r}")
        if self.weighting not in ("bm25", "splade"):
            raise InputError(f"weighting is bm25 or splade, not {self.weighting!r}")
        for name, value in asdict(self).items():
            if name.endswith(("_k", "_dims")) and value is not None and value < 1:
                raise InputError(f"{name} must be at least 1 or null, not {value}")

    def weigh(self) -> Weighting:
        """What makes weights of pooled activations."""
        if self.weighting == "bm25":
            return BM25(self.k1, self.b, k3=1.0)
        return Splade(self.query_scale) if self.pooling == "max" else Unchanged(self.query_scale)

    def k(self, task: str | None) -> int | None:
        """Active dimensions per token."""
        return self.query_k if task == "query" else self.document_k

    def max_active_dims(self, task: str | None) -> int | None:
        """Dimensions left in a text; all where the task is unknown."""
        return {"query": self.query_max_active_dims, "document": self.document_max_active_dims}.get(
            task or ""
        )


class Head(Module):  # type: ignore[misc]
    """States of tokens to sparse vectors: the last module of an encoder.

    ``forward`` turns ``token_embeddings`` [windows, length, d] into ``sentence_embedding``
    [texts, size]; padding and special tokens are left out before the head, and no array of
    tokens × vocabulary outlives it.
    """

    forward_kwargs: ClassVar[set[str]] = {"task", "max_active_dims"}
    settings: HeadSettings

    @abstractmethod
    def transform(self, states: Tensor) -> Tensor:
        """What the rows are multiplied with: [n, d] from states [n, d]."""

    @property
    @abstractmethod
    def rows(self) -> Tensor:
        """One row per dimension of the vocabulary [size, d]."""

    @property
    @abstractmethod
    def bias(self) -> Tensor:
        """[size]."""

    @property
    def gain(self) -> Tensor | float:
        """A factor on all activations."""
        return 1.0

    @property
    def terms(self) -> Sequence[str] | None:
        """What a person sees for each dimension; None where that has to be found out."""
        return None

    @property
    def size(self) -> int:
        """Dimensions of the vocabulary."""
        return len(self.rows)

    @property
    def d_in(self) -> int:
        """Size d of a state."""
        return int(self.rows.shape[1])

    def encode(self, states: Tensor, k: int | None = None) -> tuple[Tensor, Tensor]:
        """The k most active dimensions of every token.

        Args:
            states: [n, d].
            k: the document side's own by default.

        Returns:
            Activations, at least 0, and dimensions, both [n, k].
        """
        k = min(k or self.settings.document_k or self.size, self.size)
        pre = torch.addmm(self.bias, self.transform(states), self.rows.T)
        dimensions = top_columns(pre.detach(), k)
        return F.relu(pre.gather(1, dimensions)) * self.gain, dimensions

    def pool(self, states: Tensor, text: Tensor, num_texts: int, task: str | None = None) -> Tensor:
        """A text's activations [num_texts, size] before log1p, or with sum pooling their sum after
        it, from states [n, d] and the text of each token [n]."""
        x, k = self.transform(states), self.settings.k(task)
        if self.settings.pooling == "max":
            return pool_max(x, text, num_texts, self.rows, self.bias, k) * self.gain
        # ReLU is homogeneous: the gain may be in the map already.
        rows, bias = self.rows * self.gain, self.bias * self.gain
        return pool_sum(x, text, num_texts, rows, bias, k)

    def forward(
        self,
        features: dict[str, Any],
        task: str | None = None,
        max_active_dims: int | None = None,
        **_: Any,
    ) -> dict[str, Any]:
        """Add ``sentence_embedding`` [texts, size].

        Raises:
            InputError: the module before it was not a ``Backbone``.
        """
        if "token_mask" not in features:
            raise InputError("a head needs the token_mask of lexicept.backbone.Backbone before it")
        mask = features["token_mask"]
        text = features["window_text"][:, None].expand(mask.shape)[mask]
        # In training the collator loses plain numbers; every text has at least one window.
        num_texts = int(features["window_text"].max()) + 1
        pooled = self.pool(features["token_embeddings"][mask], text, num_texts, task)
        vectors = torch.log1p(pooled) if self.settings.pooling == "max" else pooled
        limit = max_active_dims or self.settings.max_active_dims(task)
        if limit is not None and limit < self.size:
            vectors = select_max_active_dims(vectors, limit)
        if task == "query" and self.settings.query_scale != 1:
            vectors = vectors * self.settings.query_scale
        features["sentence_embedding"] = vectors
        return features

    def get_embedding_dimension(self) -> int:
        """Size of the vocabulary."""
        return self.size

    def configure(self, **changes: Any) -> None:
        """Change some of the settings. Raises InputError for values out of range."""
        self.settings = replace(self.settings, **changes)

    def get_config_dict(self) -> dict[str, Any]:
        return asdict(self.settings)

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", **kwargs: Any) -> Head:
        """Read a module folder, of a local model or a hub's.

        Raises:
            InputError: no such head there.
        """
        hub = {
            name: kwargs[name]
            for name in ("token", "cache_folder", "revision", "local_files_only")
            if name in kwargs
        }
        folder = cls.load_dir_path(model_name_or_path, subfolder=subfolder, **hub)
        if folder is None:
            raise InputError(f"{model_name_or_path}: no head in {subfolder!r}")
        return cls.read(Path(folder))

    @classmethod
    @abstractmethod
    def read(cls, folder: Path) -> Head:
        """Read a local module folder. Raises InputError for anything else."""

    @staticmethod
    def read_settings(folder: Path) -> tuple[HeadSettings, dict[str, Any]]:
        """A saved head's settings, and what else its configuration holds."""
        try:
            config = {**json.loads((folder / "config.json").read_bytes())}
            names = HeadSettings.__dataclass_fields__
            settings = HeadSettings(**{n: config.pop(n) for n in list(config) if n in names})
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise InputError(f"{folder}: no configuration of a head: {error}") from None
        return settings, config


class SAEHead(Head):
    """The encoder of a sparse autoencoder: dimensions are latents (SAE-SPLADE, section 3).

    Args:
        sae: its decoder is kept, unused.
        settings: by default the SAE's own k for both sides.
    """

    def __init__(self, sae: TopKSAE, settings: HeadSettings | None = None) -> None:
        super().__init__()
        self.sae = sae
        self.settings = settings or HeadSettings(query_k=sae.k, document_k=sae.k)

    def transform(self, states: Tensor) -> Tensor:
        return self.sae.normalise(states) - self.sae.b_dec

    @property
    def rows(self) -> Tensor:
        return self.sae.W_enc

    @property
    def bias(self) -> Tensor:
        return self.sae.b_enc

    @property
    def gain(self) -> Tensor:
        return self.sae.scale

    def save(self, output_path: str, *args: Any, **kwargs: Any) -> None:
        """Write the SAE and the settings into a module folder."""
        self.sae.save(Path(output_path))
        write_json(Path(output_path) / "config.json", self.get_config_dict())

    @classmethod
    def read(cls, folder: Path) -> SAEHead:
        settings, _ = cls.read_settings(folder)
        return cls(TopKSAE.load(folder), settings)


class VocabularyHead(Head):
    """A masked-language-modelling head: dimensions are sub-words or words.

    ``v = rows · LayerNorm(act(dense · h)) + bias``. SPLADE takes the backbone's own rows, ESPLADE
    the means of sub-words' rows; see ``masked_language_head``, ``expanded`` and ``random``.

    Args:
        rows: [size, d]; copied.
        bias: [size].
        terms: what each dimension stands for.
        activation: a name that transformers knows.
        final_norm: whether h goes through a norm first, as in ModernBERT after the last block.
    """

    def __init__(
        self,
        rows: Tensor,
        bias: Tensor,
        terms: Sequence[str],
        activation: str = "gelu",
        layer_norm_eps: float = 1e-12,
        final_norm: bool = False,
        settings: HeadSettings | None = None,
    ) -> None:
        super().__init__()
        if not len(rows) == len(bias) == len(terms):
            raise InputError(f"{len(rows)} rows, {len(bias)} biases and {len(terms)} terms")
        if activation not in ACT2FN:
            raise InputError(f"no activation function {activation!r}")
        d = rows.shape[1]
        self.settings = settings or HeadSettings()
        self.activation = activation
        self.final = nn.LayerNorm(d, eps=layer_norm_eps) if final_norm else nn.Identity()
        self.dense = nn.Linear(d, d)
        self.norm = nn.LayerNorm(d, eps=layer_norm_eps)
        with torch.no_grad():
            self.dense.weight.copy_(torch.eye(d))
            self.dense.bias.zero_()
        self.weight = nn.Parameter(rows.detach().clone())
        self.offset = nn.Parameter(bias.detach().clone())
        self._terms = terms
        self._act = ACT2FN[activation]

    def transform(self, states: Tensor) -> Tensor:
        return cast(Tensor, self.norm(self._act(self.dense(self.final(states)))))

    @property
    def rows(self) -> Tensor:
        return self.weight

    @property
    def bias(self) -> Tensor:
        return self.offset

    @property
    def terms(self) -> Sequence[str]:
        return self._terms

    def with_rows(
        self, rows: Tensor, bias: Tensor, terms: Sequence[str], settings: HeadSettings | None = None
    ) -> VocabularyHead:
        """The same transform over another vocabulary."""
        own = self._own_config()
        head = VocabularyHead(rows, bias, terms, **own, settings=settings or self.settings)
        for name in ("final", "dense", "norm"):
            getattr(head, name).load_state_dict(getattr(self, name).state_dict())
        return head

    def expanded(self, pieces: Sequence[Sequence[int]], words: Sequence[str]) -> VocabularyHead:
        """A head over words: each row and bias is the mean of its pieces' (ESPLADE, section 3).

        Args:
            pieces: the dimensions of this head that each word is made of.
            words: the terms.

        Raises:
            InputError: a word without pieces, or pieces outside this vocabulary.
        """
        for word, parts in zip(words, pieces, strict=True):
            if not parts or not all(0 <= part < self.size for part in parts):
                raise InputError(f"{word!r} has no pieces in a vocabulary of {self.size}")
        flat = torch.tensor([part for parts in pieces for part in parts], dtype=torch.long)
        lengths = torch.tensor([len(parts) for parts in pieces])
        offsets = torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)[:-1]])
        with torch.no_grad():
            rows = F.embedding_bag(flat, self.weight.cpu(), offsets, mode="mean")
            bias = F.embedding_bag(flat, self.offset.cpu()[:, None], offsets, mode="mean")
        return self.with_rows(rows, bias[:, 0], words)

    def random(self, size: int, seed: int = 0) -> VocabularyHead:
        """A head over dimensions without a meaning: rows as long as this head's, biases 0."""
        generator = torch.Generator().manual_seed(seed)
        deviation = float(self.weight.detach().std())
        rows = torch.randn((size, self.d_in), generator=generator) * deviation
        return self.with_rows(rows, torch.zeros(size), [f"#{number}" for number in range(size)])

    def _own_config(self) -> dict[str, Any]:
        return {
            "activation": self.activation,
            "layer_norm_eps": self.norm.eps,
            "final_norm": isinstance(self.final, nn.LayerNorm),
        }

    def get_config_dict(self) -> dict[str, Any]:
        return {**super().get_config_dict(), **self._own_config()}

    def save(self, output_path: str, *args: Any, **kwargs: Any) -> None:
        """Write rows, transform, terms and settings into a module folder."""
        folder = Path(output_path)
        tensors = {name: tensor.contiguous() for name, tensor in self.state_dict().items()}
        replace_file(folder / "model.safetensors", to_safetensors(tensors))
        TextStore.write(folder / "terms", self._terms)
        write_json(folder / "config.json", self.get_config_dict())

    @classmethod
    def read(cls, folder: Path) -> VocabularyHead:
        settings, own = cls.read_settings(folder)
        try:
            tensors = load_file(folder / "model.safetensors")
            terms = TextStore(folder / "terms")
            head = cls(tensors["weight"], tensors["offset"], terms, **own, settings=settings)
            head.load_state_dict(tensors)
        except (OSError, ValueError, KeyError, TypeError, RuntimeError, *_DAMAGED) as error:
            raise InputError(f"{folder}: not a saved head: {error}") from None
        return head


def masked_language_head(name: str) -> VocabularyHead:
    """The head that a backbone was pretrained with; see ``VocabularyHead``.

    Where a checkpoint has none, the rows are its input embeddings and the dense layer passes states
    on: such a head needs ``pretraining`` before it means anything.

    Args:
        name: a hub name or a folder, as for ``Backbone.from_pretrained``.

    Raises:
        InputError: no such model, or a head of another form than dense, activation, norm.
    """
    path = resolve(name)
    try:
        with quiet_transformers():
            tokenizer = AutoTokenizer.from_pretrained(path)
            model, report = AutoModelForMaskedLM.from_pretrained(path, output_loading_info=True)
    except (OSError, ValueError) as error:
        reason = str(error).strip().split("\n")[0]
        raise InputError(f"no masked language model can be made of {name!r}: {reason}") from None
    inside = {id(module) for module in model.base_model.modules()}
    output = model.get_output_embeddings()
    outside = [m for m in model.modules() if id(m) not in inside and m is not output]
    dense = [m for m in outside if isinstance(m, nn.Linear)]
    norms = [m for m in outside if isinstance(m, nn.LayerNorm)]
    rows = model.get_input_embeddings().weight
    names = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    terms = [term or f"#{n}" for n, term in enumerate(names)][: len(rows)]
    terms += [f"#{n}" for n in range(len(terms), len(rows))]
    new = {key.rsplit(".", 1)[0] for key in report["missing_keys"]}
    trained = not any(model.get_submodule(key) in dense for key in new if key)
    # A backbone's states are those before any final norm.
    final = getattr(model.base_model, "final_norm", None)
    own: dict[str, Any] = {"final_norm": final is not None}
    if final is not None:
        own["layer_norm_eps"] = final.eps
    bias = torch.zeros(len(rows))
    if trained:
        if len(dense) != 1 or len(norms) != 1 or dense[0].weight.shape[0] != rows.shape[1]:
            raise InputError(f"{name}: its head is not one dense layer, activation and norm")
        known = ("classifier_activation", "activation", "hidden_act")
        config = model.config
        own["activation"] = next(str(getattr(config, key)) for key in known if hasattr(config, key))
        own["layer_norm_eps"] = norms[0].eps
        rows, bias = output.weight, bias if output.bias is None else output.bias
    head = VocabularyHead(rows, bias, terms, **own)
    if final is not None:
        head.final.load_state_dict(final.state_dict(), strict=False)  # it may have no bias
    if not trained:
        return head
    head.norm.load_state_dict(norms[0].state_dict(), strict=False)
    with torch.no_grad():
        head.dense.weight.copy_(dense[0].weight)
        if dense[0].bias is not None:
            head.dense.bias.copy_(dense[0].bias)
    return head
