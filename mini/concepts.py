"""``python -m mini.concepts TEXTS OUT``: lexicept-mini's concepts, over what ``mini.encoder`` made.

An SAE learns to reconstruct the encoder's states of the corpus that ``mini.texts`` made. OUT gets
its encoder rows, the settings, names and the card. OUT.work keeps states and the training, for a
call that resumes it or has other settings of HEAD and INDEX; remove it in the end.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from lexicept.concepts.describe import describe
from lexicept.encoding.eight_bits import FILE, EightBitBert
from lexicept.encoding.light_encoder import LightEncoder
from lexicept.encoding.pooled import KeptActivations
from lexicept.kernels.compiled import in_order, num_threads
from lexicept.neural.backbones.backbone import Backbone
from lexicept.neural.encoders.encoder import Encoder
from lexicept.neural.heads.sae import SAEHead
from lexicept.neural.sae.model import SAE
from lexicept.neural.vectorizers.concepts import ConceptVectorizer
from lexicept.progress import Progress, ProgressLine
from lexicept.storage.arrays import load_array
from lexicept.storage.files import fingerprint, fingerprint_json, replace_file, replacing, sha256
from lexicept.storage.texts import TextStore
from lexicept.training.sae import adaptation
from lexicept.training.sae.adaptation import HEAD_FOLDER, with_initial_decoder
from lexicept.training.sae.settings import SAESettings
from lexicept.training.sae.trainer import train_on_states
from mini.texts import read

TRAINING = SAESettings(
    num_latents=8192,
    k=8,
    tokens=9_000_000,
    warmup_steps=100,
    auxiliary_every=4,
    buffer_tokens=2**16,
    seed=0,
)

HEAD = replace(adaptation.HEAD, query_scale=0.5)

SHARD = 64
"""Texts whose states are in one file: some 4,000 tokens."""

FITTED_SHARDS = 8
"""Files of states that a decoder is fitted to where encoder rows are given."""

NAMED_EVERY = 4
"""Names come from every so many of the texts."""

NAMED_TOKENS = 500_000
"""Tokens of the sample that names come from, and of texts with concepts that it misses."""

MOST_BYTES = 30 * 2**20

CARD = Path(__file__).with_name("CARD.md")


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m mini.concepts", description=__doc__)
    parser.add_argument("texts", type=Path, help="What mini.texts made.")
    parser.add_argument("out", type=Path, help="What mini.encoder made.")
    parser.add_argument(
        "--start", type=Path, help="A saved model whose encoder rows to begin with."
    )
    arguments = parser.parse_args()
    texts, out = read(arguments.texts), arguments.out
    work = Path(f"{out}.work", fingerprint([sha256(out / FILE), *texts])[:16])
    with ProgressLine() as progress:
        shards = read_states(out, texts, work, progress)
        save_model(out, train(shards, arguments.start, work, progress))
        sample = texts[::NAMED_EVERY]
        TextStore.write(out / "terms", names(out, sample, progress))
    replace_file(out / "README.md", CARD.read_bytes())
    ConceptVectorizer.load(out)
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    print(f"{size / 2**20:.1f} MiB")
    assert size < MOST_BYTES


def read_states(out: Path, texts: Sequence[str], work: Path, progress: Progress) -> list[Path]:
    """Write the states of texts that are not written yet, and return all files, each f16 [n, d]."""
    backbone = Backbone.load(str(out))
    bert = EightBitBert.load_file(out / FILE, backbone.model.config.to_dict())
    paths = [work / f"{start:07d}.npy" for start in range(0, len(texts), SHARD)]

    def write(index: int) -> int:
        windows = backbone.windows(texts[index * SHARD : (index + 1) * SHARD])
        states = np.concatenate([states.astype(np.float16) for _, states in bert.read(windows)])
        with replacing(paths[index]) as file:
            np.save(file, states)
        return index

    missing = [index for index, path in enumerate(paths) if not path.exists()]
    for index in in_order(write, missing, num_threads()):
        progress("states", index + 1, len(paths))
    return paths


def train(shards: Sequence[Path], start: Path | None, work: Path, progress: Progress) -> SAE:
    """Train an SAE on all files of states but the last, whose reconstruction is judged."""

    def reader(indices: Sequence[int]) -> torch.Tensor:
        states = [load_array(shards[index], np.float16, ndim=2) for index in indices]
        return torch.from_numpy(np.concatenate(states))

    settings, initial = [asdict(TRAINING)], None
    if start is not None:
        sae = SAEHead.load(str(start), subfolder=HEAD_FOLDER).sae
        initial = with_initial_decoder(sae, reader(range(FITTED_SHARDS)).float(), TRAINING.k)
        settings.append(sha256(start / HEAD_FOLDER / "sae.safetensors"))
    trained = train_on_states(
        reader,
        len(shards) - 1,
        TRAINING,
        work / f"training-{fingerprint_json(settings)[:16]}",
        progress,
        start=initial,
        documents=1,
    )
    x = reader([len(shards) - 1]).float()
    fvu = (trained(x) - x).square().sum() / (x - x.mean(dim=0)).square().sum()
    print(f"FVU {fvu:.3f} on {len(x):,} held-out tokens")
    return trained


def save_model(out: Path, sae: SAE) -> None:
    """Write the files of an encoder around the weights in ``out``: the SAE without its decoder, its
    rows in half precision."""
    sae.decoder = False
    sae.W_enc.data = sae.W_enc.data.half()
    with TemporaryDirectory() as folder:
        encoder = Encoder.of(Backbone.load(str(out)), SAEHead(sae, HEAD), adaptation.INDEX)
        encoder.save(folder, create_model_card=False)
        for path in sorted(Path(folder).rglob("*.*")):
            if path.is_file() and path.name != "model.safetensors":
                replace_file(out / path.relative_to(folder), path.read_bytes())


def names(out: Path, texts: Sequence[str], progress: Progress) -> list[str]:
    """Name each concept by the words that fire it in some texts."""
    encoder = LightEncoder.load(out)
    assert encoder is not None
    encoder.kept = KeptActivations()
    tf, _ = encoder.encode_with_means(texts, "document")
    print(f"{np.unique(tf.indices).size:,} concepts fire in {len(texts):,} texts")
    return describe(encoder, texts, tf, sample_tokens=NAMED_TOKENS, progress=progress).labels


if __name__ == "__main__":
    main()
