"""The command that pretrains a vocabulary head and its backbone: pretrain."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lexicept.cli.common import CorpusArgument, JsonOption, print_report, require_concepts
from lexicept.errors import InputError

if TYPE_CHECKING:
    from sentence_transformers import SparseEncoder

    from lexicept.pretraining import PretrainingSettings
    from lexicept.storage import TextStore

app = typer.Typer()

EXPANDED_SIZE = 100_000
"""Words of an expanded vocabulary (ESPLADE, 3.1.1)."""


class HeadChoice(StrEnum):
    """Where the rows of the head come from."""

    mlm = "mlm"
    expanded = "expanded"
    random = "random"


class MaskingChoice(StrEnum):
    """What is masked, and where it is recognised."""

    subwords = "subwords"
    words = "words"
    mntp = "mntp"
    causal = "causal"


class TrainedChoice(StrEnum):
    """What learns."""

    head = "head"
    lora = "lora"
    all = "all"


@app.command()
def pretrain(
    corpus: CorpusArgument,
    out: Annotated[Path, typer.Option(help="Where the model will be; must not exist.")],
    backbone: Annotated[
        str, typer.Option(help="Hugging Face encoder or decoder under the head.")
    ] = "sentence-transformers/all-MiniLM-L6-v2",
    layer: Annotated[
        int | None, typer.Option(help="Blocks of the backbone to run; all by default.")
    ] = None,
    head: Annotated[
        HeadChoice,
        typer.Option(
            help="Rows at first: the backbone's own language head's (an encoder's without one: its "
            "input embeddings), the means of these over the sub-words of each word, or random ones."
        ),
    ] = HeadChoice.mlm,
    size: Annotated[
        int | None,
        typer.Option(
            help="Words that are dimensions, the most frequent of the corpus; "
            f"{EXPANDED_SIZE:,} by default."
        ),
    ] = None,
    masking: Annotated[
        MaskingChoice | None,
        typer.Option(
            help="What is masked, and the dimensions of the head; words by default for the head "
            "expanded, sub-words for the others. For decoders: mntp, sub-words that are recognised "
            "from the place before them, in both directions; causal, every next sub-word."
        ),
    ] = None,
    mask_share: Annotated[
        float | None,
        typer.Option(help="Share that is masked; 0.2 by default for mntp, 0.15 for the others."),
    ] = None,
    steps: Annotated[int, typer.Option(help="Optimiser steps.")] = 1000,
    batch_size: Annotated[int, typer.Option(help="Windows of text in a step.")] = 32,
    learning_rate: Annotated[
        float, typer.Option(help="At its highest; a backbone needs less, such as 1.6e-4 (ESPLADE).")
    ] = 1e-3,
    trained: Annotated[
        TrainedChoice,
        typer.Option(
            help="What learns: the head, low-rank adapters of the backbone under the head as it "
            "is, or head and backbone."
        ),
    ] = TrainedChoice.head,
    lora_rank: Annotated[int, typer.Option(help="Of the adapters.")] = 64,
    bf16: Annotated[bool, typer.Option("--bf16", help="Multiply in bfloat16.")] = False,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    as_json: JsonOption = False,
) -> None:
    """Teach a vocabulary head and its backbone to recognise masked words of a corpus.

    The model is one that training starts from (model.start) and that build takes (--model), and a
    backbone (model.backbone, --backbone) that may be cut.
    Pretraining that was killed goes on where it stopped when the same command is run again.
    """
    import os
    import shutil
    from dataclasses import asdict

    from lexicept.display import ProgressBars
    from lexicept.indexing import refuse_existing
    from lexicept.storage import lock, sync_folder

    refuse_existing(out)
    words = _words(head, masking, size)
    require_concepts()
    from lexicept import pretraining

    usual = MaskingChoice.subwords if words is None else MaskingChoice.words
    settings = pretraining.PretrainingSettings(
        masking=(masking or usual).value,
        mask_share=mask_share,
        trained=trained.value,
        lora_rank=lora_rank,
        steps=steps,
        batch_size=batch_size,
        learning_rate=learning_rate,
        bf16=bf16,
        seed=seed,
    )
    work = out.with_name(f"{out.name}.partial")
    work.mkdir(parents=True, exist_ok=True)
    descriptor = lock(work)
    try:
        model = {"backbone": backbone, "layer": layer, "head": head, "words": words}
        texts = _texts(corpus, work, {**model, **asdict(settings)})
        encoder = _encoder(texts, backbone, layer, head, words, settings)
        with ProgressBars() as progress:
            pretraining.pretrain(
                encoder[0], encoder[1], texts, settings, work / "training", progress
            )
        unfinished = work / "model"
        shutil.rmtree(unfinished, ignore_errors=True)
        encoder.save(str(unfinished), create_model_card=False)
        sync_folder(unfinished)
        refuse_existing(out)
        unfinished.rename(out)
        shutil.rmtree(work)
    finally:
        os.close(descriptor)
    print_report({"model": str(out), "dimensions": encoder[1].size, "steps": steps}, as_json)


def _words(head: HeadChoice, masking: MaskingChoice | None, size: int | None) -> int | None:
    """How many words are dimensions, at most; None where sub-words are.

    Raises:
        InputError: options that do not go together.
    """
    expanded = head is HeadChoice.expanded
    by_words = expanded if masking is None else masking is MaskingChoice.words
    if head is not HeadChoice.random and by_words != expanded:
        raise InputError(f"--head {head.value} can't be trained with --masking {masking}")
    if by_words:
        return EXPANDED_SIZE if size is None else size
    if size is not None:
        raise InputError("--size is a number of words: it needs --masking words")
    return None


def _texts(corpus: str, work: Path, settings: dict[str, Any]) -> TextStore:
    """Store the texts, and forget unfinished work on other texts or settings."""
    import shutil

    from lexicept.corpora import read_documents
    from lexicept.storage import TextStore, read_json, sha256, write_json

    if not TextStore.write(work / "texts", (d.content for d in read_documents(corpus))):
        raise InputError("the corpus has no documents")
    files = {name: sha256(work / name) for name in ("texts.bin", "texts.offsets.npy")}
    state, path = {**settings, **files}, work / "state.json"
    if not path.exists() or read_json(path) != state:
        shutil.rmtree(work / "training", ignore_errors=True)
        write_json(path, state)
    return TextStore(work / "texts")


def _encoder(
    texts: TextStore,
    backbone: str,
    layer: int | None,
    rows: HeadChoice,
    words: int | None,
    settings: PretrainingSettings,
) -> SparseEncoder:
    """What is trained; over so many words at most, or over sub-words."""
    from lexicept.backbone import Backbone
    from lexicept.encoder import make_encoder
    from lexicept.expanded import expanded_words
    from lexicept.language_heads import language_head

    both_ways = {"mntp": True, "causal": False}.get(settings.masking)
    base = Backbone.from_pretrained(backbone, layer, bidirectional=both_ways)
    head = language_head(backbone)
    terms = head.terms
    if words is not None:
        terms, pieces = expanded_words(texts, base.tokenizer, words)
    if rows is HeadChoice.random:
        drawn = head.random(len(terms), settings.seed)
        head = head.with_rows(drawn.rows, drawn.bias, terms)
    elif rows is HeadChoice.expanded:
        head = head.expanded(pieces, terms)
    return make_encoder(base, head)
