"""Explanations of an SAE's latents, as Neuronpedia exports them."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from lexicept.corpora.json_lines import read_objects
from lexicept.corpora.records import Location
from lexicept.errors import InputError
from lexicept.neural.sae.model import SAE, block_of


def read_explanations(path: str | os.PathLike[str], sae: SAE) -> dict[int, str]:
    """Read the explanations of an SAE's latents, latent → description in one line, from a JSON
    Lines file, gzipped or not, or a folder of files (``batch-0.jsonl.gz``, …).

    Every line is an object with ``index``, the latent; ``description``; and ``layer``, the
    release's name that begins with a block counted from 0, as in ``20-gemmascope-res-16k``, which
    must be the SAE's if known. The first non-empty explanation of a latent counts. Raises
    InputError for an absent file, a bad line or a latent that the SAE lacks."""
    block = block_of(sae.origin.get("hook"))
    explanations: dict[int, str] = {}
    source: object = None
    for file in _files(Path(path)):
        for location, fields in read_objects(str(file)):
            _check_source(location, fields.get("layer"), source, block)
            source = fields.get("layer")
            latent = _latent(location, fields.get("index"), sae.num_latents)
            description = fields.get("description")
            if description is not None and not isinstance(description, str):
                raise location.error(f"the description must be a string, not {description!r:.80}")
            text = " ".join((description or "").split())
            if text:
                explanations.setdefault(latent, text)
    if not explanations:
        raise InputError(f"{path}: no explanations")
    return explanations


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = [*path.glob("*.jsonl"), *path.glob("*.jsonl.gz")]
    # batch-10 comes after batch-9.
    return sorted(files, key=lambda file: [int(n) for n in re.findall(r"\d+", file.name)])


def _check_source(location: Location, layer: object, before: object, block: int | None) -> None:
    if isinstance(layer, bool) or not isinstance(layer, str | int):
        raise location.error(
            f"the layer must be a source such as 20-gemmascope-res-16k, not {layer!r}"
        )
    if before is not None and layer != before:
        raise location.error(f"an explanation of {layer!r} among those of {before!r}")
    source_block = re.match(r"\d+", str(layer))
    if block is not None and (source_block is None or int(source_block[0]) != block):
        raise location.error(f"an explanation of layer {layer!r}, the SAE reads block {block}")


def _latent(location: Location, index: Any, num_latents: int) -> int:
    # Neuronpedia writes numbers as strings.
    sound = isinstance(index, str | int) and re.fullmatch(r"\d{1,12}", str(index)) is not None
    if not sound:
        raise location.error(f"the index must be the number of a latent, not {index!r:.80}")
    if int(index) >= num_latents:
        raise location.error(f"latent {index}, but the SAE has {num_latents} latents")
    return int(index)
