"""Pretraining of a language head and its backbone on masked texts."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lexicept.checks import Count, Whole, checked_arguments, from_mapping
from lexicept.encoding.sources import DEFAULT_BACKBONE
from lexicept.errors import InputError, require
from lexicept.pipelines.documents import Documents, as_documents
from lexicept.progress import Progress, reporting
from lexicept.storage.files import sha256
from lexicept.storage.texts import TextStore
from lexicept.storage.workspace import Workspace
from lexicept.training.pretraining.head_kinds import Masking

if TYPE_CHECKING:
    from lexicept.training.pretraining.settings import PretrainingSettings


@checked_arguments
def pretrain(
    documents: Documents,
    out: str | os.PathLike[str],
    *,
    backbone: str = DEFAULT_BACKBONE,
    layer: Whole | None = None,
    head: Literal["mlm", "expanded", "random"] = "mlm",
    size: Count | None = None,
    vocabulary: Documents | None = None,
    masking: Masking | None = None,
    restart: bool = False,
    overwrite: bool = False,
    progress: bool | Progress = False,
    **settings: Any,
) -> Path:
    """Train a language head and its backbone to predict masked words of a corpus.

    The model is a start of training (``model.start``), a model for ``build`` (``model``), and a
    backbone (``model.backbone``), perhaps cut to fewer blocks. Calling again resumes interrupted
    pretraining, with equal weights as without interruption.

    Args:
        documents: texts, dicts, documents, a data frame, or a corpus by its path or name.
        out: the folder of the model.
        backbone: a Hugging Face encoder or decoder under the head: a name or a folder.
        layer: number of the backbone's blocks to run; all by default.
        head: initial rows of the head: the backbone's language head's (``mlm``), means of the rows
            over the sub-words of each word (``expanded``), or random rows (``random``).
        size: number of dimensions with masking ``words``, the most frequent words; 100,000 by
            default.
        vocabulary: texts to count words in, such as the texts of later training (ESPLADE, 3.1.3);
            the corpus by default.
        masking: masked units, which become dimensions: by default words for the head expanded,
            subwords for the other heads. For decoders, mntp masks sub-words and predicts each from
            the position before it, with bidirectional attention.
        restart: discard unfinished work instead of resuming it.
        overwrite: replace the model at ``out``.
        progress: True shows a line on standard error; a callback gets the reports.
        settings: other fields of ``PretrainingSettings``, such as ``steps=100``.

    Returns:
        The folder of the model.

    Raises:
        InputError: settings that do not go together, a corpus without documents or without
            anything to mask, ``out`` exists (with ``overwrite``: and is no model), unfinished work
            there has other settings, or a package is missing.
        NotFiniteError: the loss is not finite; the last checkpoint is kept.

    Examples:
        >>> lexicept.pretrain(["Cats sleep all day."], "pretrained", steps=1)
        PosixPath('pretrained')
    """
    require("train", "sentence_transformers", "peft")
    from lexicept.training.pretraining.settings import PretrainingSettings, masking_of, words_of

    masked = masking_of(head, masking)
    words = words_of(masked, size)
    pretraining = from_mapping(PretrainingSettings, {"masking": masked, **settings})
    if vocabulary is not None and words is None:
        raise InputError(f"vocabulary, a source of words, requires masking words, not {masked}")
    if overwrite and Path(out).exists() and not (Path(out) / "modules.json").exists():
        raise InputError(f"{out}: not a model; overwrite replaces models only")
    start = {"backbone": backbone, "layer": layer, "head": head, "size": words}
    workspace = Workspace(out, "pretrain", restart=restart, overwrite=overwrite)
    with workspace as work, reporting(progress) as report:
        _pretrain(documents, vocabulary, work, start, pretraining, report)
    return Path(out)


def _pretrain(
    documents: Documents,
    vocabulary: Documents | None,
    work: Workspace,
    start: dict[str, Any],
    settings: PretrainingSettings,
    progress: Progress,
) -> None:
    """Store the texts, train, and publish the model."""
    from lexicept.neural.encoders.encoder import Encoder
    from lexicept.training.pretraining.head_kinds import new_head
    from lexicept.training.pretraining.trainer import load_backbone_and_head, pretrain
    from lexicept.training.pretraining.word_vocabulary import expanded_words

    # Whatever can be refused is loaded before the texts are stored.
    loaded, own_head = load_backbone_and_head(start["backbone"], start["layer"], settings)
    staged = work.staged()
    stores = {"texts": documents} | ({} if vocabulary is None else {"vocabulary": vocabulary})
    for name, documents in stores.items():
        if not TextStore.write(staged / name, (d.content for d in as_documents(documents))):
            source = "corpus" if name == "texts" else name
            raise InputError(f"pretraining: the {source} has no documents")
    names = [f"{name}{end}" for name in stores for end in (".bin", ".offsets.npy")]
    work.check({**start, **asdict(settings), **{n: sha256(staged / n) for n in names}})
    texts = TextStore(staged / "texts")
    words = texts if vocabulary is None else TextStore(staged / "vocabulary")
    terms, subwords = own_head.terms, None
    if start["size"] is not None:
        terms, subwords = expanded_words(words, loaded.tokenizer, start["size"])
    head = new_head(start["head"], own_head, terms, subwords, settings.seed)
    pretrain(loaded, head, texts, settings, work.kept("training"), progress)
    Encoder.of(loaded, head).save(str(staged / "model"), create_model_card=False)
    work.publish(staged / "model")
