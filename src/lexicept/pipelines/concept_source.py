"""The source of an index's concepts: a saved model, a pretrained SAE, or the documents."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lexicept.corpora.pseudo_queries import generate
from lexicept.errors import InputError, ParameterError, require
from lexicept.index.builder import IndexBuilder
from lexicept.pipelines.defaults import BACKBONE, MINI
from lexicept.pipelines.documents import Documents
from lexicept.pipelines.train import MODULES
from lexicept.progress import Progress
from lexicept.storage.files import replacing_text

if TYPE_CHECKING:
    from lexicept.models.backbone import Backbone
    from lexicept.training.sae.settings import SAESettings
    from lexicept.vectorizers.concepts import ConceptVectorizer


@dataclass(frozen=True)
class ConceptSource:
    """The source of the concepts. An interrupted build is resumed with an equal one only."""

    model: str | None
    adapt: str | None
    """The corpus that the model is adapted to; "" for documents that the caller holds."""
    sae: str | None
    width: int | None
    backbone: str
    layer: int | None
    precision: str
    bidirectional: bool | None
    training: dict[str, Any] | None
    """The settings of an SAE that is trained on the documents, those that differ from the
    defaults."""

    @classmethod
    def of(
        cls,
        documents: Documents,
        model: str | os.PathLike[str] | None,
        adapt: bool,
        sae: str | os.PathLike[str] | None,
        width: int | None,
        backbone: str | os.PathLike[str] | None,
        layer: int | None,
        precision: str,
        bidirectional: bool | None,
        train_concepts: bool | SAESettings,
    ) -> ConceptSource:
        """Return the source that the parameters of ``build`` name."""
        corpus = _local(documents) if isinstance(documents, str | os.PathLike) else ""
        training = None
        if train_concepts:
            training = {} if train_concepts is True else _changed(train_concepts)
        return cls(
            model=_local(model),
            adapt=corpus if adapt else None,
            sae=_local(sae),
            width=width,
            backbone=BACKBONE if backbone is None else os.fspath(backbone),
            layer=layer,
            precision=precision,
            bidirectional=bidirectional,
            training=training,
        )

    def check_installed(self) -> None:
        """Raise InputError where a package that the source needs is missing."""
        require("concepts", "sentence_transformers", hint=", or build with vocabulary words")
        if self.adapt is not None:
            require("train", *MODULES)

    def load(self) -> ConceptVectorizer | Backbone:
        """Load the concepts or, where they are trained on the documents, their backbone.

        Raises:
            InputError: no such model, SAE or backbone, or an SAE that does not fit the backbone.
        """
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
        return concepts

    def fit(
        self, loaded: ConceptVectorizer | Backbone, builder: IndexBuilder, progress: Progress
    ) -> ConceptVectorizer:
        """Train or adapt what was loaded to the builder's documents, where that is asked for."""
        from lexicept.models.backbone import Backbone
        from lexicept.training.concepts import train_concepts
        from lexicept.training.sae.settings import SAESettings

        if isinstance(loaded, Backbone):
            folder = builder.work.kept("training")
            settings = SAESettings(**(self.training or {}))
            return train_concepts(builder.contents, loaded, settings, folder, progress)
        return loaded if self.adapt is None else self._adapted(loaded, builder, progress)

    def _adapted(
        self, concepts: ConceptVectorizer, builder: IndexBuilder, progress: Progress
    ) -> ConceptVectorizer:
        """Continue the training of a model on the documents."""
        from lexicept.training.adaptation import adapt
        from lexicept.vectorizers.concepts import ConceptVectorizer

        if next(generate(builder.documents()), None) is None:  # before anything is kept
            raise InputError("adapt: no pseudo-queries can be made of these documents")
        folder = builder.work.kept("adaptation")
        corpus = self.adapt or str(_write_corpus(builder, folder))
        encoder = adapt(concepts.encoder, corpus, folder, progress)
        adapted = ConceptVectorizer(encoder, concepts.terms)
        adapted.precision = self.precision
        return adapted


def _write_corpus(builder: IndexBuilder, folder: Path) -> Path:
    """Write the builder's documents as JSON Lines, which training reads."""
    file = folder / "corpus.jsonl"
    with replacing_text(file) as lines:
        for document in builder.documents():
            fields = {"_id": document.id, "title": document.title, "text": document.text}
            lines.write(f"{json.dumps(fields)}\n")
    return file


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
    if "width" in named and source != "sae":
        raise ParameterError("{0} requires {1}", "width", "sae")
    if "explanations" in named and source not in ("sae", "model"):
        raise ParameterError("{0} requires {1} or {2}", "explanations", "sae", "model")
    if "concepts" not in vocabularies:
        for name in (*given, *(name for name in of_concepts if name in named)):
            raise ParameterError("{0} requires concepts, but {1} is words", name, "vocabulary")
