"""The source of an index's concepts: lexicept-mini, another model, an SAE, or the documents."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lexicept.encoding.encoded import EncodedConcepts
from lexicept.encoding.pooled import KeptActivations
from lexicept.encoding.sources import DEFAULT_BACKBONE, MINI, fetch
from lexicept.encoding.windows import prompt_for
from lexicept.errors import InputError, ParameterError
from lexicept.index.builder import IndexBuilder
from lexicept.pipelines.settings import ConceptSettings, Limits
from lexicept.progress import Progress
from lexicept.storage.files import json_if_present
from lexicept.vectors import Floats

if TYPE_CHECKING:
    from lexicept.neural.backbones.backbone import Backbone
    from lexicept.training.sae.adaptation import Effort
    from lexicept.training.sae.settings import SAESettings


class Fitted(NamedTuple):
    """Concepts that documents are encoded with, and how they came to be what they are."""

    concepts: EncodedConcepts
    named: bool = False
    """True if the concepts have names that need no description."""
    effort: Effort | None = None
    """Effort of their adaptation; None where they were not adapted."""
    names: Sequence[str] | None = None
    """Names that concepts keep if the documents say nothing about them."""
    rows: Floats | None = None
    """Encoder rows of the concepts with these names [M, d]."""
    read: Sequence[int] | None = None
    """Numbers of the documents whose states the backbone has kept."""
    kept: KeptActivations | None = None
    """Keeps what the concepts' encoder finds in documents; None keeps nothing."""
    vectors: bool = False
    """True if vectors of the texts go into the index."""
    scaled: bool = False
    """True if the vectors' cosines have another spread than MiniLM's."""


@dataclass(frozen=True)
class ConceptSource:
    """A model or the settings of its making. An interrupted build resumes with an equal source."""

    model: str | None
    """Saved concept model; None for lexicept-mini or the SAE that the settings name."""
    settings: ConceptSettings

    @classmethod
    def of(cls, model: str | os.PathLike[str] | None, settings: ConceptSettings) -> ConceptSource:
        """Return the source that the parameters of ``build`` name, with absolute paths."""
        sae, explanations = _local(settings.sae), _local(settings.explanations)
        named = None if model == MINI else _local(model)
        return cls(named, replace(settings, sae=sae, explanations=explanations))

    @property
    def backbone(self) -> str:
        """Name or path of the model that an SAE reads."""
        return os.fspath(self.settings.backbone or DEFAULT_BACKBONE)

    @property
    def packaged(self) -> bool:
        """True if the concepts are lexicept-mini's."""
        return self._default and self.settings.backbone is None

    @property
    def learned(self) -> bool:
        """True if the documents are all that the concepts of a named backbone come from."""
        return self._default and self.settings.backbone is not None

    @property
    def _default(self) -> bool:
        return self.model is None and self.settings.sae is None and not self.settings.train

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
        return {"model": self.model, **described}

    def load(self) -> EncodedConcepts | Backbone:
        """Load the concepts or, where they are trained on the documents, their backbone. Raises
        InputError for an unknown model, SAE or backbone, or an SAE that does not fit the
        backbone."""
        if self.packaged:
            limits = self.settings.max_query_tokens, self.settings.max_document_tokens
            return EncodedConcepts.packaged(*limits)
        from lexicept.encoding.sources import Reference
        from lexicept.neural.backbones.backbone import Backbone

        loaded = self._load()
        backbone = loaded if isinstance(loaded, Backbone) else loaded.encoder.backbone
        backbone.cut(
            self.settings.max_query_tokens or backbone.max_query_tokens,
            self.settings.max_document_tokens or backbone.max_document_tokens,
        )
        if not self.settings.embed_model:
            folder = Path(backbone.source)
            reference = Reference.read(folder) if folder.is_dir() else None
            backbone.reference = reference or Reference.to(self.model or backbone.source)
        return loaded

    def _load(self) -> EncodedConcepts | Backbone:
        from lexicept.neural.backbones.backbone import Backbone
        from lexicept.neural.vectorizers.concepts import BackboneSettings, ConceptVectorizer

        settings, bidirectional = self.settings, self.settings.bidirectional
        if settings.sae is not None:
            backbone = BackboneSettings(self.backbone, settings.layer, bidirectional)
            return ConceptVectorizer.pretrained(str(settings.sae), backbone, settings.width)
        if self.training is not None or self.learned:
            return Backbone.from_pretrained(
                self.backbone, settings.layer, bidirectional=bidirectional
            )
        return ConceptVectorizer.load(str(self.model))

    def fit(
        self, loaded: EncodedConcepts | Backbone, builder: IndexBuilder, progress: Progress
    ) -> Fitted:
        """Train or adapt what was loaded to the builder's documents, where that is asked for."""
        if self.packaged and not self.settings.adapt:
            rows, kept = loaded.encoder.head.directions, KeptActivations()
            return Fitted(loaded, names=loaded.terms, rows=rows, kept=kept, vectors=True)
        from lexicept.neural.backbones.backbone import Backbone
        from lexicept.neural.vectorizers.concepts import ConceptVectorizer
        from lexicept.training.sae.adaptation import adapt, learn
        from lexicept.training.sae.trainer import train_concepts

        if isinstance(loaded, Backbone) and self.training is not None:
            folder = builder.work.kept("training")
            return Fitted(train_concepts(builder.contents, loaded, self.training, folder, progress))
        folder = builder.work.kept("adaptation")
        if isinstance(loaded, Backbone):
            prompts, contents = self._prompts(), builder.contents
            encoder, effort, read = learn(loaded, prompts, contents, folder, progress)
            concepts, kept = ConceptVectorizer(encoder), KeptActivations(encoder.backbone.known)
            return Fitted(concepts, effort=effort, read=read, kept=kept, vectors=True, scaled=True)
        if not self.packaged:
            return Fitted(loaded, named=loaded.named)
        names, rows = loaded.terms, loaded.encoder.head.directions
        adapted, done = adapt(loaded.encoder, builder.contents, folder, progress)
        encoded, kept = EncodedConcepts(adapted, names), KeptActivations()
        return Fitted(encoded, effort=done, names=names, rows=rows, kept=kept, vectors=True)

    def _prompts(self) -> dict[str, str]:
        """Return the prompts of a named backbone: given, or those of its configuration."""
        path = Path(fetch(self.backbone), "config_sentence_transformers.json")
        config = json_if_present(path, InputError)
        changes = {"query": self.settings.query_prompt, "document": self.settings.document_prompt}
        prompts, default = config.get("prompts", {}), config.get("default_prompt_name")
        return {
            task: prompt_for(task, prompts, default) if prompt is None else prompt
            for task, prompt in changes.items()
        }


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
    changes = {**({} if model is None else {"model": model}), **concepts.changed()}
    sources = [name for name in ("model", "sae", "train") if name in changes]
    if len(sources) > 1:
        text = " and ".join(f"{{{place}}}" for place in range(len(sources)))
        raise ParameterError(f"{text} are two sources of concepts: choose one", *sources)
    default = "backbone" if "backbone" in changes else "lexicept-mini"
    source = sources[0] if sources else default
    saved_model = "{0} requires {1}, {2} or {3}: a saved model has its own backbone"
    # By option: the sources with the option, and the message for the others.
    options: dict[str, tuple[tuple[str, ...], str]] = {
        **dict.fromkeys(("layer", "bidirectional"), (("train", "sae", "backbone"), saved_model)),
        **dict.fromkeys(("query_prompt", "document_prompt"), (("backbone",), "{0} requires {1}")),
        "width": (("sae",), "{0} requires {1}"),
        "explanations": (("sae", "model"), "{0} requires {1} or {2}"),
    }
    if "backbone" in changes and source == "model":
        raise ParameterError("{0} does not go with {1}: it has its own", "backbone", "model")
    for name, (suitable, text) in options.items():
        if name in changes and source not in suitable:
            raise ParameterError(text, name, *suitable)
    if "adapt" in changes and source != "lexicept-mini":
        raise ParameterError("{0} adapts lexicept-mini, not {1}", "adapt", source)
    if "concepts" not in vocabularies:
        for name in (*sources, *changes, *limits.changed()):
            raise ParameterError("{0} requires concepts, but {1} is words", name, "vocabulary")
