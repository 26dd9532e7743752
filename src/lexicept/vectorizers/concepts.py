"""Concepts: texts as activations of latents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import scipy.sparse as sp

from lexicept.errors import InputError
from lexicept.explanation.contributions import Span, whole
from lexicept.models.backbone import Backbone
from lexicept.models.encoder import Encoder
from lexicept.models.heads.base import Head
from lexicept.models.heads.sae import SAEHead
from lexicept.models.hub import model_folder
from lexicept.models.loading import DEFAULT_BACKBONE
from lexicept.models.sae.pretrained import find_pretrained_sae
from lexicept.models.windows import word_spans
from lexicept.storage.texts import TextStore

MINI = "lexicept-mini"
"""The name of the concept model in the package."""

_MINI_FOLDER = Path(__file__).parents[1] / "mini"


@dataclass(frozen=True)
class BackboneSettings:
    """Whose states the concepts are learned from."""

    name: str = DEFAULT_BACKBONE
    """A hub name or a folder."""
    layer: int | None = None
    """Blocks to run, all by default."""
    precision: str = "float32"
    """That documents are read in, see ``Backbone``."""


class ConceptVectorizer:
    """Texts to the pooled activation of every dimension of a head.

    Args:
        encoder: the encoder.
        terms: a name per dimension; the head's own or its number by default.
    """

    name = "concepts"
    grows = False

    def __init__(self, encoder: Encoder, terms: Sequence[str] | None = None) -> None:
        self.encoder = encoder
        terms = self.head.terms if terms is None else terms
        self.named = terms is not None
        """Whether it is known what the dimensions stand for."""
        self._terms = [f"#{latent}" for latent in range(self.size)] if terms is None else terms

    @classmethod
    def pretrained(
        cls, source: str, backbone: BackboneSettings, width: int | None = None
    ) -> ConceptVectorizer:
        """The latents of a pretrained SAE; see ``sae.pretrained.find_pretrained_sae``.

        Args:
            backbone: its layer is the SAE's own by default.

        Raises:
            InputError: no such SAE or backbone, or two that do not fit.
        """
        found = find_pretrained_sae(source, backbone.layer, width)
        if found.layer is None and found.layout.hook is None:
            raise InputError(f"{source}: after how many blocks it reads is unknown: name the layer")
        base = Backbone.from_pretrained(backbone.name, found.layer, precision=backbone.precision)
        return cls(Encoder.of(base, SAEHead(found.load(backbone=base))))

    @property
    def head(self) -> Head:
        """The encoder's head."""
        return self.encoder.head

    @property
    def precision(self) -> str:
        """That documents are read in, see ``Backbone``."""
        return self.encoder.backbone.precision

    @precision.setter
    def precision(self, value: str) -> None:
        self.encoder.backbone.precision = value

    @property
    def size(self) -> int:
        """Number of dimensions."""
        return self.head.size

    @property
    def terms(self) -> Sequence[str]:
        """The name of every dimension."""
        return self._terms

    def documents(self, texts: Sequence[str]) -> sp.csr_array:
        """The pooled activation of every dimension in every document [n, size]."""
        return self.encoder.encode_activations(texts, "document")

    def queries(self, texts: Sequence[str]) -> sp.csr_array:
        """The same for queries."""
        return self.encoder.encode_activations(texts, "query")

    def spans(
        self, text: str, dimensions: Sequence[int], task: Literal["query", "document"]
    ) -> dict[int, tuple[Span, ...]]:
        """The word whose token each dimension is most active on; of a query that needs no
        inference, the tokens that name it."""
        lookup = self.encoder.lookup
        if task == "query" and lookup is not None:
            places = lookup.places(text)
        else:
            tokens = self.encoder.strongest_tokens(text, dimensions, task)
            places = {
                dimension: [word_spans(window)[place]]
                for dimension, (window, place) in tokens.items()
            }
        return {
            dimension: tuple(whole(text, *place) for place in places.get(dimension, ()))
            for dimension in dimensions
        }

    def save(self, folder: Path) -> None:
        """Write the encoder, ``model``, and the names into a folder."""
        self.encoder.save(str(folder / "model"), create_model_card=False)
        TextStore.write(folder / "terms", self._terms)

    @classmethod
    def load(cls, source: str | Path) -> ConceptVectorizer:
        """Read what ``save`` wrote, an encoder's own folder, with the names of its dimensions
        (``terms``) or without, or the model in the package.

        Args:
            source: a folder, a hub's name of an encoder, or ``MINI``.

        Raises:
            InputError: none of them.
        """
        folder = _MINI_FOLDER if source == MINI else model_folder(source)
        alone = not (folder / "model").is_dir()
        encoder = Encoder.load(folder if alone else folder / "model")
        if alone and not (folder / "terms.bin").exists():
            return cls(encoder)
        terms = TextStore(folder / "terms")
        if len(terms) != encoder.head.size:
            raise InputError(f"{folder}: {len(terms)} names for another number of dimensions")
        return cls(encoder, terms)
