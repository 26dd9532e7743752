"""``python -m mini.pack RUN DATA OUT``: a trained run as the folder that the package carries.

The backbone stays on the hub or in its own package: here are its name, the tokenizer, encoder rows
in half precision, and a name for every concept, from the texts that it was trained on.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from safetensors.torch import load_file, save

from lexicept.corpora import read_documents
from lexicept.interpretation.describe import describe
from lexicept.models.encoder import Encoder
from lexicept.models.index_settings import IndexSettings
from lexicept.models.lora import add_adapters
from lexicept.models.sources import DEFAULT_BACKBONE, Reference
from lexicept.progress import ProgressLine
from lexicept.storage.files import replace_file, write_json
from lexicept.storage.texts import TextStore
from lexicept.vectorizers.concepts import ConceptVectorizer

CARD = Path(__file__).with_name("CARD.md")

EVERY = 6
"""Names are of every so many of the texts."""

MOST_BYTES = 15 * 2**20


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m mini.pack", description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("data", type=Path, help="What mini.collection made.")
    parser.add_argument("out", type=Path)
    parser.add_argument("--k", type=int, required=True, help="Active concepts per token.")
    parser.add_argument("--query-scale", type=float, required=True)
    parser.add_argument("--query-max-qd-flops", type=float, required=True)
    parser.add_argument("--document-max-active-dims", type=int, required=True)
    arguments = parser.parse_args()
    with TemporaryDirectory() as folder:
        without_weights(arguments.run / "model", folder)
        configure(
            Path(folder),
            arguments.out,
            arguments.query_max_qd_flops,
            query_k=arguments.k,
            document_k=arguments.k,
            query_scale=arguments.query_scale,
            document_max_active_dims=arguments.document_max_active_dims,
        )
    texts = [document.content for document in read_documents(str(arguments.data))][::EVERY]
    TextStore.write(arguments.out / "terms", names(arguments.out, texts))
    replace_file(arguments.out / "README.md", CARD.read_bytes())
    ConceptVectorizer.load(arguments.out)
    size = sum(path.stat().st_size for path in arguments.out.rglob("*") if path.is_file())
    print(f"{size / 2**20:.1f} MiB")
    assert size < MOST_BYTES


def without_weights(source: Path, out: str) -> None:
    """Save an encoder of a frozen backbone as adapters of it, which add nothing, and its head."""
    encoder = Encoder.load(source)
    backbone = encoder.backbone
    backbone.model = add_adapters(backbone.model, DEFAULT_BACKBONE, rank=1)
    backbone.reference = Reference.to(DEFAULT_BACKBONE)
    encoder.save(out, create_model_card=False)


def configure(source: Path, out: Path, query_max_qd_flops: float, **settings: float) -> None:
    """Copy an encoder of adapters and an SAE head, in half precision and without its decoder.

    Args:
        query_max_qd_flops: of its index settings.
        settings: of its head.
    """
    out.mkdir(parents=True)
    for path in sorted(source.rglob("*")):
        target = out / path.relative_to(source)
        if path.is_dir():
            target.mkdir()
        elif path.suffix != ".safetensors":
            replace_file(target, path.read_bytes())
        else:
            tensors = {name: half(tensor) for name, tensor in load_file(path).items()}
            tensors.pop("W_dec", None)
            replace_file(target, save(tensors))
    (described,) = out.rglob("sae.json")
    write_json(described, {**json.loads(described.read_bytes()), "decoder": False})
    config = described.with_name("config.json")
    write_json(config, {**json.loads(config.read_bytes()), **settings})
    replace(IndexSettings.read(out), query_max_qd_flops=query_max_qd_flops).write(out)


def half(tensor: torch.Tensor) -> torch.Tensor:
    """A matrix in half precision; what else there is takes no room."""
    return (tensor.half() if tensor.ndim > 1 else tensor).contiguous()


def names(folder: Path, texts: list[str]) -> list[str]:
    """Name each concept by the words that fire it in some texts."""
    encoder = Encoder.load(folder)
    with ProgressLine() as progress:
        activations = encoder.encode_activations(texts)
        return describe(encoder, texts, activations, progress=progress).labels


if __name__ == "__main__":
    main()
