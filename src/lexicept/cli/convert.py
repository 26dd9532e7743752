"""The command that brings a pretrained SAE from one layout to another: convert."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lexicept.cli.common import JsonOption, WidthOption, print_report, require

if TYPE_CHECKING:
    from lexicept.sae import SAE

app = typer.Typer()


class LayoutChoice(StrEnum):
    """What is written."""

    lexicept = "lexicept"
    saelens = "saelens"


class ScaleChoice(StrEnum):
    """What activations are on."""

    raw = "raw"
    normalised = "normalised"


SourceArgument = Annotated[
    str,
    typer.Argument(
        help="A folder or a hub's name, such as google/gemma-scope-2b-pt-res, perhaps with a "
        "folder in it: Llama Scope, Gemma Scope, SAELens, sparsify, dictionary_learning."
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
    float, typer.Option(help="Of several SAEs, that with about so many active latents.")
]
ScaleOption = Annotated[
    ScaleChoice | None,
    typer.Option(
        help="Of the activations of an SAE that was trained on normalised states; raw by default."
    ),
]


@app.command()
def convert(
    source: SourceArgument,
    out: Annotated[Path, typer.Option(help="Where the SAE will be; must not exist.")],
    to: Annotated[LayoutChoice, typer.Option(help="The layout to write.")] = LayoutChoice.lexicept,
    layer: LayerOption = None,
    width: WidthOption = None,
    l0: L0Option = 100.0,
    scale: ScaleOption = None,
    as_json: JsonOption = False,
) -> None:
    """Convert a pretrained SAE; the only command that reads pickled ones (tensors only)."""
    from lexicept.indexing import refuse_existing

    refuse_existing(out)
    require("concepts", "sentence_transformers")
    from lexicept.sae.pretrained import find_pretrained_sae

    found = find_pretrained_sae(source, layer, width, l0=l0, pickles=True)
    sae = found.load(None if scale is None else scale.value)
    _write(sae, to, out)
    report = {
        "found": found.layout.name,
        "source": found.origin["source"],
        "latents": sae.num_latents,
        "state_size": sae.d_in,
        "active": "thresholds" if sae.k is None else f"the {sae.k} largest",
        "hook": found.layout.hook or "unknown",
        "layer": "unknown" if found.layer is None else found.layer,
        "scale": sae.origin["scale"],
        "written": f"{out} ({to.value})",
    }
    print_report(report, as_json)


def _write(sae: SAE, to: LayoutChoice, out: Path) -> None:
    """Write an SAE into a folder that is there when it is whole."""
    import shutil

    from lexicept.indexing import refuse_existing
    from lexicept.sae.formats import save_saelens
    from lexicept.storage import sync_folder

    unfinished = out.with_name(f"{out.name}.partial")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    try:
        if to is LayoutChoice.saelens:
            save_saelens(sae, unfinished)
        else:
            sae.save(unfinished)
        sync_folder(unfinished)
        refuse_existing(out)
        unfinished.rename(out)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
