"""The command that builds an index of a corpus: build."""

from __future__ import annotations

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
    OverwriteOption,
    RayOption,
    RayWorkersOption,
    RestartOption,
    VocabularyChoice,
    WidthOption,
    option_names,
)
from lexicept.cli.configuration import ConfigOption
from lexicept.cli.index import print_info
from lexicept.errors import ParameterError

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


class PrecisionChoice(StrEnum):
    """Number format of the backbone."""

    float32 = "float32"
    bfloat16 = "bfloat16"


VocabularyOption = Annotated[
    VocabularyChoice, typer.Option(help="Words need no model; concepts need torch.")
]
LanguageOption = Annotated[
    str, typer.Option(help="Language of the stop words and stemming (ISO 639-1 code).")
]
ModelOption = Annotated[
    str | None,
    typer.Option(
        help="A saved concept model: a folder or a hub's name.",
        show_default=f"{MINI}, in the package",
    ),
]
TrainOption = Annotated[
    bool,
    typer.Option(
        "--train-concepts", help="Train an SAE on the corpus; its latents are the concepts."
    ),
]
AdaptOption = Annotated[
    bool,
    typer.Option("--adapt", help=f"Continue the training of {MINI} on this corpus (minutes)."),
]
SAEOption = Annotated[
    str | None,
    typer.Option(help="A pretrained SAE of the backbone: a folder or a hub's name."),
]
ExplanationsOption = Annotated[
    Path | None,
    typer.Option(
        help="Labels of the SAE's latents: Neuronpedia's export, a .jsonl file or a folder."
    ),
]
BackboneOption = Annotated[
    str | None,
    typer.Option(help="Hugging Face model that the SAE reads.", show_default=BACKBONE),
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
    typer.Option(
        help="Number format of the backbone; bfloat16 only where the hardware is faster with it."
    ),
]
LatentsOption = Annotated[
    int | None, typer.Option(help="Latents of the SAE to train.", show_default="8192")
]
KOption = Annotated[
    int | None, typer.Option(help="Active latents per token in training.", show_default="8")
]
ArchitectureOption = Annotated[
    ArchitectureChoice | None,
    typer.Option(help="Architecture of the SAE to train.", show_default="topk"),
]
TokensOption = Annotated[
    int | None,
    typer.Option(help="Tokens to train the SAE on.", show_default="1000000"),
]
SeedOption = Annotated[int | None, typer.Option(help="Seed of the training.", show_default="0")]
WeightingOption = Annotated[
    WeightingChoice | None,
    typer.Option(help="Weighting of the concepts; by default the one their model was trained for."),
]
QueryLimitOption = Annotated[
    int | None,
    typer.Option(min=1, help="Most concepts of a query; by default the model's limit."),
]
QueryCostOption = Annotated[
    float | None,
    typer.Option(
        help="Most QD-FLOPs of a query's concepts: the shares of all documents that have each of "
        "them, added up; by default the model's limit (1.5 for lexicept-mini)."
    ),
]
DocumentLimitOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Most concepts of a document; by default the model's limit (160 for lexicept-mini).",
    ),
]


WeightBitsOption = Annotated[
    int,
    typer.Option(
        help="Bits of a posting's weight: 32, or 8 for half the size, a little less exact."
    ),
]


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
    overwrite: OverwriteOption = False,
    restart: RestartOption = False,
    ray: RayOption = None,
    ray_workers: RayWorkersOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Index a corpus by words, by concepts, or by both.

    Concepts are those of lexicept-mini, the model in the package, unless an option names another
    source. Re-running the command resumes an interrupted build.
    """
    import lexicept

    training = {
        **{"num_latents": num_latents, "k": k, "architecture": architecture},
        "train_tokens": train_tokens,
        "seed": seed,
    }
    with option_names():
        index = lexicept.build(
            corpus,
            out,
            vocabulary=vocabulary.value,
            language=language,
            model=model,
            adapt=adapt,
            sae=sae,
            width=width,
            explanations=explanations,
            train_concepts=_training(train_concepts, training),
            backbone=backbone,
            layer=layer,
            precision=precision.value,
            weighting=None if weighting is None else weighting.value,
            query_max_active_dims=query_max_active_dims,
            query_max_qd_flops=query_max_qd_flops,
            document_max_active_dims=document_max_active_dims,
            weight_bits=weight_bits,
            ray=ray,
            ray_workers=ray_workers,
            overwrite=overwrite,
            restart=restart,
            progress=True,
        )
    print_info(index, as_json)


def _training(wanted: bool, options: dict[str, Any]) -> SAESettings | bool:
    """Return the settings of the SAE to train; False without --train-concepts.

    Raises:
        ParameterError: settings without --train-concepts.
    """
    given = {name: value for name, value in options.items() if value is not None}
    if not wanted:
        if given:
            raise ParameterError("{0} requires {1}", next(iter(given)), "train_concepts")
        return False
    from lexicept.training.sae.settings import SAESettings

    if "train_tokens" in given:
        given["tokens"] = given.pop("train_tokens")
    return SAESettings(**{name: getattr(v, "value", v) for name, v in given.items()})
