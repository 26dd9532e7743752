"""The command that brings pretrained SAEs and models from one layout to another: convert."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lexicept.cli.common import JsonOption, WidthOption, print_report
from lexicept.errors import InputError, require

if TYPE_CHECKING:
    from lexicept.models.converters import Kind


class LayoutChoice(StrEnum):
    """What is written."""

    lexicept = "lexicept"
    saelens = "saelens"
    sentence_transformers = "sentence-transformers"
    splade = "splade"
    opensearch = "opensearch"


class ScaleChoice(StrEnum):
    """What activations are on."""

    raw = "raw"
    normalised = "normalised"


SourceArgument = Annotated[
    str,
    typer.Argument(
        help="A folder or a hub's name, known by its files. SAEs: Llama Scope, Gemma Scope, "
        "SAELens, sparsify, dictionary_learning, perhaps with a folder in the name. Models: "
        "naver/splade's, sentence-transformers' SparseEncoder, OpenSearch's, lexicept's."
    ),
]
LayerOption = Annotated[
    int | None,
    typer.Option(
        help="Of several SAEs, that after so many blocks: one more than the number that releases "
        "give the layer."
    ),
]
L0Option = Annotated[
    float | None,
    typer.Option(
        help="Of several SAEs, that with about so many active latents.", show_default="100"
    ),
]
ScaleOption = Annotated[
    ScaleChoice | None,
    typer.Option(
        help="Of the activations of an SAE that was trained on normalised states; raw by default."
    ),
]


def convert(
    source: SourceArgument,
    out: Annotated[Path, typer.Option(help="What is written; must not exist.")],
    to: Annotated[
        LayoutChoice, typer.Option(help="The layout to write; saelens is for SAEs.")
    ] = LayoutChoice.lexicept,
    layer: LayerOption = None,
    width: WidthOption = None,
    l0: L0Option = None,
    scale: ScaleOption = None,
    as_json: JsonOption = False,
) -> None:
    """Convert a pretrained SAE, or a model whose dimensions are sub-words.

    Only of SAEs are pickles read (tensors only).
    """
    from lexicept.storage.workspace import refuse_existing

    refuse_existing(out)
    require("concepts", "sentence_transformers")
    from lexicept.models.converters import recognise
    from lexicept.models.hub import model_folder

    kind = _kind_on_hub(source)
    folder = Path(source) if kind is None else model_folder(source)
    if folder.is_dir():
        kind = recognise(folder)
    if kind is None:
        report = _convert_sae(source, out, to, layer, width, l0, scale)
    elif any(value is not None for value in (layer, width, l0, scale)):
        raise InputError(f"{source} is a model: --layer, --width, --l0 and --scale are of SAEs")
    else:
        report = _convert_model(source, folder, kind, to, out)
    print_report({**report, "written": f"{out} ({to.value})"}, as_json)


def _kind_on_hub(source: str) -> Kind | None:
    """The layout of a hub's model; None for SAEs, which are found by their own reader."""
    from lexicept.models.converters import recognise
    from lexicept.models.hub import is_name, model_folder

    if not is_name(source):
        return None
    small = ("modules.json", "router_config.json", "config.json")
    return recognise(model_folder(source, files=small))


def _convert_sae(
    source: str,
    out: Path,
    to: LayoutChoice,
    layer: int | None,
    width: int | None,
    l0: float | None,
    scale: ScaleChoice | None,
) -> dict[str, Any]:
    from lexicept.models.sae.formats import save_saelens
    from lexicept.models.sae.pretrained import USUAL_L0, find_pretrained_sae
    from lexicept.storage.workspace import new_folder

    if to not in (LayoutChoice.lexicept, LayoutChoice.saelens):
        raise InputError(f"--to {to.value} is for models; {source} is none that is known")
    found = find_pretrained_sae(
        source, layer, width, l0=USUAL_L0 if l0 is None else l0, pickles=True
    )
    sae = found.load(None if scale is None else scale.value)
    with new_folder(out, "convert") as staged:
        if to is LayoutChoice.saelens:
            save_saelens(sae, staged)
        else:
            sae.save(staged)
    return {
        "found": found.layout.name,
        "source": found.origin["source"],
        "latents": sae.num_latents,
        "state_size": sae.d_in,
        "active": "thresholds" if sae.k is None else f"the {sae.k} largest",
        "hook": found.layout.hook or "unknown",
        "layer": "unknown" if found.layer is None else found.layer,
        "scale": sae.origin["scale"],
    }


def _convert_model(
    source: str, folder: Path, kind: Kind, to: LayoutChoice, out: Path
) -> dict[str, Any]:
    from lexicept.models.converters import Kind, read_model, write_model
    from lexicept.models.encoder import Encoder
    from lexicept.models.hub import CARD
    from lexicept.models.model_card import make_card
    from lexicept.storage.workspace import new_folder

    if to is LayoutChoice.saelens:
        raise InputError(f"{source} is a model: --to saelens is for SAEs")
    if kind is Kind.lexicept and to is LayoutChoice.lexicept:
        raise InputError(f"{source} is a model of lexicept already")
    encoder = Encoder.load(folder) if kind is Kind.lexicept else read_model(folder, kind)

    with new_folder(out, "convert") as staged:
        if to is not LayoutChoice.lexicept:
            write_model(encoder, Kind(to.value), staged)
        else:
            encoder.save(str(staged), create_model_card=False)
            (staged / CARD).write_text(make_card(encoder, out.name, source))
    backbone, head = encoder.backbone, encoder.head
    windows = to is LayoutChoice.lexicept and backbone.max_tokens is None
    return {
        "found": kind.value,
        "source": source,
        "backbone": type(backbone.model).__name__,
        "layers": backbone.num_layers,
        "dimensions": head.size,
        "pooling": head.settings.pooling,
        "queries": "a table of weights" if encoder.lookup is not None else "the same model",
        "long_texts": f"{'windows of' if windows else 'cut after'} {backbone.window} tokens",
    }
