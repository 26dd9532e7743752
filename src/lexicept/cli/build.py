"""The command that builds an index of a corpus: build."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import lexicept
from lexicept.cli.common import (
    AttentionOption,
    CorpusArgument,
    JsonOption,
    NewIndexOption,
    OverwriteOption,
    PrecisionChoice,
    RayOption,
    RayWorkersOption,
    RestartOption,
    SkipErrorsOption,
    VocabularyChoice,
    WidthOption,
    option_names,
)
from lexicept.cli.configuration import ConfigOption
from lexicept.cli.index import print_info
from lexicept.errors import ParameterError
from lexicept.models.sources import DEFAULT_BACKBONE, MINI

if TYPE_CHECKING:
    from lexicept.training.sae.settings import SAESettings


class WeightingChoice(StrEnum):
    """Weighting of activations."""

    bm25 = "bm25"
    splade = "splade"


class ArchitectureChoice(StrEnum):
    """Architecture of a sparse autoencoder (SAE)."""

    topk = "topk"
    batch_topk = "batch_topk"
    jumprelu = "jumprelu"
    relu = "relu"
    gated = "gated"
    hierarchical = "hierarchical"
    matryoshka = "matryoshka"


class PruningChoice(StrEnum):
    """Order in which limits keep a query's concepts."""

    weight = "weight"
    impact = "impact"


VocabularyOption = Annotated[
    VocabularyChoice, typer.Option(help="What to index. Words need no model; concepts need torch.")
]
LanguageOption = Annotated[
    str, typer.Option(help="Language of the stop words and the stemmer (ISO 639-1 code).")
]
ModelOption = Annotated[
    str | None,
    typer.Option(
        help="Saved concept model: a folder or a Hugging Face name.",
        show_default=f"{MINI}, in the package",
    ),
]
TrainOption = Annotated[
    bool,
    typer.Option("--train", help="Train an SAE on the corpus; its latents are the concepts."),
]
ConceptsOption = Annotated[
    bool | None,
    typer.Option(
        "--adapted/--no-adapted",
        help=f"Let the concepts of {MINI}, or of the SAE of --model, learn from the "
        "corpus first: a minute or two for 5,000 abstracts, nothing for a hundred documents. "
        f"Default: yes for {MINI}, no for --model.",
        show_default=False,
    ),
]
SAEOption = Annotated[
    str | None,
    typer.Option(help="Pretrained SAE of the backbone: a folder or a Hugging Face name."),
]
ExplanationsOption = Annotated[
    Path | None,
    typer.Option(
        help="Labels of the SAE's latents: a Neuronpedia export, as a .jsonl file or a folder."
    ),
]
BackboneOption = Annotated[
    str | None,
    typer.Option(help="Hugging Face model that the SAE reads.", show_default=DEFAULT_BACKBONE),
]
LayerOption = Annotated[
    int | None,
    typer.Option(
        help="Number of transformer blocks to run. Default: all, or as many as a pretrained SAE "
        "needs (a release's layer 20 is --layer 21)."
    ),
]
PrecisionOption = Annotated[
    PrecisionChoice,
    typer.Option(help="Number format of the backbone; bfloat16 is used only where it is faster."),
]
LatentsOption = Annotated[
    int | None, typer.Option(help="Number of latents of the SAE to train.", show_default="8192")
]
KOption = Annotated[
    int | None, typer.Option(help="Active latents per token of the SAE to train.", show_default="8")
]
ArchitectureOption = Annotated[
    ArchitectureChoice | None,
    typer.Option(help="Architecture of the SAE to train.", show_default="topk"),
]
TokensOption = Annotated[
    int | None,
    typer.Option(help="Tokens to train the SAE on.", show_default="1000000"),
]
SeedOption = Annotated[int | None, typer.Option(help="Seed of the SAE training.", show_default="0")]
QueryTokensOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Tokens after which the model cuts queries. Default: the model's length, or none: "
        "long texts are read in windows.",
    ),
]
DocumentTokensOption = Annotated[
    int | None,
    typer.Option(min=1, help="Tokens after which the model cuts documents. Default: likewise."),
]
EmbedOption = Annotated[
    bool,
    typer.Option(
        "--embed-model",
        help="Copy the backbone into the index, which otherwise refers to one in a package or on "
        "the hub by its name and checksum.",
    ),
]
WeightingOption = Annotated[
    WeightingChoice | None,
    typer.Option(
        help="Weighting of the concepts. Default: the one that their model was trained with."
    ),
]
QueryLimitOption = Annotated[
    int | None,
    typer.Option(min=1, help="Most concepts in a query. Default: the model's limit."),
]
QueryCostOption = Annotated[
    float | None,
    typer.Option(
        help="Most QD-FLOPs of a query's concepts: the sum of the shares of documents that have "
        "each of them. Default: the model's limit (1.5 for lexicept-mini)."
    ),
]
DocumentLimitOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Most concepts in a document. Default: the model's limit (160 for lexicept-mini).",
    ),
]
PruningOption = Annotated[
    PruningChoice | None,
    typer.Option(
        help="Concepts of a query that its limits keep: of the largest weight, or of the largest "
        "impact (weight × the concept's largest document weight). Default: as the model says."
    ),
]
WeightBitsOption = Annotated[
    int,
    typer.Option(
        help="Bits per posting weight: 32, or 8 for half the size and slightly different scores."
    ),
]


def build(
    corpus: CorpusArgument,
    out: NewIndexOption,
    vocabulary: VocabularyOption = VocabularyChoice.all,
    language: LanguageOption = "en",
    model: ModelOption = None,
    train_concepts: TrainOption = False,
    adapted: ConceptsOption = None,
    sae: SAEOption = None,
    width: WidthOption = None,
    explanations: ExplanationsOption = None,
    backbone: BackboneOption = None,
    layer: LayerOption = None,
    bidirectional: AttentionOption = None,
    precision: PrecisionOption = PrecisionChoice.bfloat16,
    num_latents: LatentsOption = None,
    k: KOption = None,
    architecture: ArchitectureOption = None,
    tokens: TokensOption = None,
    max_query_tokens: QueryTokensOption = None,
    max_document_tokens: DocumentTokensOption = None,
    embed_model: EmbedOption = False,
    weighting: WeightingOption = None,
    query_max_active_dims: QueryLimitOption = None,
    query_max_qd_flops: QueryCostOption = None,
    document_max_active_dims: DocumentLimitOption = None,
    pruning: PruningOption = None,
    weight_bits: WeightBitsOption = 32,
    seed: SeedOption = None,
    skip_errors: SkipErrorsOption = False,
    overwrite: OverwriteOption = False,
    restart: RestartOption = False,
    ray: RayOption = None,
    ray_workers: RayWorkersOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Build an index of a corpus: words, concepts, or both.

    Concepts come from lexicept-mini, the model in the package, which is adapted to the corpus,
    unless --model, --sae or --train names another source. Re-running the command resumes
    an interrupted build.
    """
    with option_names():
        training = _training(train_concepts, num_latents, k, architecture, tokens, seed)
        index = lexicept.build(
            corpus,
            out,
            vocabulary=vocabulary.value,
            language=language,
            model=model,
            concepts=lexicept.ConceptSettings(
                adapted=adapted,
                sae=sae,
                width=width,
                explanations=explanations,
                train=training,
                backbone=backbone,
                layer=layer,
                bidirectional=bidirectional,
                precision=precision.value,
                max_query_tokens=max_query_tokens,
                max_document_tokens=max_document_tokens,
                embed_model=embed_model,
            ),
            limits=lexicept.Limits(
                weighting=None if weighting is None else weighting.value,
                query_max_active_dims=query_max_active_dims,
                query_max_qd_flops=query_max_qd_flops,
                document_max_active_dims=document_max_active_dims,
                pruning=None if pruning is None else pruning.value,
            ),
            weight_bits=weight_bits,
            skip_errors=skip_errors,
            ray=ray,
            ray_workers=ray_workers,
            overwrite=overwrite,
            restart=restart,
            progress=True,
        )
    print_info(index, as_json)


def _training(
    wanted: bool,
    num_latents: int | None,
    k: int | None,
    architecture: ArchitectureChoice | None,
    tokens: int | None,
    seed: int | None,
) -> SAESettings | bool:
    """Return the settings of the SAE to train; False without --train.

    Raises:
        ParameterError: settings without --train.
    """
    options = {
        "num_latents": num_latents,
        "k": k,
        "architecture": architecture and architecture.value,
        "tokens": tokens,
        "seed": seed,
    }
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    if not wanted:
        if given:
            raise ParameterError("{0} requires {1}", next(iter(given)), "train")
        return False
    from lexicept.training.sae.settings import SAESettings

    return SAESettings(**given)
