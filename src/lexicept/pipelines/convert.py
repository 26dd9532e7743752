"""Convert pretrained SAEs and models from one layout to another."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lexicept.checks import Count, Positive, Whole, checked_arguments
from lexicept.encoding.encoded import PACKAGED
from lexicept.encoding.sources import MINI
from lexicept.errors import InputError, require
from lexicept.index.builder import Contents
from lexicept.index.manifest import MANIFEST
from lexicept.index.reader import IndexReader
from lexicept.storage.workspace import new_folder, refuse_existing

if TYPE_CHECKING:
    from lexicept.neural.converters.reading import ModelLayout
    from lexicept.neural.encoders.onnx_export import WeightFormat
    from lexicept.neural.sae.model import SAE

Layout = Literal[
    "lexicept", "saelens", "dictionary-learning", "sentence-transformers", "splade", "onnx"
]
"""Layouts written by ``convert``; the last three are for models."""

READ = 64
"""Documents that are read at once for a decoder."""

SAE_LIBRARIES = ("saelens", "dictionary-learning")
"""Layouts of other libraries for SAEs."""


@checked_arguments
def convert(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    to: Layout = "lexicept",
    layer: Whole | None = None,
    width: Count | None = None,
    l0: Positive | None = None,
    number: Literal["float32", "int8"] | None = None,
) -> dict[str, Any]:
    """Convert a pretrained SAE, or a model whose dimensions are sub-words, and describe it.

    The source is recognised by the names of files. SAEs: Llama Scope, Gemma Scope, SAELens,
    sparsify and dictionary_learning. Models: naver/splade's, sentence-transformers' SparseEncoder
    and lexicept's. Pickles are read for SAEs only, and only tensors inside.

    ``onnx`` takes any model, also with latents: graphs turn token ids into dimensions and weights.
    The layouts of SAE libraries also take a model of lexicept's, and write the SAE of the head. An
    index stands for the model of its concepts. An SAE that was saved without its decoder, like
    lexicept-mini's, gets one by least squares on the index's documents.

    Args:
        source: a folder, an index or a Hugging Face name, for an SAE perhaps with a folder inside.
        out: the folder to write; must not exist.
        to: the layout to write.
        layer: for a release of several SAEs: the number of blocks before the SAE, one more than
            the releases' layer number.
        width: likewise, the number of latents.
        l0: likewise, about how many latents are active per token; 100 by default.
        number: for ONNX: the format of the blocks' weights; "float32" by default. "int8" takes a
            third of the space, and vectors differ.

    Returns:
        The properties of the source, as JSON values; for a fitted decoder with ``fvu``, the
        fraction of variance unexplained on tokens that it was not fitted to.

    Raises:
        InputError: an unknown source or layout, several fitting SAEs, an SAE or a model without a
            place in the layout, an index without concepts, an SAE without a decoder and without
            an index, options of SAEs for a model, ``number`` for a layout other than ONNX, ``out``
            exists, or a package is missing.

    Examples:
        >>> lexicept.convert("pets.index", "sae", to="saelens")["latents"]
        8192
    """
    source, target = os.fspath(source), Path(out)
    refuse_existing(target)
    require("train", "sentence_transformers")
    if number is not None and to != "onnx":
        raise InputError(f"number is a setting of ONNX graphs, not of {to}")
    from lexicept.neural.converters.reading import find_model

    source, texts = model_of(source)
    folder, layout = find_model(source)
    if layout is None or (layout == "lexicept" and to in SAE_LIBRARIES):
        model = source if layout is None else str(folder)
        return _convert_sae(model, target, to, layer, width, l0, texts)
    if any(value is not None for value in (layer, width, l0)):
        raise InputError(f"{source} is a model: layer, width and l0 are options of SAEs")
    if to == "onnx":
        require("onnx", "onnx", "onnxruntime", "onnxscript")
    return _convert_model(source, folder, layout, to, target, number or "float32")


def model_of(source: str) -> tuple[str, Sequence[str] | None]:
    """Return the model of an index's concepts, and the documents; any other source, and None.
    Raises InputError for an index without concepts."""
    if not (Path(source) / MANIFEST).is_file():
        return source, None
    index = IndexReader.open(source)
    index.span("concepts")  # raises InputError without concepts
    folder = index.folder / "concepts"
    packaged = (folder / PACKAGED).exists()
    return MINI if packaged else str(folder / "model"), Contents(index.folder)


def _convert_sae(
    source: str,
    out: Path,
    to: str,
    layer: int | None,
    width: int | None,
    l0: float | None,
    texts: Sequence[str] | None,
) -> dict[str, Any]:
    from lexicept.neural.sae_formats import WRITERS
    from lexicept.neural.sae_formats.pretrained import USUAL_L0, find_pretrained_sae

    if to not in WRITERS:
        raise InputError(f"{to} is a layout of models; {source} holds no known model")
    l0 = USUAL_L0 if l0 is None else l0
    release = find_pretrained_sae(source, layer, width, l0=l0, pickles=True)
    sae, fitted = release.load(), {}
    if texts is not None and to in SAE_LIBRARIES and not sae.decoder:
        fitted = _fit_decoder(sae, source, texts)
    with new_folder(out, "convert") as staged:
        WRITERS[to](sae, staged)
    return {
        "found": release.layout.name,
        "source": release.origin["source"],
        "latents": sae.num_latents,
        "state_size": sae.d_in,
        "active": "thresholds" if sae.k is None else f"the {sae.k} largest",
        "hook": sae.origin["hook"] or "unknown",
        "layer": "unknown" if sae.origin["layer"] is None else sae.origin["layer"],
        **fitted,
    }


def _fit_decoder(sae: SAE, source: str, texts: Sequence[str]) -> dict[str, Any]:
    """Fit the decoder of a model's SAE to a random sample of texts; return the quality."""
    import numpy as np

    from lexicept.neural.converters.reading import open_encoder
    from lexicept.neural.sae.decoder import FITTED_TOKENS, fit_decoder
    from lexicept.neural.sae.states import backbone_reader, origin_of

    encoder = open_encoder(source)
    prompt, before = encoder.prompt("document"), encoder.head.before_autoencoder
    order = np.random.default_rng(0).permutation(len(texts))[:FITTED_TOKENS].tolist()
    batches = (
        backbone_reader(encoder.backbone, [prompt + texts[n] for n in block], before)(
            range(len(block))
        )
        for block in (order[start : start + READ] for start in range(0, len(order), READ))
    )
    report = fit_decoder(sae, batches)
    if sae.origin.get("hook") is None:  # the model may have adapters, which no name has
        origin = origin_of(encoder.backbone, transformed=before is not None)
        sae.origin |= {name: origin.get(name) for name in ("hook", "layer")}
    return {"decoder": "fitted to the documents", "fvu": report.fvu, "fvu_tokens": report.tokens}


def _convert_model(
    source: str, folder: Path, layout: ModelLayout, to: str, out: Path, number: WeightFormat
) -> dict[str, Any]:
    from lexicept.encoding.hub import CARD
    from lexicept.neural.converters.reading import ModelLayout, open_encoder
    from lexicept.neural.converters.writing import write_model
    from lexicept.neural.encoders.model_card import make_card
    from lexicept.neural.encoders.onnx_export import write_onnx

    if to not in [*ModelLayout, "onnx"]:
        raise InputError(f"{source} is a model: {to} is a layout of SAEs")
    if layout is ModelLayout.lexicept and to == "lexicept":
        raise InputError(f"{source} is a model in lexicept's layout already")
    encoder = open_encoder(folder)
    with new_folder(out, "convert") as staged:
        if to == "onnx":
            write_onnx(encoder, staged, number)
        elif to != "lexicept":
            write_model(encoder, ModelLayout(to), staged)
        else:
            encoder.save(str(staged), create_model_card=False)
            (staged / CARD).write_text(make_card(encoder, out.name, source))
    backbone, head = encoder.backbone, encoder.head
    windows = to == "lexicept" and backbone.max_document_tokens is None
    cut = "windows of" if windows else "cut after"
    return {
        "found": layout.value,
        "source": source,
        "backbone": type(backbone.model).__name__,
        "layers": backbone.num_layers,
        "dimensions": head.size,
        "pooling": head.settings.pooling,
        "long_texts": f"{cut} {backbone.one_window} tokens",
    }
