"""The encoder: a backbone and a head as a ``SparseEncoder`` of sentence-transformers."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
import scipy.sparse as sp
import torch
from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules import Router

from lexicept.errors import InputError, check_count, message_of
from lexicept.models.backbone import Backbone
from lexicept.models.heads.base import Head
from lexicept.models.heads.sae import SAEHead
from lexicept.models.heads.vocabulary import VocabularyHead
from lexicept.models.hub import model_folder
from lexicept.models.index_settings import IndexSettings
from lexicept.models.lookup import Lookup
from lexicept.models.pooled import POOL_CELLS, TokenReader, pooled_activations
from lexicept.models.windows import Window, prompt_for
from lexicept.storage.files import read_json
from lexicept.storage.texts import TextStore
from lexicept.weighting import Weighting

_DEFAULT = IndexSettings()

_NAMES = "terms"

HEAD_TYPES: tuple[type[Head], ...] = (SAEHead, VocabularyHead)
"""Heads that a saved encoder may end in: a new kind is a subclass of ``Head``, listed here."""

_MODULES: dict[str, Any] = {
    f"{module.__module__}.{module.__name__}": module for module in (Backbone, Lookup, *HEAD_TYPES)
}


class Encoder(SparseEncoder, TokenReader):  # type: ignore[misc]
    """A learned sparse encoder: texts → hidden states of a backbone → sparse vectors of a head.

    ``encode_query``, ``encode_document`` and ``save`` are those of sentence-transformers. A saved
    folder is loaded by ``Encoder.load``, or by ``SparseEncoder(path, trust_remote_code=True)``.
    With a lookup, the lookup encodes queries instead of backbone and head.
    """

    index_settings: IndexSettings = _DEFAULT
    """Weighting of the activations in an index, and limits on a query's cost."""

    names: Sequence[str] | None = None
    """The name of each dimension, saved beside the model; None for the head's own, if any."""

    @classmethod
    def of(
        cls,
        backbone: Backbone | None,
        head: Head,
        lookup: Lookup | None = None,
        index_settings: IndexSettings = _DEFAULT,
    ) -> Self:
        """Make an encoder of a backbone, a head and perhaps a lookup for queries; without a
        backbone, of hidden states, for training over cached states. Raises InputError for different
        sizes."""
        modules: list[Any] = [head] if backbone is None else [backbone, head]
        if backbone is not None and head.d_in != (d := backbone.get_embedding_dimension()):
            raise InputError(f"a head for states of size {head.d_in} on a backbone of size {d}")
        if lookup is not None:
            if lookup.num_dimensions != head.size:
                raise InputError(f"a lookup of {lookup.num_dimensions} for a head of {head.size}")
            modules = [Router.for_query_document([lookup], modules)]
        encoder = cls(modules=modules, similarity_fn_name="dot")
        encoder.index_settings = index_settings
        if backbone is not None:
            encoder.cut(backbone.max_query_tokens, backbone.max_document_tokens)
            encoder.eval()
        return encoder

    @classmethod
    def load(cls, path: str | os.PathLike[str], revision: str | None = None) -> Self:
        """Load a saved encoder, from a folder or by a hub name (owner/name) with a revision
        (branch, tag or commit), without running code from the folder.

        Raises InputError for anything but a saved encoder here, on the hub or in the hub's cache;
        ``converters.open_encoder`` opens models of other libraries too.
        """
        folder = model_folder(path, revision)
        listed = [folder / name for name in ("modules.json", "router_config.json")]
        if not listed[0].exists():
            raise InputError(f"{folder}: no saved encoder (modules.json is missing)")
        text = b"".join(file.read_bytes() for file in listed if file.is_file())
        if b'"sentence_transformers.' in text and b'"lexicept.' not in text:
            raise InputError(
                f"{folder}: a model of sentence-transformers; lexicept model convert makes one of "
                "lexicept's of it"
            )
        try:
            entries = json.loads((folder / "modules.json").read_bytes())
            if len(entries) == 1:
                # A lookup for queries stands beside backbone and head in a router.
                router = Router.load(str(folder), entries[0]["path"], module_classes=_MODULES)
                sides = router.sub_modules
                (lookup,), (backbone, head) = sides["query"], sides["document"]
            else:
                lookup, head_type = None, _MODULES[entries[1]["type"]]
                backbone = Backbone.load(str(folder))
                head = head_type.load(str(folder), subfolder=entries[1]["path"])
            encoder = cls.of(backbone, head, lookup, IndexSettings.read(folder))
            encoder._read_settings(folder)
            if (folder / f"{_NAMES}.bin").exists():
                encoder.names = TextStore(folder / _NAMES)
                if len(encoder.names) != head.size:
                    raise InputError(f"{len(encoder.names)} names for {head.size} dimensions")
            return encoder
        except Exception as error:  # the libraries that read its modules raise many kinds
            raise InputError(f"{folder}: can't be loaded: {message_of(error)}") from None

    def _read_settings(self, folder: Path) -> None:
        """Read the prompts and the limit of active dimensions of a saved encoder."""
        config = read_json(folder / "config_sentence_transformers.json")
        self.prompts: dict[str, str] = {"query": "", "document": "", **config.get("prompts", {})}
        self.default_prompt_name = config.get("default_prompt_name")
        self.max_active_dims = config.get("max_active_dims")
        if not all(isinstance(prompt, str) for prompt in self.prompts.values()):
            raise InputError(f"prompts must be texts, not {self.prompts!r:.80}")
        check_count("max_active_dims", 1 if self.max_active_dims is None else self.max_active_dims)

    def prompt(self, task: str) -> str:
        return prompt_for(task, self.prompts, self.default_prompt_name)

    def save(self, path: str, *args: Any, names: bool = True, **kwargs: Any) -> None:
        """Write the encoder and its index settings into a folder, with ``names`` if asked for; see
        ``SparseEncoder.save``."""
        super().save(path, *args, **kwargs)
        self.index_settings.write(Path(path))
        if names and self.names is not None:
            TextStore.write(Path(path) / _NAMES, self.names)

    def decode(self, embeddings: torch.Tensor, top_k: int | None = None) -> list[Any]:
        """Return the names of a vector's dimensions, each with its weight, largest first.

        Args:
            embeddings: a vector [size] or several [n, size], sparse or dense.
            top_k: the most dimensions of a vector, at least 1; None for all non-zero ones.

        Returns:
            A list of (name, weight) for a vector, a list of lists for several. An unnamed dimension
            is shown as a number, as in "#12".

        Raises:
            InputError: ``top_k`` below 1, or vectors of another size.
        """
        check_count("top_k", 1 if top_k is None else top_k)
        if embeddings.ndim not in (1, 2) or embeddings.shape[-1] != self.head.size:
            shape = list(embeddings.shape)
            raise InputError(
                f"vectors are [{self.head.size}] or [n, {self.head.size}], not {shape}"
            )
        vectors = embeddings if embeddings.ndim == 2 else embeddings.unsqueeze(0)
        vectors = vectors.to_sparse().coalesce()
        weights, order = vectors.values().sort(descending=True, stable=True)
        decoded: list[list[tuple[str, float]]] = [[] for _ in range(len(vectors))]
        named = self.head.terms if self.names is None else self.names
        # By falling weight, each list begins with its largest.
        for (number, dimension), weight in zip(
            vectors.indices()[:, order].T.tolist(), weights.tolist(), strict=True
        ):
            if weight and len(decoded[number]) < (top_k or self.head.size):
                name = f"#{dimension}" if named is None else named[dimension]
                decoded[number].append((name, weight))
        return decoded if embeddings.ndim == 2 else decoded[0]

    @property
    def _document_modules(self) -> list[Any]:
        """Modules for documents: backbone and head, or a head alone."""
        if isinstance(self[0], Router):
            return list(self[0].sub_modules["document"])
        return list(self)

    @property
    def backbone(self) -> Backbone:
        """The backbone."""
        return cast(Backbone, self._document_modules[0])

    @property
    def head(self) -> Head:
        """The head."""
        return cast(Head, self._document_modules[-1])

    @property
    def lookup(self) -> Lookup | None:
        """Table of query weights; None if backbone and head encode queries."""
        return self[0].sub_modules["query"][0] if isinstance(self[0], Router) else None

    def cut(self, max_query_tokens: int | None, max_document_tokens: int | None) -> None:
        """Set the lengths after which texts are cut; see ``Backbone.cut``. Queries that are looked
        up have no special tokens."""
        self.backbone.cut(max_query_tokens, max_document_tokens)
        if self.lookup is not None:
            self.lookup.max_query_tokens = max_query_tokens

    @property
    def weighting(self) -> Weighting:
        """The index's weighting of pooled activations."""
        settings = self.head.settings
        return self.index_settings.weigh(settings.pooling, settings.query_scale)

    def encode_activations(self, texts: Sequence[str], task: str = "document") -> sp.csr_array:
        """See ``TokenReader``. No dense array has more than about ``POOL_CELLS`` cells."""
        step = max(1, POOL_CELLS // self.head.size)
        blocks = [sp.csr_array((0, self.head.size), dtype=np.float32)]
        for start in range(0, len(texts), step):
            some = texts[start : start + step]
            if task == "query" and self.lookup is not None:
                prompted = [self.prompt(task) + text for text in some]
                blocks.append(_look_up(self.lookup, prompted, self.head))
            else:
                blocks.append(pooled_activations(self.head, self.read(some, task), len(some), task))
        return sp.csr_array(sp.vstack(blocks, format="csr"))

    def windows(self, texts: Sequence[str], task: str = "document") -> list[Window]:
        return self.backbone.windows(texts, task=task)

    def token_states(
        self, windows: Sequence[Window], task: str = "document"
    ) -> Iterator[tuple[list[int], torch.Tensor]]:
        return self.backbone.token_states(windows, task)


def _look_up(lookup: Lookup, texts: Sequence[str], head: Head) -> sp.csr_array:
    """Return a lookup's query weights in the units of a head's pooled activations."""
    with torch.inference_mode():
        weights = lookup(lookup.preprocess(list(texts)))["sentence_embedding"]
    pooled = sp.csr_array(weights.cpu().numpy())
    if head.settings.pooling == "max":  # a head's weights are log1p of pooled activations
        pooled.data = np.expm1(pooled.data)
    return pooled
