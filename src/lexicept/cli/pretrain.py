"""The command that pretrains a language head and its backbone: pretrain."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from lexicept.cli.common import (
    BACKBONE,
    CorpusArgument,
    JsonOption,
    RestartOption,
    print_report,
    require_concepts,
)


class HeadChoice(StrEnum):
    """Initial rows of the head."""

    mlm = "mlm"
    expanded = "expanded"
    random = "random"


class MaskingChoice(StrEnum):
    """What is masked, and the place to predict it from."""

    subwords = "subwords"
    words = "words"
    mntp = "mntp"
    causal = "causal"


class TrainedChoice(StrEnum):
    """Parameters that learn."""

    head = "head"
    lora = "lora"
    all = "all"


BackboneOption = Annotated[
    str, typer.Option(help="Hugging Face encoder or decoder under the head.")
]
LayerOption = Annotated[
    int | None, typer.Option(help="Number of the backbone's blocks to run; all by default.")
]
HeadOption = Annotated[
    HeadChoice,
    typer.Option(
        help="Initial rows: the backbone's own language head's (an encoder's without one: its "
        "input embeddings), the means of these over the sub-words of each word, or random ones."
    ),
]
SizeOption = Annotated[
    int | None,
    typer.Option(
        help="Number of words that are dimensions, the most frequent of the corpus; 100,000 by "
        "default. Requires masking words."
    ),
]
MaskingOption = Annotated[
    MaskingChoice | None,
    typer.Option(
        help="What is masked, and the dimensions of the head; words by default for the head "
        "expanded, sub-words for the others. For decoders: mntp, sub-words that are predicted "
        "from the place before them, in both directions; causal, every next sub-word."
    ),
]
ShareOption = Annotated[
    float | None,
    typer.Option(help="Share that is masked; 0.2 by default for mntp, 0.15 for the others."),
]
LearningRateOption = Annotated[
    float,
    typer.Option(help="Highest learning rate; a backbone needs less, such as 1.6e-4 (ESPLADE)."),
]
TrainedOption = Annotated[
    TrainedChoice,
    typer.Option(
        help="Parameters that learn: the head, low-rank adapters of the backbone under a frozen "
        "head, or head and backbone."
    ),
]


def pretrain(
    corpus: CorpusArgument,
    out: Annotated[Path, typer.Option(help="Folder of the new model; must not exist.")],
    backbone: BackboneOption = BACKBONE,
    layer: LayerOption = None,
    head: HeadOption = HeadChoice.mlm,
    size: SizeOption = None,
    masking: MaskingOption = None,
    mask_share: ShareOption = None,
    steps: Annotated[int, typer.Option(help="Optimiser steps.")] = 1000,
    batch_size: Annotated[int, typer.Option(help="Windows of text in a step.")] = 32,
    learning_rate: LearningRateOption = 1e-3,
    trained: TrainedOption = TrainedChoice.head,
    lora_rank: Annotated[int, typer.Option(help="Rank of the adapters.")] = 64,
    bf16: Annotated[bool, typer.Option("--bf16", help="Multiply in bfloat16.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of order, masks and dropout.")] = 0,
    restart: RestartOption = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace --out.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Train a language head and its backbone to predict masked words of a corpus.

    The model is one that training starts from (model.start), that build takes (--model), and that
    is a backbone (model.backbone, --backbone), which may be cut to fewer blocks.
    Re-running the command resumes interrupted pretraining.
    """
    require_concepts()
    from lexicept.models.encoder import Encoder
    from lexicept.pipelines.pretrain import pretrain as run

    model = run(
        corpus,
        out,
        backbone=backbone,
        layer=layer,
        head=head.value,
        size=size,
        masking=None if masking is None else masking.value,
        mask_share=mask_share,
        trained=trained.value,
        lora_rank=lora_rank,
        steps=steps,
        batch_size=batch_size,
        learning_rate=learning_rate,
        bf16=bf16,
        seed=seed,
        restart=restart,
        overwrite=overwrite,
        progress=True,
    )
    size = Encoder.load(model).head.size
    print_report({"model": str(model), "dimensions": size, "steps": steps}, as_json)
