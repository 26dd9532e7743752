"""The command that makes an index of a corpus: build."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lexicept.cli.common import (
    BACKBONE,
    CorpusArgument,
    JsonOption,
    NewIndexOption,
    RayOption,
    RayWorkersOption,
    VocabularyChoice,
    WidthOption,
    joined,
    require_concepts,
)
from lexicept.cli.index import print_info
from lexicept.errors import InputError

if TYPE_CHECKING:
    from lexicept.concepts import ConceptVectorizer
    from lexicept.derive import VocabularySettings
    from lexicept.indexing import IndexBuilder
    from lexicept.progress import Progress
    from lexicept.sae.settings import Architecture

app = typer.Typer()


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
    Path | None,
    typer.Option(
        help="A saved concept model, a folder or a hub's name; without one it is trained on the "
        "corpus."
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
BackboneOption = Annotated[str, typer.Option(help="Hugging Face model under the concepts.")]
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
ArchitectureOption = Annotated[
    ArchitectureChoice, typer.Option(help="Of the sparse autoencoder that learns them.")
]
TokensOption = Annotated[int, typer.Option(help="Tokens the concepts are learned from.")]
WeightingOption = Annotated[
    WeightingChoice | None,
    typer.Option(help="Of the concepts; by default what their model was trained for."),
]
QueryLimitOption = Annotated[
    int | None, typer.Option(min=1, help="Concepts left in a query; all by default.")
]
DocumentLimitOption = Annotated[
    int | None, typer.Option(min=1, help="Concepts left in a document; all by default.")
]


WeightBitsOption = Annotated[
    int,
    typer.Option(help="Of the postings: 32, or 8 for an index half the size, a little less exact."),
]


@dataclass(frozen=True)
class ConceptSource:
    """Where concepts are from: a saved model, a pretrained SAE, or else the corpus itself."""

    model: str | None
    sae: str | None
    width: int | None
    backbone: str
    layer: int | None
    precision: str
    num_latents: int
    k: int
    architecture: Architecture
    train_tokens: int
    seed: int


@app.command()
def build(
    corpus: CorpusArgument,
    out: NewIndexOption,
    vocabulary: VocabularyOption = VocabularyChoice.both,
    language: LanguageOption = "en",
    model: ModelOption = None,
    sae: SAEOption = None,
    width: WidthOption = None,
    explanations: ExplanationsOption = None,
    backbone: BackboneOption = BACKBONE,
    layer: LayerOption = None,
    precision: PrecisionOption = PrecisionChoice.bfloat16,
    num_latents: Annotated[int, typer.Option(help="Concepts to learn.")] = 8192,
    k: Annotated[int, typer.Option(help="Active concepts per token.")] = 8,
    architecture: ArchitectureOption = ArchitectureChoice.topk,
    train_tokens: TokensOption = 1_000_000,
    weighting: WeightingOption = None,
    query_max_active_dims: QueryLimitOption = None,
    document_max_active_dims: DocumentLimitOption = None,
    weight_bits: WeightBitsOption = 32,
    seed: int = 0,
    ray: RayOption = None,
    ray_workers: RayWorkersOption = None,
    as_json: JsonOption = False,
) -> None:
    """Index a corpus by words, by concepts, or by both.

    Concepts are learned from the corpus itself unless a model or a pretrained SAE is given. A build
    that was killed goes on where it stopped when the same command is run again.
    """
    from contextlib import closing

    from lexicept.corpora import read_documents
    from lexicept.derive import VocabularySettings
    from lexicept.display import ProgressBars
    from lexicept.engines.exact import check_weight_bits
    from lexicept.indexing import IndexBuilder
    from lexicept.weighting import BM25
    from lexicept.words import WordVectorizer

    with_concepts = "concepts" in vocabulary.names
    _check_sources(model, sae, explanations, with_concepts)
    check_weight_bits(weight_bits)
    source = ConceptSource(
        model=None if model is None else str(model.resolve() if model.exists() else model),
        sae=str(Path(sae).resolve()) if sae is not None and Path(sae).exists() else sae,
        width=width,
        backbone=backbone,
        layer=layer,
        precision=precision.value,
        num_latents=num_latents,
        k=k,
        architecture=architecture.value,
        train_tokens=train_tokens,
        seed=seed,
    )
    words = WordVectorizer(language)  # an unknown language is refused before any work
    if with_concepts:
        require_concepts()
    with (
        joined(ray, ray_workers) as cluster,
        closing(IndexBuilder(out, cluster)) as builder,
        ProgressBars() as progress,
    ):
        builder.add_documents(read_documents(corpus), asdict(source) if with_concepts else {})
        if "words" in vocabulary.names:
            builder.add_vocabulary(words, VocabularySettings(BM25()), progress)
        if with_concepts:
            concepts = _concepts(builder, source, progress)
            explained = None if explanations is None else _explanations(explanations, concepts)
            settings = _settings(
                concepts, weighting, query_max_active_dims, document_max_active_dims
            )
            _add_concepts(builder, concepts, settings, language, explained, progress)
        index = builder.commit(weight_bits=weight_bits)
    print_info(index, as_json)


def _check_sources(
    model: Path | None, sae: str | None, explanations: Path | None, with_concepts: bool
) -> None:
    """Raises InputError for options that do not go together."""
    if model is not None and sae is not None:
        raise InputError("--model and --sae are two sources of concepts: choose one")
    if explanations is not None and (not with_concepts or (model or sae) is None):
        raise InputError("--explanations are of concepts that --sae or --model gives")


def _concepts(
    builder: IndexBuilder, source: ConceptSource, progress: Progress
) -> ConceptVectorizer:
    """A model's concepts, an SAE's, or those of the corpus."""
    from lexicept.concepts import BackboneSettings, ConceptVectorizer
    from lexicept.encoder import parts
    from lexicept.sae import SAESettings

    backbone = BackboneSettings(source.backbone, source.layer, source.precision)
    if source.model is not None:
        concepts = ConceptVectorizer.load(Path(source.model))
        parts(concepts.encoder).backbone.precision = source.precision
        return concepts
    if source.sae is not None:
        return ConceptVectorizer.pretrained(source.sae, backbone, source.width)
    settings = SAESettings(
        source.num_latents, source.k, source.train_tokens, source.architecture, seed=source.seed
    )
    training = builder.work / "training"
    return ConceptVectorizer.train(builder.contents, backbone, settings, training, progress)


def _explanations(path: Path, concepts: ConceptVectorizer) -> dict[int, str]:
    from lexicept.heads import SAEHead
    from lexicept.sae.explanations import read_explanations

    if not isinstance(concepts.head, SAEHead):
        raise InputError(f"{path}: explanations are of an SAE's latents, which this model has not")
    return read_explanations(path, concepts.head.sae)


def _settings(
    concepts: ConceptVectorizer,
    weighting: WeightingChoice | None,
    query_max_active_dims: int | None,
    document_max_active_dims: int | None,
) -> VocabularySettings:
    """What the options say, else what the model was trained for."""
    from lexicept.derive import VocabularySettings
    from lexicept.weighting import BM25, Splade

    trained = concepts.head.settings
    if weighting is None:
        chosen = trained.weigh()
    else:
        chosen = Splade() if weighting is WeightingChoice.splade else BM25(k3=1.0)
    return VocabularySettings(
        chosen,
        query_max_active_dims or trained.query_max_active_dims,
        document_max_active_dims or trained.document_max_active_dims,
    )


def _add_concepts(
    builder: IndexBuilder,
    concepts: ConceptVectorizer,
    settings: VocabularySettings,
    language: str,
    explanations: dict[int, str] | None,
    progress: Progress,
) -> None:
    """Encode the documents, and find out what the concepts mean there."""
    from lexicept.naming import describe

    found = builder.add_vocabulary(concepts, settings, progress)
    findings = describe(
        concepts.encoder,
        builder.contents,
        found,
        language=language,
        explanations=explanations,
        progress=progress,
    )
    builder.add_atlas(findings)
