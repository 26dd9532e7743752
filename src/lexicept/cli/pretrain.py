"""The command that pretrains a language head and its backbone: pretrain."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from lexicept.cli.common import (
    CorpusArgument,
    DtypeChoice,
    JsonOption,
    RestartOption,
    print_report,
    require_concepts,
)
from lexicept.cli.configuration import ConfigOption
from lexicept.models.sources import DEFAULT_BACKBONE


class HeadChoice(StrEnum):
    """Initial rows of the head."""

    mlm = "mlm"
    expanded = "expanded"
    random = "random"


class MaskingChoice(StrEnum):
    """Units that are masked, and the place to predict them from."""

    subwords = "subwords"
    words = "words"
    mntp = "mntp"
    causal = "causal"


class AttentionChoice(StrEnum):
    """Implementations of attention."""

    eager = "eager"
    sdpa = "sdpa"
    flash_attention_2 = "flash_attention_2"


class TrainedChoice(StrEnum):
    """Parameters that learn."""

    head = "head"
    lora = "lora"
    all = "all"


BackboneOption = Annotated[str, typer.Option(help="Hugging Face encoder or decoder to start from.")]
LayerOption = Annotated[
    int | None, typer.Option(help="Number of transformer blocks to run. Default: all.")
]
HeadOption = Annotated[
    HeadChoice,
    typer.Option(
        help="Initial rows of the head: those of the backbone's language head (mlm; of its input "
        "embeddings if it has none), their means over each word's sub-words (expanded), or random."
    ),
]
SizeOption = Annotated[
    int | None,
    typer.Option(
        help="Number of words that become dimensions, the most frequent ones; 100,000 by default. "
        "Requires --masking words."
    ),
]
VocabularyOption = Annotated[
    str | None,
    typer.Option(
        metavar="CORPUS",
        help="Documents to count these words in, such as those of a later training. Default: the "
        "corpus.",
    ),
]
MaskingOption = Annotated[
    MaskingChoice | None,
    typer.Option(
        help="Units that are masked and become dimensions. Default: words for --head expanded, "
        "otherwise subwords. For decoders: mntp masks sub-words and predicts each from the "
        "position before it, with bidirectional attention; causal predicts every next sub-word."
    ),
]
ShareOption = Annotated[
    float | None,
    typer.Option(help="Share of units to mask. Default: 0.2 for mntp, otherwise 0.15."),
]
HiddenOption = Annotated[
    float,
    typer.Option(
        help="Share of the masked units that are hidden; the others are seen and predicted. With 0 "
        "and --mask-share 1 the head learns to name every token."
    ),
]
MaxTokensOption = Annotated[
    int | None,
    typer.Option(
        help="Tokens at which texts are cut (ESPLADE: 64). Default: long texts have several "
        "windows."
    ),
]
LearningRateOption = Annotated[
    float,
    typer.Option(
        help="Highest learning rate; with --trained all use less, such as 1.6e-4 (ESPLADE)."
    ),
]
TrainedOption = Annotated[
    TrainedChoice,
    typer.Option(
        help="Parameters to train: the head, low-rank adapters of the backbone (lora; the head is "
        "frozen), or head and backbone (all)."
    ),
]
DtypeOption = Annotated[
    DtypeChoice | None,
    typer.Option(
        help="Type of the backbone's weights, also in the saved model. Default: the saved model's, "
        "or float32."
    ),
]
AttentionOption = Annotated[
    AttentionChoice | None,
    typer.Option(
        help="Implementation of attention; flash_attention_2 requires a GPU and half precision. "
        "Default: transformers' choice.",
    ),
]
CheckpointingOption = Annotated[
    bool,
    typer.Option(
        "--gradient-checkpointing",
        help="Compute activations again in the backward pass: less memory, a third more time.",
    ),
]


def pretrain(
    corpus: CorpusArgument,
    out: Annotated[Path, typer.Option(help="Folder of the new model; must not exist.")],
    backbone: BackboneOption = DEFAULT_BACKBONE,
    layer: LayerOption = None,
    head: HeadOption = HeadChoice.mlm,
    size: SizeOption = None,
    vocabulary: VocabularyOption = None,
    masking: MaskingOption = None,
    mask_share: ShareOption = None,
    hidden_share: HiddenOption = 0.9,
    steps: Annotated[int, typer.Option(help="Optimiser steps.")] = 1000,
    batch_size: Annotated[int, typer.Option(help="Windows of text per step.")] = 32,
    max_tokens: MaxTokensOption = None,
    learning_rate: LearningRateOption = 1e-3,
    warmup_steps: Annotated[int, typer.Option(help="Steps of linear warm-up.")] = 100,
    weight_decay: Annotated[float, typer.Option(help="AdamW's weight decay.")] = 0.01,
    trained: TrainedOption = TrainedChoice.head,
    lora_rank: Annotated[int, typer.Option(help="Rank of the adapters of --trained lora.")] = 64,
    bf16: Annotated[bool, typer.Option("--bf16", help="Compute in bfloat16.")] = False,
    dtype: DtypeOption = None,
    attn_implementation: AttentionOption = None,
    gradient_checkpointing: CheckpointingOption = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the order, masks and dropout.")] = 0,
    restart: RestartOption = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an existing --out.")
    ] = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Train a backbone and its language head to predict masked words of a corpus.

    The result serves as the start of a training (model.start in its configuration), as a model to
    build with (--model), or as a backbone (--backbone).
    Re-running the command resumes interrupted pretraining.
    """
    given = {name: getattr(value, "value", value) for name, value in locals().items()}
    require_concepts()
    from lexicept.models.encoder import Encoder
    from lexicept.pipelines.pretrain import pretrain as run
    from lexicept.training.pretraining.settings import PretrainingSettings

    settings = {name: given[name] for name in PretrainingSettings.__dataclass_fields__}
    model = run(
        corpus,
        out,
        backbone=backbone,
        layer=layer,
        head=head.value,
        size=size,
        vocabulary=vocabulary,
        restart=restart,
        overwrite=overwrite,
        progress=True,
        **settings,
    )
    size = Encoder.load(model).head.size
    print_report({"model": str(model), "dimensions": size, "steps": steps}, as_json)
