"""The source of an index's concepts: a saved model, a pretrained SAE, or the documents."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from lexicept.errors import InputError, ParameterError, require
from lexicept.index.builder import IndexBuilder
from lexicept.models.sources import DEFAULT_BACKBONE, MINI
from lexicept.progress import Progress

if TYPE_CHECKING:
    from torch import Tensor

    from lexicept.models.backbone import Backbone
    from lexicept.models.references import Reference
    from lexicept.training.adaptation import Effort
    from lexicept.training.sae.settings import SAESettings
    from lexicept.vectorizers.concepts import ConceptVectorizer
    from lexicept.vectorizers.texts import TextVectorizer


class Fitted(NamedTuple):
    """Concepts that documents are encoded with, and how they came to be what they are."""

    concepts: ConceptVectorizer
    effort: Effort | None = None
    """Effort of their adaptation; None where they were not adapted."""
    names: Sequence[str] | None = None
    """Names that concepts keep where their documents say nothing about them, if any."""
    rows: Tensor | None = None
    """Encoder rows of the concepts with these names [M, d]."""
    read: Sequence[int] | None = None
    """Numbers of the documents whose states the backbone has kept; None without any."""
    texts: TextVectorizer | None = None
    """Vectorizer of whole texts; None where the adaptation made no exemplars."""


@dataclass(frozen=True)
class ConceptSource:
    """The source of the concepts. An interrupted build is resumed with an equal one only."""

    model: str | None
    adapted: bool
    """True if the model is adapted to the documents."""
    sae: str | None
    width: int | None
    backbone: str
    layer: int | None
    precision: str
    bidirectional: bool | None
    max_query_tokens: int | None
    """Tokens at which queries are cut; None for the model's own length."""
    max_document_tokens: int | None
    """Tokens at which documents are cut; None for the model's own length."""
    embed_model: bool
    """True if the index gets a copy of the backbone; otherwise it refers to one in a package or on
    the hub."""
    training: dict[str, Any] | None
    """The settings, other than defaults, of an SAE that is trained on the documents; None where
    none is."""

    @classmethod
    def of(
        cls,
        concepts: Literal["adapted", "fixed"] | None,
        model: str | os.PathLike[str] | None,
        sae: str | os.PathLike[str] | None,
        width: int | None,
        backbone: str | os.PathLike[str] | None,
        layer: int | None,
        precision: str,
        bidirectional: bool | None,
        max_query_tokens: int | None,
        max_document_tokens: int | None,
        embed_model: bool,
        train_concepts: bool | SAESettings,
    ) -> ConceptSource:
        """Return the source that the parameters of ``build`` name."""
        packaged = model is None and sae is None and not train_concepts
        training = None
        if train_concepts:
            training = {} if train_concepts is True else _changed(train_concepts)
        return cls(
            model=_local(model),
            adapted=concepts == "adapted" or (concepts is None and packaged),
            sae=_local(sae),
            width=width,
            backbone=DEFAULT_BACKBONE if backbone is None else os.fspath(backbone),
            layer=layer,
            precision=precision,
            bidirectional=bidirectional,
            max_query_tokens=max_query_tokens,
            max_document_tokens=max_document_tokens,
            embed_model=embed_model,
            training=training,
        )

    def check_installed(self) -> None:
        """Raise InputError where a package that the source needs is missing."""
        require("concepts", "sentence_transformers", hint=", or build with vocabulary words")

    def load(self) -> ConceptVectorizer | Backbone:
        """Load the concepts or, where they are trained on the documents, their backbone.

        Raises:
            InputError: no such model, SAE or backbone, or an SAE that does not fit the backbone.
        """
        from lexicept.models.backbone import Backbone

        loaded = self._load()
        model = loaded if isinstance(loaded, Backbone) else loaded.encoder
        backbone = model if isinstance(model, Backbone) else model.backbone
        model.cut(
            self.max_query_tokens or backbone.max_query_tokens,
            self.max_document_tokens or backbone.max_document_tokens,
        )
        if self.embed_model:
            backbone.adapters = None  # merged weights are written
        else:
            backbone.reference = self._refer(backbone)
        return loaded

    def _refer(self, backbone: Backbone) -> Reference | None:
        """Return a reference to the backbone's weights; None for those of a folder."""
        from lexicept.models.references import Reference

        folder = Path(backbone.source)
        known = Reference.read(folder) if folder.is_dir() else None
        return known or Reference.to(self.model or backbone.source)

    def _load(self) -> ConceptVectorizer | Backbone:
        from lexicept.models.backbone import Backbone
        from lexicept.vectorizers.concepts import BackboneSettings, ConceptVectorizer

        if self.sae is not None:
            backbone = BackboneSettings(
                self.backbone, self.layer, self.precision, self.bidirectional
            )
            return ConceptVectorizer.pretrained(self.sae, backbone, self.width)
        if self.training is not None:
            return Backbone.from_pretrained(
                self.backbone,
                self.layer,
                bidirectional=self.bidirectional,
                precision=self.precision,
            )
        concepts = ConceptVectorizer.load(self.model or MINI)
        concepts.precision = self.precision
        if self.adapted:
            from lexicept.training.adaptation import check_adaptable

            try:
                check_adaptable(concepts.encoder)
            except InputError as error:
                raise InputError(f"{self.model}: {error}") from None
        return concepts

    def fit(
        self, loaded: ConceptVectorizer | Backbone, builder: IndexBuilder, progress: Progress
    ) -> Fitted:
        """Train or adapt what was loaded to the builder's documents, where that is asked for."""
        from lexicept.models.backbone import Backbone
        from lexicept.training.adaptation import adapt, read_to_describe
        from lexicept.training.sae.settings import SAESettings
        from lexicept.training.sae.trainer import train_concepts
        from lexicept.vectorizers.concepts import ConceptVectorizer
        from lexicept.vectorizers.texts import TextVectorizer, named

        if isinstance(loaded, Backbone):
            folder = builder.work.kept("training")
            settings = SAESettings(**(self.training or {}))
            return Fitted(train_concepts(builder.contents, loaded, settings, folder, progress))
        packaged = self.model is None and self.sae is None
        if not (self.adapted or packaged):
            return Fitted(loaded)
        encoder, rows = loaded.encoder, loaded.head.rows.detach().clone()
        names = loaded.terms if loaded.named else None
        to = (encoder, builder.contents, builder.work.kept("adaptation"), progress)
        if not self.adapted:
            return Fitted(loaded, None, names, rows, read_to_describe(*to))
        done = adapt(*to, configure=packaged)
        if done.effort is None and not packaged:
            names = None  # the model's own names stay as they are
        concepts, texts = ConceptVectorizer(encoder), None
        if done.exemplars is not None:
            drawn = done.documents[: len(done.exemplars)]
            texts = TextVectorizer(concepts, done.exemplars, named(builder.contents, drawn))
        return Fitted(concepts, done.effort, names, rows, done.documents, texts)


def _changed(settings: SAESettings) -> dict[str, Any]:
    """Return the settings that differ from the defaults."""
    defaults = asdict(type(settings)())
    return {name: value for name, value in asdict(settings).items() if value != defaults[name]}


def _local(name: str | os.PathLike[str] | None) -> str | None:
    """Return a folder or file by its absolute path, any other name as it is."""
    if name is None:
        return None
    return str(Path(name).resolve()) if Path(name).exists() else os.fspath(name)


def check_parameters(
    vocabularies: Sequence[str],
    sources: Mapping[str, object],
    of_backbone: Mapping[str, object],
    of_concepts: Mapping[str, object],
) -> None:
    """Raise ParameterError for parameters of ``build`` that do not go together.

    Args:
        vocabularies: the vocabularies to build.
        sources: parameters that name a source of concepts.
        of_backbone: parameters of the backbone that an SAE reads.
        of_concepts: other parameters that only concepts have.
    """
    given = [name for name, value in sources.items() if value]
    if len(given) > 1:
        text = " and ".join(f"{{{place}}}" for place in range(len(given)))
        raise ParameterError(f"{text} are two sources of concepts: choose one", *given)
    source = given[0] if given else None
    chosen = [name for name, value in of_backbone.items() if value is not None]
    if chosen and source not in ("train_concepts", "sae"):
        text = "{0} requires {1} or {2}: a saved model has its own backbone"
        raise ParameterError(text, chosen[0], "train_concepts", "sae")
    named = {name for name, value in of_concepts.items() if value is not None}
    if "concepts" in named and source not in (None, "model"):
        raise ParameterError(
            "{0} goes with lexicept-mini or {1}, not {2}", "concepts", "model", source
        )
    if "width" in named and source != "sae":
        raise ParameterError("{0} requires {1}", "width", "sae")
    if "explanations" in named and source not in ("sae", "model"):
        raise ParameterError("{0} requires {1} or {2}", "explanations", "sae", "model")
    if "concepts" not in vocabularies:
        for name in (*given, *(name for name in of_concepts if name in named)):
            raise ParameterError("{0} requires concepts, but {1} is words", name, "vocabulary")
