"""The source of an index's concepts: a saved model, a pretrained SAE, or the documents."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lexicept.errors import InputError, ParameterError, require
from lexicept.index.builder import IndexBuilder
from lexicept.models.sources import DEFAULT_BACKBONE, MINI
from lexicept.pipelines.settings import ConceptSettings, Limits
from lexicept.progress import Progress

if TYPE_CHECKING:
    from torch import Tensor

    from lexicept.models.backbone import Backbone
    from lexicept.models.sources import Reference
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
    """A model or the settings of its making. An interrupted build resumes with an equal source."""

    model: str | None
    """Saved concept model; None for lexicept-mini or the SAE that the settings name."""
    settings: ConceptSettings

    @classmethod
    def of(cls, model: str | os.PathLike[str] | None, settings: ConceptSettings) -> ConceptSource:
        """Return the source that the parameters of ``build`` name, with absolute paths."""
        resolved = replace(settings, sae=_local(settings.sae))
        return cls(_local(model), resolved)

    @property
    def sae(self) -> str | None:
        """Name or absolute path of the pretrained SAE."""
        return _local(self.settings.sae)

    @property
    def backbone(self) -> str:
        """Name or path of the model that an SAE reads."""
        return os.fspath(self.settings.backbone or DEFAULT_BACKBONE)

    @property
    def packaged(self) -> bool:
        """True if the concepts are lexicept-mini's."""
        return self.model is None and self.settings.sae is None and not self.settings.train

    @property
    def adapted(self) -> bool:
        """True if the model is adapted to the documents."""
        return self.packaged if self.settings.adapted is None else self.settings.adapted

    @property
    def training(self) -> SAESettings | None:
        """Settings of the SAE that is trained on the documents."""
        if self.settings.train is True:
            from lexicept.training.sae.settings import SAESettings

            return SAESettings()
        return self.settings.train or None

    def record(self) -> dict[str, Any]:
        """Return the source as JSON values, to be compared with an interrupted build's."""
        training = None if self.training is None else asdict(self.training)
        described = {**vars(self.settings), "train": training, "backbone": self.backbone}
        del described["explanations"]  # labels come after the encoding
        return {"model": self.model, **described, "adapted": self.adapted}

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
            self.settings.max_query_tokens or backbone.max_query_tokens,
            self.settings.max_document_tokens or backbone.max_document_tokens,
        )
        if self.settings.embed_model:
            backbone.adapters = None  # merged weights are written
        else:
            backbone.reference = self._refer(backbone)
        return loaded

    def _refer(self, backbone: Backbone) -> Reference | None:
        """Return a reference to the backbone's weights; None for those of a folder."""
        from lexicept.models.sources import Reference

        folder = Path(backbone.source)
        known = Reference.read(folder) if folder.is_dir() else None
        return known or Reference.to(self.model or backbone.source)

    def _load(self) -> ConceptVectorizer | Backbone:
        from lexicept.models.backbone import Backbone
        from lexicept.vectorizers.concepts import BackboneSettings, ConceptVectorizer

        settings = self.settings
        if self.sae is not None:
            backbone = BackboneSettings(
                self.backbone, settings.layer, settings.precision, settings.bidirectional
            )
            return ConceptVectorizer.pretrained(self.sae, backbone, settings.width)
        if self.training is not None:
            return Backbone.from_pretrained(
                self.backbone,
                settings.layer,
                bidirectional=settings.bidirectional,
                precision=settings.precision,
            )
        concepts = ConceptVectorizer.load(self.model or MINI)
        concepts.encoder.backbone.precision = settings.precision
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
        from lexicept.training.sae.trainer import train_concepts
        from lexicept.vectorizers.concepts import ConceptVectorizer
        from lexicept.vectorizers.texts import TextVectorizer, named

        if isinstance(loaded, Backbone):
            folder = builder.work.kept("training")
            assert self.training is not None
            return Fitted(train_concepts(builder.contents, loaded, self.training, folder, progress))
        packaged = self.packaged
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


def _local(name: str | os.PathLike[str] | None) -> str | None:
    """Return a folder or file by its absolute path, any other name as it is."""
    if name is None:
        return None
    return str(Path(name).resolve()) if Path(name).exists() else os.fspath(name)


def check_together(
    vocabularies: Sequence[str],
    model: str | os.PathLike[str] | None,
    concepts: ConceptSettings,
    limits: Limits,
) -> None:
    """Raise ParameterError for parameters of ``build`` that do not go together."""
    given = {**({} if model is None else {"model": model}), **concepts.changed()}
    sources = [name for name in ("model", "sae", "train") if name in given]
    if len(sources) > 1:
        text = " and ".join(f"{{{place}}}" for place in range(len(sources)))
        raise ParameterError(f"{text} are two sources of concepts: choose one", *sources)
    source = sources[0] if sources else None
    reading = [name for name in ("backbone", "layer", "bidirectional") if name in given]
    if reading and source not in ("train", "sae"):
        text = "{0} requires {1} or {2}: a saved model has its own backbone"
        raise ParameterError(text, reading[0], "train", "sae")
    if "adapted" in given and source not in (None, "model"):
        text = "{0} goes with lexicept-mini or {1}, not {2}"
        raise ParameterError(text, "adapted", "model", str(source))
    if "width" in given and source != "sae":
        raise ParameterError("{0} requires {1}", "width", "sae")
    if "explanations" in given and source not in ("sae", "model"):
        raise ParameterError("{0} requires {1} or {2}", "explanations", "sae", "model")
    if "concepts" not in vocabularies:
        for name in sources + [name for name in (*given, *limits.changed()) if name != "precision"]:
            raise ParameterError("{0} requires concepts, but {1} is words", name, "vocabulary")
