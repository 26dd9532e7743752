"""Concepts: texts as activations of a head's dimensions."""

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
    """The backbone whose states an SAE reads."""

    name: str = DEFAULT_BACKBONE
    """A hub name or a folder."""
    layer: int | None = None
    """Number of blocks to run; all by default."""
    precision: str = "float32"
    """Precision for documents, float32 or bfloat16; see ``Backbone``."""


class ConceptVectorizer:
    """A vectorizer: texts → the pooled activation of every dimension of an encoder's head.

    Args:
        encoder: the encoder.
        terms: a name per dimension; by default the head's own, or the dimension's number.
    """

    name = "concepts"
    grows = False

    def __init__(self, encoder: Encoder, terms: Sequence[str] | None = None) -> None:
        self.encoder = encoder
        terms = self.head.terms if terms is None else terms
        self.named = terms is not None
        """Whether the dimensions have names."""
        self._terms = [f"#{latent}" for latent in range(self.size)] if terms is None else terms

    @classmethod
    def pretrained(
        cls, source: str, backbone: BackboneSettings, width: int | None = None
    ) -> ConceptVectorizer:
        """Load the latents of a pretrained SAE; see ``sae.pretrained.find_pretrained_sae``.

        Args:
            backbone: the layer of None is the SAE's own.

        Raises:
            InputError: there is no such SAE or backbone, or they do not fit each other.
        """
        sae = find_pretrained_sae(source, backbone.layer, width)
        if sae.layer is None and sae.layout.hook is None:
            raise InputError(f"{source}: the layer that this SAE reads is unknown: name the layer")
        base = Backbone.from_pretrained(backbone.name, sae.layer, precision=backbone.precision)
        return cls(Encoder.of(base, SAEHead(sae.load(backbone=base))))

    @property
    def head(self) -> Head:
        """The encoder's head."""
        return self.encoder.head

    @property
    def precision(self) -> str:
        """Precision for documents, float32 or bfloat16; see ``Backbone``."""
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
        """Return the pooled activation of every dimension in every document [n, size]."""
        return self.encoder.encode_activations(texts, "document")

    def queries(self, texts: Sequence[str]) -> sp.csr_array:
        """Return the pooled activation of every dimension in every query [n, size]."""
        return self.encoder.encode_activations(texts, "query")

    def spans(
        self, text: str, dimensions: Sequence[int], task: Literal["query", "document"]
    ) -> dict[int, tuple[Span, ...]]:
        """Return the word that each dimension is most active on.

        For a query of an encoder with a lookup, return all tokens of each dimension.
        """
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
        """Write the encoder, into the folder ``model``, and the names of the dimensions."""
        self.encoder.save(str(folder / "model"), create_model_card=False)
        TextStore.write(folder / "terms", self._terms)

    @classmethod
    def load(cls, source: str | Path) -> ConceptVectorizer:
        """Load a saved vectorizer, or an encoder with or without names of its dimensions.

        Args:
            source: a folder, the hub's name of an encoder, or ``MINI`` for the packaged model.

        Raises:
            InputError: the source is none of these.
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
