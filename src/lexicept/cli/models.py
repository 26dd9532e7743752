"""Commands of models: train, pretrain, convert, sae report."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from lexicept.cli.common import print_json, print_report, print_table, require_training, working
from lexicept.cli.declarations import takes
from lexicept.errors import InputError, require
from lexicept.pipelines.train import MODULES


@takes("lexicept.pipelines.convert:convert")
def convert(source: str, out: Path, as_json: bool = False, **options: Any) -> None:
    """Convert a pretrained SAE or model to another layout.

    The dimensions of a model must be sub-words, but for --to onnx. Pickles are read for SAEs only,
    and only tensors.
    """
    from lexicept.pipelines.convert import convert

    with working("converting"):
        report = convert(source, out, **options)
    print_report({**report, "written": f"{out} ({options.get('to', 'lexicept')})"}, as_json)


def report(model: Path, documents: str, *, as_json: bool = False) -> None:
    """Measure an SAE on documents: reconstruction error (FVU) and activity.

    Shows how many latents fire how often, and how many never do.

    Args:
        model: folder of a saved model with an SAE, or an index, for its concepts.
    """
    require_training()
    from lexicept.corpora import read_documents
    from lexicept.neural.converters.reading import open_encoder
    from lexicept.neural.sae.quality import EDGES, report_sae
    from lexicept.pipelines.convert import model_of
    from lexicept.progress import ProgressLine

    with working("loading"):
        encoder = open_encoder(model_of(str(model))[0])
    autoencoder, transform = encoder.head.autoencoder, encoder.head.before_autoencoder
    if autoencoder is None:
        raise InputError(f"{model}: the model has no SAE")
    texts = [document.content for document in read_documents(documents)]
    with ProgressLine() as progress:
        quality = report_sae(
            encoder.backbone, autoencoder, texts, transform=transform, progress=progress
        )
    if as_json:
        print_json(asdict(quality))
        return
    lines = [("tokens", f"{quality.tokens:,}"), ("FVU", f"{quality.fvu:.4f}")]
    lines += [("active per token", f"{quality.l0:.2f}"), ("dead", f"{quality.dead:.2%}")]
    for edge, latents in zip(EDGES, quality.histogram, strict=True):
        if latents:
            lines.append((f"fire on up to {10**edge:.3g}", f"{latents:,}"))
    print_table(f"{model}, {documents}", lines)


@takes("lexicept.pipelines.train:train")
def train(config: Path, out: Path, as_json: bool = False, **options: Any) -> None:
    """Train an encoder for ranking, on judged queries or on documents alone.

    `lexicept build --model OUT/model` builds an index with the result. Re-running the command
    resumes an interrupted run. On several devices:
    `torchrun --nproc-per-node 4 --no-python lexicept train ...`.
    """
    require("train", *MODULES)
    from accelerate import PartialState

    from lexicept.pipelines.train import train
    from lexicept.training.ranking.metrics import saved_validation

    model = train(config, out, **options, progress=True)
    if PartialState().is_main_process:
        print_report({"model": str(model), **saved_validation(Path(out))}, as_json)


@takes(
    "lexicept.pipelines.pretrain:pretrain",
    "lexicept.training.pretraining.settings:PretrainingSettings",
)
def pretrain(as_json: bool = False, **options: Any) -> None:
    """Train a backbone and its language head to predict masked words of a corpus.

    The result serves as the start of a training (model.start in its configuration), as a model to
    build with (--model), or as a backbone (--backbone).
    Re-running the command resumes interrupted pretraining.
    """
    require_training()
    from lexicept.neural.encoders.encoder import Encoder
    from lexicept.pipelines.pretrain import pretrain
    from lexicept.training.pretraining.settings import PretrainingSettings

    model = pretrain(**options, progress=True)
    size = Encoder.load(model).head.size
    steps = options.get("steps", PretrainingSettings.steps)
    print_report({"model": str(model), "dimensions": size, "steps": steps}, as_json)
