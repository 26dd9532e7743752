"""The encoder: a backbone and a head as a ``SparseEncoder`` of sentence-transformers."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from importlib.metadata import entry_points
from itertools import chain
from pathlib import Path
from typing import Any, Self, cast

import scipy.sparse as sp
import torch
from sentence_transformers import SparseEncoder

from lexicept.checks import Count, check
from lexicept.encoding.hub import model_folder
from lexicept.encoding.index_settings import IndexSettings
from lexicept.encoding.pooled import POOL_CELLS, TokenReader, pooled_activations
from lexicept.encoding.windows import Window, prompt_for
from lexicept.errors import InputError, message_of
from lexicept.neural.backbones.backbone import Backbone
from lexicept.neural.heads.base import Head
from lexicept.neural.heads.sae import SAEHead
from lexicept.neural.heads.vocabulary import VocabularyHead
from lexicept.storage.files import read_json
from lexicept.storage.texts import TextStore
from lexicept.vectors import stack_rows
from lexicept.weighting import Weighting

_DEFAULT = IndexSettings()

_NAMES = "terms"

HEADS = "lexicept.heads"
"""Group of entry points with subclasses of ``Head`` in installed packages."""

_KNOWN: tuple[type[Head], ...] = (SAEHead, VocabularyHead)


def _head_type(path: str) -> Any:
    """Return the head class of a path among those imported or installed: a model's folder can't
    have other code imported. Raises InputError for another class."""
    installed = (entry_point.load() for entry_point in entry_points(group=HEADS))
    for head_type in chain(_KNOWN, _subclasses(Head), installed):
        if path == f"{head_type.__module__}.{head_type.__qualname__}":
            return head_type
    raise InputError(f"its head {path} is neither imported nor an entry point of {HEADS!r}")


def _subclasses(head_type: Any) -> Iterator[Any]:
    for subclass in head_type.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)


class Encoder(SparseEncoder, TokenReader):  # type: ignore[misc]
    """A learned sparse encoder: texts → hidden states of a backbone → sparse vectors of a head.

    ``encode_query``, ``encode_document`` and ``save`` are those of sentence-transformers. A saved
    folder is loaded by ``Encoder.load``, or by ``SparseEncoder(path, trust_remote_code=True)``.
    """

    index_settings: IndexSettings = _DEFAULT
    """Weighting of the activations in an index, and limits on a query's cost."""

    names: Sequence[str] | None = None
    """The name of each dimension, saved beside the model; None for the head's own, if any."""

    @classmethod
    def of(
        cls, backbone: Backbone | None, head: Head, index_settings: IndexSettings = _DEFAULT
    ) -> Self:
        """Make an encoder of a backbone and a head; without a backbone, of hidden states, for
        training over cached states. Raises InputError for different sizes."""
        modules: list[Any] = [head] if backbone is None else [backbone, head]
        if backbone is not None and head.d_in != (d := backbone.get_embedding_dimension()):
            raise InputError(f"a head for states of size {head.d_in} on a backbone of size {d}")
        encoder = cls(modules=modules, similarity_fn_name="dot")
        encoder.index_settings = index_settings
        if backbone is not None:
            encoder.eval()
        return encoder

    @classmethod
    def load(cls, path: str | os.PathLike[str], revision: str | None = None) -> Self:
        """Load a saved encoder, from a folder or by a hub name (owner/name) with a revision
        (branch, tag or commit), without running code from the folder.

        Raises InputError for anything but a saved encoder here, on the hub or in the hub's cache;
        ``converters.reading.open_encoder`` opens models of other libraries too.
        """
        folder = model_folder(path, revision)
        listed = folder / "modules.json"
        if not listed.exists():
            raise InputError(f"{folder}: no saved encoder (modules.json is missing)")
        text = listed.read_bytes()
        if b'"sentence_transformers.' in text and b'"lexicept.' not in text:
            raise InputError(
                f"{folder}: a model of sentence-transformers; lexicept model convert makes one of "
                "lexicept's of it"
            )
        try:
            modules = json.loads(text)
            backbone = Backbone.load(str(folder))
            head = _head_type(modules[1]["type"]).load(str(folder), subfolder=modules[1]["path"])
            encoder = cls.of(backbone, head, IndexSettings.read(folder))
            encoder.read_settings(folder)
            if (folder / f"{_NAMES}.bin").exists():
                encoder.names = TextStore(folder / _NAMES)
                if len(encoder.names) != head.size:
                    raise InputError(f"{len(encoder.names)} names for {head.size} dimensions")
            return encoder
        except Exception as error:  # the libraries that read its modules raise many kinds
            raise InputError(f"{folder}: can't be loaded: {message_of(error)}") from None

    def read_settings(self, folder: Path) -> None:
        """Read the prompts and the limit of active dimensions of a saved encoder."""
        config = read_json(folder / "config_sentence_transformers.json")
        self.prompts: dict[str, str] = {"query": "", "document": "", **config.get("prompts", {})}
        self.default_prompt_name = config.get("default_prompt_name")
        self.max_active_dims = config.get("max_active_dims")
        if not all(isinstance(prompt, str) for prompt in self.prompts.values()):
            raise InputError(f"prompts must be texts, not {self.prompts!r:.80}")
        check("max_active_dims", self.max_active_dims, Count | None)

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
        check("top_k", top_k, Count | None)
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
        for (index, dimension), weight in zip(
            vectors.indices()[:, order].T.tolist(), weights.tolist(), strict=True
        ):
            if weight and len(decoded[index]) < (top_k or self.head.size):
                name = f"#{dimension}" if named is None else named[dimension]
                decoded[index].append((name, weight))
        return decoded if embeddings.ndim == 2 else decoded[0]

    @property
    def backbone(self) -> Backbone:
        """The network that turns texts into hidden states."""
        return cast(Backbone, self[0])

    @property
    def head(self) -> Head:
        """The part that turns hidden states into sparse vectors."""
        return cast(Head, self[-1])

    @property
    def weighting(self) -> Weighting:
        """The index's weighting of pooled activations."""
        settings = self.head.settings
        return self.index_settings.weigh(settings.pooling, settings.query_scale)

    def encode_activations(self, texts: Sequence[str], task: str = "document") -> sp.csr_array:
        """See ``TokenReader``. No dense array has more than about ``POOL_CELLS`` cells."""
        step = max(1, POOL_CELLS // self.head.size)
        blocks = []
        for start in range(0, len(texts), step):
            chunk = texts[start : start + step]
            blocks.append(pooled_activations(self.head, self.read(chunk, task), len(chunk), task))
        return stack_rows(blocks, self.head.size)

    def windows(self, texts: Sequence[str], task: str = "document") -> list[Window]:
        return self.backbone.windows(texts, task=task)

    def token_states(
        self, windows: Sequence[Window], task: str = "document"
    ) -> Iterator[tuple[list[int], torch.Tensor]]:
        return self.backbone.token_states(windows, task)
