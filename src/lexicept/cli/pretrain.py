"""The command that pretrains a vocabulary head and its backbone: pretrain."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from lexicept.cli.common import (
    BACKBONE,
    CorpusArgument,
    JsonOption,
    print_report,
    require_concepts,
)
from lexicept.errors import InputError

if TYPE_CHECKING:
    from lexicept.models.encoder import Encoder
    from lexicept.storage.texts import TextStore
    from lexicept.training.pretraining.settings import PretrainingSettings

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


BackboneOption = Annotated[
    str, typer.Option(help="Hugging Face encoder or decoder under the head.")
]
LayerOption = Annotated[
    int | None, typer.Option(help="Blocks of the backbone to run; all by default.")
]
HeadOption = Annotated[
    HeadChoice,
    typer.Option(
        help="Rows at first: the backbone's own language head's (an encoder's without one: its "
        "input embeddings), the means of these over the sub-words of each word, or random ones."
    ),
]
SizeOption = Annotated[
    int | None,
    typer.Option(
        help="Words that are dimensions, the most frequent of the corpus; "
        f"{EXPANDED_SIZE:,} by default."
    ),
]
MaskingOption = Annotated[
    MaskingChoice | None,
    typer.Option(
        help="What is masked, and the dimensions of the head; words by default for the head "
        "expanded, sub-words for the others. For decoders: mntp, sub-words that are recognised "
        "from the place before them, in both directions; causal, every next sub-word."
    ),
]
ShareOption = Annotated[
    float | None,
    typer.Option(help="Share that is masked; 0.2 by default for mntp, 0.15 for the others."),
]
LearningRateOption = Annotated[
    float, typer.Option(help="At its highest; a backbone needs less, such as 1.6e-4 (ESPLADE).")
]
TrainedOption = Annotated[
    TrainedChoice,
    typer.Option(
        help="What learns: the head, low-rank adapters of the backbone under the head as it is, or "
        "head and backbone."
    ),
]


class Start(NamedTuple):
    """What is trained: a backbone, and a head over so many words at most, or over sub-words."""

    backbone: str
    layer: int | None
    head: HeadChoice
    words: int | None


def pretrain(
    corpus: CorpusArgument,
    out: Annotated[Path, typer.Option(help="Where the model will be; must not exist.")],
    backbone: BackboneOption = BACKBONE,
    layer: LayerOption = None,
    head: HeadOption = HeadChoice.mlm,
    size: SizeOption = None,
    masking: MaskingOption = None,
    mask_share: ShareOption = None,
    steps: Annotated[int, typer.Option(help="Optimiser steps.")] = 1000,
    batch_size: Annotated[int, typer.Option(help="Windows of text in a step.")] = 32,
    learning_rate: LearningRateOption = 1e-3,
    trained: TrainedOption = TrainedChoice.head,
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
    from dataclasses import asdict

    from lexicept.progress import ProgressBars
    from lexicept.storage.workspace import refuse_existing

    refuse_existing(out)
    start = Start(backbone, layer, head, _words(head, masking, size))
    require_concepts()
    from lexicept.training.pretraining.settings import PretrainingSettings
    from lexicept.training.pretraining.trainer import pretrain as train

    usual = MaskingChoice.subwords if start.words is None else MaskingChoice.words
    settings = PretrainingSettings(
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
    with _work(out) as work:
        texts = _texts(corpus, work, {**start._asdict(), **asdict(settings)})
        encoder = _encoder(texts, start, settings)
        with ProgressBars() as progress:
            training = work / "training"
            train(encoder.backbone, encoder.head, texts, settings, training, progress)
        _publish(encoder, work, out)
    print_report({"model": str(out), "dimensions": encoder.head.size, "steps": steps}, as_json)


@contextmanager
def _work(out: Path) -> Iterator[Path]:
    """The folder of unfinished work, which no other process writes in until the block ends."""
    import os

    from lexicept.storage.locks import lock

    work = out.with_name(f"{out.name}.partial")
    work.mkdir(parents=True, exist_ok=True)
    descriptor = lock(work)
    try:
        yield work
    finally:
        os.close(descriptor)


def _publish(encoder: Encoder, work: Path, out: Path) -> None:
    """Save the model where it will be, and forget the unfinished work."""
    import shutil

    from lexicept.storage.files import sync_folder
    from lexicept.storage.workspace import refuse_existing

    unfinished = work / "model"
    shutil.rmtree(unfinished, ignore_errors=True)
    encoder.save(str(unfinished), create_model_card=False)
    sync_folder(unfinished)
    refuse_existing(out)
    unfinished.rename(out)
    shutil.rmtree(work)


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
    from lexicept.storage.files import read_json, sha256, write_json
    from lexicept.storage.texts import TextStore

    if not TextStore.write(work / "texts", (d.content for d in read_documents(corpus))):
        raise InputError("the corpus has no documents")
    files = {name: sha256(work / name) for name in ("texts.bin", "texts.offsets.npy")}
    state, path = {**settings, **files}, work / "state.json"
    if not path.exists() or read_json(path) != state:
        shutil.rmtree(work / "training", ignore_errors=True)
        write_json(path, state)
    return TextStore(work / "texts")


def _encoder(texts: TextStore, start: Start, settings: PretrainingSettings) -> Encoder:
    """What is trained, as it is at first."""
    from lexicept.models.backbone import Backbone
    from lexicept.models.encoder import Encoder
    from lexicept.models.language_heads import language_head
    from lexicept.models.word_vocabulary import expanded_words

    both_ways = {"mntp": True, "causal": False}.get(settings.masking)
    base = Backbone.from_pretrained(start.backbone, start.layer, bidirectional=both_ways)
    head = language_head(start.backbone)
    terms = head.terms
    if start.words is not None:
        terms, pieces = expanded_words(texts, base.tokenizer, start.words)
    if start.head is HeadChoice.random:
        drawn = head.random(len(terms), settings.seed)
        head = head.with_rows(drawn.rows, drawn.bias, terms)
    elif start.head is HeadChoice.expanded:
        head = head.expanded(pieces, terms)
    return Encoder.of(base, head)
