"""The command that publishes a model: push."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lexicept.cli.common import JsonOption, print_report, working
from lexicept.errors import require


def push(
    model: Annotated[Path, typer.Argument(help="Folder of a saved model.")],
    name: Annotated[str, typer.Argument(help="Name on the Hugging Face Hub: OWNER/NAME.")],
    private: Annotated[
        bool, typer.Option("--private", help="Create a private repository, if there is none yet.")
    ] = False,
    license: Annotated[  # noqa: A002
        str | None, typer.Option(help="License for the model card, such as apache-2.0.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Publish a model and its card on the Hugging Face Hub; HF_TOKEN holds the token."""
    require("concepts", "sentence_transformers")
    from lexicept.errors import InputError
    from lexicept.models.encoder import Encoder
    from lexicept.models.hub import CARD, push_model
    from lexicept.models.model_card import make_card, published

    if not model.is_dir():
        raise InputError(f"{model}: no such folder")
    if (model / "adapter_config.json").exists():
        raise InputError(f"{model}: LoRA adapters alone; push the merged model")
    with working("loading"):
        encoder = Encoder.load(model)
    title = name.rpartition("/")[2]
    written = model / CARD
    try:
        card = written.read_text("utf-8") if written.exists() else make_card(encoder, title)
    except UnicodeDecodeError as error:
        raise InputError(f"{written}: not UTF-8: {error.reason}") from None
    with working("uploading"):
        commit = push_model(model, name, published(card, name, license), private=private)
    print_report({"model": name, "commit": commit}, as_json)
