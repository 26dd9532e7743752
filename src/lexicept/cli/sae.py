"""The command that reports on a sparse autoencoder: sae report."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lexicept.cli.common import print_json, print_table, require_concepts, working
from lexicept.errors import InputError

if TYPE_CHECKING:
    from lexicept.models.backbone import Backbone
    from lexicept.models.sae.quality import LanguageModel


def report(model: Path, documents: str, *, base: str | None = None, as_json: bool = False) -> None:
    """Measure an SAE on documents: reconstruction error (FVU), activity, and anisotropy.

    Shows how many latents fire how often, how many never do, and each layer's anisotropy.

    Args:
        model: folder of a saved model with an SAE.
        base: language model that the backbone comes from. Adds the share of its loss that the SAE
            recovers, and the anisotropy of its states.
    """
    require_concepts()
    from lexicept.corpora import read_documents
    from lexicept.models.converters import open_encoder
    from lexicept.models.sae.quality import anisotropy, report_sae
    from lexicept.progress import ProgressBars

    with working("loading"):
        encoder = open_encoder(model)
    backbone, autoencoder = encoder.backbone, encoder.head.autoencoder
    if autoencoder is None:
        raise InputError(f"{model}: the model has no SAE")
    language_model = None if base is None else _language_model(base, backbone)
    texts = [document.content for document in read_documents(documents)]
    with ProgressBars() as progress:
        quality = report_sae(
            backbone,
            autoencoder,
            texts,
            transform=encoder.head.before_autoencoder,
            language_model=language_model,
            progress=progress,
        )
        alike = {"model": anisotropy(backbone, texts)}
        if language_model is not None:
            alike["base"] = anisotropy(language_model.backbone, texts)
    values: dict[str, Any] = {**asdict(quality), "anisotropy": alike}
    if quality.recovered is not None:
        values["recovered"]["share"] = quality.recovered.share
    if as_json:
        print_json(values)
    else:
        print_table(f"{model}, {documents}", _rows(values))


def _language_model(name: str, backbone: Backbone) -> LanguageModel:
    """Return a backbone's language model. Raises InputError if their states differ in size."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING

    from lexicept.models.backbone import Backbone
    from lexicept.models.language_heads import language_head
    from lexicept.models.sae.quality import LanguageModel

    whole = Backbone.from_pretrained(name, bidirectional=backbone.bidirectional)
    its, ours = whole.get_embedding_dimension(), backbone.get_embedding_dimension()
    if its != ours:
        raise InputError(f"--base {name}: states of size {its}, the model has {ours}")
    if whole.num_layers < backbone.num_layers:
        layers = f"{whole.num_layers} blocks, the model {backbone.num_layers}"
        raise InputError(f"--base {name}: it has {layers}")
    shifted = type(whole.model.config) not in MODEL_FOR_MASKED_LM_MAPPING
    return LanguageModel(whole, language_head(name), shifted)


def _rows(values: dict[str, Any]) -> list[tuple[str, str]]:
    """Return a report as names and values."""
    from lexicept.models.sae.quality import EDGES

    rows = [
        ("tokens", f"{values['tokens']:,}"),
        ("FVU", f"{values['fvu']:.4f}"),
        ("active per token", f"{values['l0']:.2f}"),
        ("dead", f"{values['dead']:.2%}"),
    ]
    for edge, latents in zip(EDGES, values["histogram"], strict=True):
        if latents:
            rows.append((f"fire on up to {10**edge:.3g}", f"{latents:,}"))
    if values["recovered"] is not None:
        recovered = values["recovered"]
        names = ("original", "reconstructed", "ablated")
        entropies = ", ".join(f"{recovered[name]:.3f} {name}" for name in names)
        rows.append(("loss recovered", f"{recovered['share']:.1%} (cross entropy {entropies})"))
    for name, layers in values["anisotropy"].items():
        shown = " ".join(f"{value:.2f}" for value in layers)
        rows.append((f"anisotropy by layer, {name}", shown))
    return rows
