"""Concepts: texts as activations of a head's dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from lexicept.encoding.encoded import EncodedConcepts
from lexicept.encoding.sources import DEFAULT_BACKBONE
from lexicept.encoding.vectorizer import WeightedText
from lexicept.errors import InputError
from lexicept.explanation.contributions import Sources, unnamed
from lexicept.neural.backbones.backbone import Backbone
from lexicept.neural.encoders.encoder import Encoder
from lexicept.neural.heads.base import Head
from lexicept.neural.heads.sae import SAEHead
from lexicept.neural.sae_formats.pretrained import find_pretrained_sae
from lexicept.storage.texts import TextStore


@dataclass(frozen=True)
class BackboneSettings:
    """The backbone whose states an SAE reads."""

    name: str = DEFAULT_BACKBONE
    """A hub name or a folder."""
    layer: int | None = None
    """Number of blocks to run; all by default."""
    bidirectional: bool | None = None
    """True if tokens attend to later tokens; by default as the SAE was trained, or the backbone: a
    decoder to earlier tokens only."""


class ConceptVectorizer(EncodedConcepts):
    """A vectorizer: texts → the pooled activation of every dimension of an encoder's head.

    Args:
        encoder: the encoder.
        terms: a name per dimension; by default the encoder's, its head's, or the dimension's
            number.
    """

    encoder: Encoder

    def __init__(self, encoder: Encoder, terms: Sequence[str] | None = None) -> None:
        self.encoder = encoder
        if terms is None:
            terms = self.head.terms if encoder.names is None else encoder.names
        self.named = terms is not None
        self._terms = [unnamed(latent) for latent in range(self.size)] if terms is None else terms

    @classmethod
    def pretrained(
        cls, source: str, backbone: BackboneSettings, width: int | None = None
    ) -> ConceptVectorizer:
        """Load a pretrained SAE's latents; see ``sae_formats.pretrained.find_pretrained_sae``.

        Args:
            backbone: by default with the SAE's own layer.

        Raises:
            InputError: no such SAE or backbone, or an SAE that does not fit the backbone.
        """
        sae = find_pretrained_sae(source, backbone.layer, width)
        if sae.layer is None and sae.layout.hook is None:
            raise InputError(f"{source}: the layer that this SAE reads is unknown: name the layer")
        bidirectional = backbone.bidirectional
        if bidirectional is None:
            bidirectional = sae.layout.bidirectional
        base = Backbone.from_pretrained(
            backbone.name, sae.layer, bidirectional=bidirectional, as_trained=True
        )
        return cls(Encoder.of(base, SAEHead.of_concepts(sae.load(backbone=base))))

    @property
    def head(self) -> Head:
        return self.encoder.head

    def term(self, dimension: int) -> str:
        return self._terms[dimension]

    @property
    def kind(self) -> str:
        """Kind of the dimensions: concepts, sub-words or words."""
        return self.head.dimension_kind(len(self.encoder.backbone.tokenizer))

    def weigh(self, text: str, task: str) -> WeightedText:
        """Encode a text for a task, query or document, with the head's weights, not an index's."""
        query = task == "query"
        encode = self.encoder.encode_query if query else self.encoder.encode_document
        vector = encode(text, convert_to_sparse_tensor=False).double().cpu()

        def sources(dimensions: Sequence[int]) -> dict[int, Sources]:
            if query:
                return self.encode_query(text).sources(dimensions)
            return self.document_sources([text], [dimensions])[0]

        active = torch.nonzero(vector).ravel().tolist()
        return WeightedText({number: float(vector[number]) for number in active}, sources)

    def save(self, folder: Path) -> None:
        """Write the encoder, into the folder ``model``, and the names of the dimensions."""
        self.encoder.save(str(folder / "model"), names=False, create_model_card=False)
        TextStore.write(folder / "terms", self._terms)

    @classmethod
    def load(cls, source: str | Path) -> ConceptVectorizer:
        """Load a saved vectorizer, or an encoder with or without names of its dimensions.

        The packaged model has the name of the backbone's weights, not the weights.

        Args:
            source: as for ``open_encoder``.

        Raises:
            InputError: no such model.
        """
        from lexicept.neural.converters.reading import open_encoder

        return cls(open_encoder(source))
