"""The command that converts pretrained SAEs and models from one layout to another: convert."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from lexicept.cli.common import JsonOption, WidthOption, print_report, working


class LayoutChoice(StrEnum):
    """The layout to write."""

    lexicept = "lexicept"
    saelens = "saelens"
    sparsify = "sparsify"
    dictionary_learning = "dictionary-learning"
    sentence_transformers = "sentence-transformers"
    splade = "splade"
    opensearch = "opensearch"
    onnx = "onnx"


class NumberChoice(StrEnum):
    """The format of an ONNX graph's weights."""

    float32 = "float32"
    int8 = "int8"


class ScaleChoice(StrEnum):
    """The scale of activations."""

    raw = "raw"
    normalised = "normalised"


SourceArgument = Annotated[
    str,
    typer.Argument(
        help="Folder or Hugging Face name; its layout is recognised by its files. SAEs: Llama "
        "Scope, Gemma Scope, SAELens, sparsify, dictionary_learning; a folder may follow the name. "
        "Models: naver/splade, sentence-transformers' SparseEncoder, OpenSearch, lexicept."
    ),
]
LayerOption = Annotated[
    int | None,
    typer.Option(
        help="For a release of several SAEs: the number of blocks before the SAE, which is the "
        "release's layer number plus one."
    ),
]
L0Option = Annotated[
    float | None,
    typer.Option(
        help="For a release of several SAEs: about how many latents are active per token.",
        show_default="100",
    ),
]
ScaleOption = Annotated[
    ScaleChoice | None,
    typer.Option(
        help="Scale of activations, for SAEs trained on normalised states.", show_default="raw"
    ),
]


def convert(
    source: SourceArgument,
    out: Annotated[Path, typer.Option(help="Folder to write; must not exist.")],
    to: Annotated[
        LayoutChoice,
        typer.Option(
            help="Layout to write; the last four are for models. saelens, sparsify and "
            "dictionary-learning also take the SAE of a model of lexicept's."
        ),
    ] = LayoutChoice.lexicept,
    layer: LayerOption = None,
    width: WidthOption = None,
    l0: L0Option = None,
    scale: ScaleOption = None,
    number: Annotated[
        NumberChoice | None,
        typer.Option(
            help="For --to onnx: format of the weights; int8 takes a third of the space, and its "
            "vectors differ.",
            show_default="float32",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Convert a pretrained SAE or model to another layout.

    The dimensions of a model must be sub-words, but for --to onnx. Pickles are read for SAEs only,
    and only tensors.
    """
    from lexicept.pipelines.convert import convert

    with working("converting"):
        report = convert(
            source,
            out,
            to=to.value,
            layer=layer,
            width=width,
            l0=l0,
            scale=None if scale is None else scale.value,
            number=None if number is None else number.value,
        )
    print_report({**report, "written": f"{out} ({to.value})"}, as_json)
