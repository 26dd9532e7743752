"""The command that makes an index of a corpus: build."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lexicept.cli.common import (
    BACKBONE,
    MINI,
    CorpusArgument,
    JsonOption,
    NewIndexOption,
    RayOption,
    RayWorkersOption,
    RestartOption,
    VocabularyChoice,
    WidthOption,
    joined,
    require_concepts,
)
from lexicept.cli.index import print_info
from lexicept.errors import InputError, require
from lexicept.pipelines.train import MODULES

if TYPE_CHECKING:
    from lexicept.index.builder import IndexBuilder
    from lexicept.index.impacts import VocabularySettings
    from lexicept.progress import Progress
    from lexicept.vectorizers.concepts import ConceptVectorizer


class WeightingChoice(StrEnum):
    """How activations become weights."""

    bm25 = "bm25"
    splade = "splade"


class ArchitectureChoice(StrEnum):
    """Sparse autoencoders that concepts are learned with."""

    topk = "topk"
    batch_topk = "batch_topk"
    jumprelu = "jumprelu"
    relu = "relu"
    gated = "gated"
    hierarchical = "hierarchical"
    matryoshka = "matryoshka"


class PrecisionChoice(StrEnum):
    """Of the backbone."""

    float32 = "float32"
    bfloat16 = "bfloat16"


VocabularyOption = Annotated[
    VocabularyChoice, typer.Option(help="Words need no model; concepts need torch.")
]
LanguageOption = Annotated[str, typer.Option(help="Of the words: stop words and stemming.")]
ModelOption = Annotated[
    str | None,
    typer.Option(
        help="A saved concept model: a folder or a hub's name.",
        show_default=f"{MINI}, in the package",
    ),
]
TrainOption = Annotated[
    bool, typer.Option("--train-concepts", help="Learn the concepts from the corpus itself.")
]
AdaptOption = Annotated[
    bool,
    typer.Option(
        "--adapt", help=f"Train {MINI} on for this corpus, from its documents alone (minutes)."
    ),
]
SAEOption = Annotated[
    str | None,
    typer.Option(help="A pretrained SAE of the backbone: a folder or a hub's name."),
]
ExplanationsOption = Annotated[
    Path | None,
    typer.Option(help="Names of its concepts: Neuronpedia's export, a .jsonl or a folder."),
]
BackboneOption = Annotated[
    str | None,
    typer.Option(help="Hugging Face model under the concepts.", show_default=BACKBONE),
]
LayerOption = Annotated[
    int | None,
    typer.Option(
        help="Blocks of the backbone to run; all by default, or those before a pretrained SAE "
        "(one more than the number that releases give the layer)."
    ),
]
PrecisionOption = Annotated[
    PrecisionChoice,
    typer.Option(help="That documents are read in; bfloat16 where the hardware is faster so."),
]
LatentsOption = Annotated[int | None, typer.Option(help="Concepts to learn.", show_default="8192")]
KOption = Annotated[
    int | None, typer.Option(help="Active concepts per token, as they learn.", show_default="8")
]
ArchitectureOption = Annotated[
    ArchitectureChoice | None,
    typer.Option(help="Of the sparse autoencoder that learns them.", show_default="topk"),
]
TokensOption = Annotated[
    int | None,
    typer.Option(help="Tokens the concepts are learned from.", show_default="1000000"),
]
SeedOption = Annotated[int | None, typer.Option(help="Of the training.", show_default="0")]
WeightingOption = Annotated[
    WeightingChoice | None,
    typer.Option(help="Of the concepts; by default what their model was trained for."),
]
QueryLimitOption = Annotated[
    int | None,
    typer.Option(min=1, help="Concepts left in a query; by default the model's own limit."),
]
QueryCostOption = Annotated[
    float | None,
    typer.Option(
        help="QD-FLOPs of a query's concepts at most: documents that have each of them, as a "
        "share of all, added up; by default the model's own limit, lexicept-mini's is 1.5."
    ),
]
DocumentLimitOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Concepts left in a document; by default the model's own limit, 160 of lexicept-mini.",
    ),
]


WeightBitsOption = Annotated[
    int,
    typer.Option(help="Of the postings: 32, or 8 for an index half the size, a little less exact."),
]


@dataclass(frozen=True)
class ConceptSource:
    """Where concepts are from: a saved model, a pretrained SAE, or the corpus itself."""

    model: str | None
    adapt: str | None
    """The corpus that the model is adapted to."""
    sae: str | None
    width: int | None
    backbone: str
    layer: int | None
    precision: str
    training: dict[str, Any] | None
    """Settings of an SAE that learns them from the corpus."""


def build(
    corpus: CorpusArgument,
    out: NewIndexOption,
    vocabulary: VocabularyOption = VocabularyChoice.both,
    language: LanguageOption = "en",
    model: ModelOption = None,
    train_concepts: TrainOption = False,
    adapt: AdaptOption = False,
    sae: SAEOption = None,
    width: WidthOption = None,
    explanations: ExplanationsOption = None,
    backbone: BackboneOption = None,
    layer: LayerOption = None,
    precision: PrecisionOption = PrecisionChoice.bfloat16,
    num_latents: LatentsOption = None,
    k: KOption = None,
    architecture: ArchitectureOption = None,
    train_tokens: TokensOption = None,
    weighting: WeightingOption = None,
    query_max_active_dims: QueryLimitOption = None,
    query_max_qd_flops: QueryCostOption = None,
    document_max_active_dims: DocumentLimitOption = None,
    weight_bits: WeightBitsOption = 32,
    seed: SeedOption = None,
    restart: RestartOption = False,
    ray: RayOption = None,
    ray_workers: RayWorkersOption = None,
    as_json: JsonOption = False,
) -> None:
    """Index a corpus by words, by concepts, or by both.

    The concepts are those of lexicept-mini, a model in the package that was trained on other texts,
    unless another source is named. Re-running the command resumes an interrupted build.
    """
    from contextlib import closing

    from lexicept.corpora import read_documents
    from lexicept.engines.exact import check_weight_bits
    from lexicept.index.builder import IndexBuilder
    from lexicept.index.impacts import VocabularySettings
    from lexicept.progress import ProgressBars
    from lexicept.vectorizers.words import WordVectorizer
    from lexicept.weighting import BM25

    with_concepts = "concepts" in vocabulary.names
    check_weight_bits(weight_bits)
    training = _training(num_latents, k, architecture, train_tokens, seed)
    _check_sources(
        {"--model": model, "--sae": sae, "--train-concepts": train_concepts, "--adapt": adapt},
        {"--backbone": backbone, "--layer": layer},
        [_OF_TRAINING[name] for name in training],
        explanations is not None,
        with_concepts,
    )
    if width is not None and sae is None:
        raise InputError("--width is of the SAEs that --sae names")
    of_concepts = {
        "--query-max-active-dims": query_max_active_dims,
        "--document-max-active-dims": document_max_active_dims,
        "--query-max-qd-flops": query_max_qd_flops,
        "--weighting": weighting,
    }
    given = [name for name, value in of_concepts.items() if value is not None]
    if given and not with_concepts:
        raise InputError(f"{given[0]} is of concepts: not with --vocabulary words")
    source = ConceptSource(
        model=_local(model),
        adapt=_local(corpus) if adapt else None,
        sae=_local(sae),
        width=width,
        backbone=backbone or BACKBONE,
        layer=layer,
        precision=precision.value,
        training=training if train_concepts else None,
    )
    # An unknown language and impossible limits are refused before any work; the weighting is the
    # model's, which is not there yet.
    words = WordVectorizer(language)
    limits = VocabularySettings(
        BM25(), query_max_active_dims, document_max_active_dims, query_max_qd_flops
    )
    if with_concepts:
        require_concepts()
    with (
        joined(ray, ray_workers) as cluster,
        closing(IndexBuilder(out, cluster, restart=restart)) as builder,
        ProgressBars() as progress,
    ):
        builder.add_documents(read_documents(corpus), asdict(source) if with_concepts else {})
        if "words" in vocabulary.names:
            builder.add_vocabulary(words, VocabularySettings(BM25()), progress)
        if with_concepts:
            concepts = _concepts(builder, source, progress)
            explained = None if explanations is None else _explanations(explanations, concepts)
            settings = _settings(concepts, weighting, limits)
            _add_concepts(builder, concepts, settings, language, explained, progress)
        index = builder.commit(weight_bits=weight_bits)
    print_info(index, as_json)


_OF_TRAINING = {
    "num_latents": "--num-latents",
    "k": "--k",
    "architecture": "--architecture",
    "tokens": "--train-tokens",
    "seed": "--seed",
}
"""Options of the training, by the names of its settings."""


def _training(
    num_latents: int | None,
    k: int | None,
    architecture: ArchitectureChoice | None,
    tokens: int | None,
    seed: int | None,
) -> dict[str, Any]:
    """The settings of an SAE that were named."""
    given = {
        "num_latents": num_latents,
        "k": k,
        "architecture": None if architecture is None else architecture.value,
        "tokens": tokens,
        "seed": seed,
    }
    return {name: value for name, value in given.items() if value is not None}


def _local(name: str | None) -> str | None:
    """A folder or file by its whole path, any other name as it is."""
    return str(Path(name).resolve()) if name is not None and Path(name).exists() else name


def _check_sources(
    sources: Mapping[str, object],
    of_backbone: Mapping[str, object],
    of_training: Sequence[str],
    explanations: bool,
    with_concepts: bool,
) -> None:
    """Raises InputError for options that do not go together."""
    named = [name for name, value in sources.items() if value]
    if len(named) > 1:
        raise InputError(f"{' and '.join(named)} are two sources of concepts: choose one")
    source = named[0] if named else None
    if of_training and source != "--train-concepts":
        raise InputError(f"{of_training[0]} is of the training: add --train-concepts")
    chosen = [name for name, value in of_backbone.items() if value is not None]
    if chosen and source not in ("--train-concepts", "--sae"):
        raise InputError(f"{chosen[0]} needs --train-concepts or --sae: a model has its own")
    if explanations and (not with_concepts or source not in ("--sae", "--model")):
        raise InputError("--explanations are of concepts that --sae or --model gives")
    if source is not None and not with_concepts:
        raise InputError(f"{source} is a source of concepts: not with --vocabulary words")


def _concepts(
    builder: IndexBuilder, source: ConceptSource, progress: Progress
) -> ConceptVectorizer:
    """The packaged model's concepts, another model's, an SAE's, or those of the corpus."""
    from lexicept.training.concepts import train_concepts
    from lexicept.training.sae.settings import SAESettings
    from lexicept.vectorizers.concepts import BackboneSettings, ConceptVectorizer

    backbone = BackboneSettings(source.backbone, source.layer, source.precision)
    if source.sae is not None:
        return ConceptVectorizer.pretrained(source.sae, backbone, source.width)
    if source.training is not None:
        folder = builder.work.kept("training")
        settings = SAESettings(**source.training)
        return train_concepts(builder.contents, backbone, settings, folder, progress)
    concepts = ConceptVectorizer.load(source.model or MINI)
    if source.adapt is not None:
        folder = builder.work.kept("adaptation")
        concepts = _adapted(concepts, source.adapt, folder, progress)
    concepts.precision = source.precision
    return concepts


def _adapted(
    concepts: ConceptVectorizer, corpus: str, folder: Path, progress: Progress
) -> ConceptVectorizer:
    """Concepts trained on, for a corpus; made once in this folder."""
    require("train", *MODULES)
    from lexicept.training.adaptation import adapt
    from lexicept.vectorizers.concepts import ConceptVectorizer

    return ConceptVectorizer(adapt(concepts.encoder, corpus, folder, progress), concepts.terms)


def _explanations(path: Path, concepts: ConceptVectorizer) -> dict[int, str]:
    from lexicept.models.heads.sae import SAEHead
    from lexicept.models.sae.explanations import read_explanations

    if not isinstance(concepts.head, SAEHead):
        raise InputError(f"{path}: explanations are of an SAE's latents, which this model has not")
    return read_explanations(path, concepts.head.sae)


def _settings(
    concepts: ConceptVectorizer,
    weighting: WeightingChoice | None,
    limits: VocabularySettings,
) -> VocabularySettings:
    """What the options say, else what the model was trained for."""
    from dataclasses import replace

    from lexicept.index.impacts import VocabularySettings

    head, trained = concepts.head.settings, concepts.encoder.index_settings
    if weighting is not None:
        trained = replace(trained, weighting=weighting.value)
    return VocabularySettings(
        trained.weigh(head.pooling, head.query_scale),
        limits.query_max_active_dims or head.query_max_active_dims,
        limits.document_max_active_dims or head.document_max_active_dims,
        limits.query_max_qd_flops or trained.query_max_qd_flops,
    )


def _add_concepts(
    builder: IndexBuilder,
    concepts: ConceptVectorizer,
    settings: VocabularySettings,
    language: str,
    explanations: dict[int, str] | None,
    progress: Progress,
) -> None:
    """Encode the documents, and find out what concepts without names mean there."""
    from lexicept.interpretation.describe import describe

    found = builder.add_vocabulary(concepts, settings, progress)
    if concepts.named and explanations is None:
        return
    findings = describe(
        concepts.encoder,
        builder.contents,
        found,
        language=language,
        explanations=explanations,
        progress=progress,
    )
    builder.add_atlas(findings)
