"""Convert pretrained SAEs and models from one layout to another."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lexicept.errors import InputError, checked_arguments, require
from lexicept.storage.workspace import new_folder, refuse_existing

if TYPE_CHECKING:
    from lexicept.models.converters import Kind
    from lexicept.models.onnx_export import Number

Layout = Literal[
    "lexicept",
    "saelens",
    "sparsify",
    "dictionary-learning",
    "sentence-transformers",
    "splade",
    "opensearch",
    "onnx",
]
"""Layouts written by ``convert``; the last four are for models."""

SAE_LIBRARIES = ("saelens", "sparsify", "dictionary-learning")
"""Layouts of other libraries for SAEs."""


@checked_arguments
def convert(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    to: Layout = "lexicept",
    layer: int | None = None,
    width: int | None = None,
    l0: float | None = None,
    scale: Literal["raw", "normalised"] | None = None,
    number: Literal["float32", "int8"] | None = None,
) -> dict[str, Any]:
    """Convert a pretrained SAE, or a model whose dimensions are sub-words, and describe it.

    The source is recognised by the names of files. SAEs: Llama Scope, Gemma Scope, SAELens,
    sparsify and dictionary_learning. Models: naver/splade's, sentence-transformers' SparseEncoder,
    OpenSearch's and lexicept's. Pickles are read for SAEs only, and only tensors inside.

    ``onnx`` takes any model, also with latents: graphs turn token ids into dimensions and weights.
    The layouts of SAE libraries also take a model of lexicept's, and write the SAE of the head.

    Args:
        source: a folder or a Hugging Face name, for an SAE perhaps with a folder inside.
        out: the folder to write; must not exist.
        to: the layout to write.
        layer: for a release of several SAEs: the number of blocks before the SAE, one more than
            the releases' layer number.
        width: likewise, the number of latents.
        l0: likewise, about how many latents are active per token; 100 by default.
        scale: the scale of activations of an SAE that was trained on normalised states; "raw" by
            default.
        number: for ONNX: the format of the blocks' weights; "float32" by default. "int8" takes a
            third of the space, and vectors differ.

    Returns:
        The properties of the source, as JSON values.

    Raises:
        InputError: an unknown source or layout, several fitting SAEs, an SAE or a model without a
            place in the layout, an SAE without a decoder, options of SAEs for a model, ``number``
            for a layout other than ONNX, ``out`` exists, or a package is missing.
    """
    source, target = os.fspath(source), Path(out)
    refuse_existing(target)
    require("concepts", "sentence_transformers")
    if number is not None and to != "onnx":
        raise InputError(f"number is a setting of ONNX graphs, not of {to}")
    from lexicept.models.converters import find_model

    folder, kind = find_model(source)
    if kind is None or (kind == "lexicept" and to in SAE_LIBRARIES):
        return _convert_sae(source, target, to, layer, width, l0, scale)
    if any(value is not None for value in (layer, width, l0, scale)):
        raise InputError(f"{source} is a model: layer, width, l0 and scale are options of SAEs")
    if to == "onnx":
        require("onnx", "onnx", "onnxruntime", "onnxscript")
    return _convert_model(source, folder, kind, to, target, number or "float32")


def _convert_sae(
    source: str,
    out: Path,
    to: str,
    layer: int | None,
    width: int | None,
    l0: float | None,
    scale: Literal["raw", "normalised"] | None,
) -> dict[str, Any]:
    from lexicept.models.sae.formats import WRITERS
    from lexicept.models.sae.pretrained import USUAL_L0, find_pretrained_sae

    if to not in WRITERS:
        raise InputError(f"{to} is a layout of models; {source} holds no known model")
    l0 = USUAL_L0 if l0 is None else l0
    release = find_pretrained_sae(source, layer, width, l0=l0, pickles=True)
    sae = release.load(scale)
    with new_folder(out, "convert") as staged:
        WRITERS[to](sae, staged)
    return {
        "found": release.layout.name,
        "source": release.origin["source"],
        "latents": sae.num_latents,
        "state_size": sae.d_in,
        "active": "thresholds" if sae.k is None else f"the {sae.k} largest",
        "hook": release.layout.hook or "unknown",
        "layer": "unknown" if release.layer is None else release.layer,
        "scale": sae.origin["scale"],
    }


def _convert_model(
    source: str, folder: Path, kind: Kind, to: str, out: Path, number: Number
) -> dict[str, Any]:
    from lexicept.models.converters import Kind, open_encoder, write_model
    from lexicept.models.hub import CARD
    from lexicept.models.model_card import make_card
    from lexicept.models.onnx_export import write_onnx

    if to not in [*[layout.value for layout in Kind], "onnx"]:
        raise InputError(f"{source} is a model: {to} is a layout of SAEs")
    if kind is Kind.lexicept and to == "lexicept":
        raise InputError(f"{source} is a model in lexicept's layout already")
    encoder = open_encoder(folder)
    with new_folder(out, "convert") as staged:
        if to == "onnx":
            write_onnx(encoder, staged, number)
        elif to != "lexicept":
            write_model(encoder, Kind(to), staged)
        else:
            encoder.save(str(staged), create_model_card=False)
            (staged / CARD).write_text(make_card(encoder, out.name, source))
    backbone, head = encoder.backbone, encoder.head
    windows = to == "lexicept" and backbone.max_document_tokens is None
    cut = "windows of" if windows else "cut after"
    return {
        "found": kind.value,
        "source": source,
        "backbone": type(backbone.model).__name__,
        "layers": backbone.num_layers,
        "dimensions": head.size,
        "pooling": head.settings.pooling,
        "queries": "a table of weights" if encoder.lookup is not None else "the same model",
        "long_texts": f"{cut} {backbone.one_window} tokens",
    }
