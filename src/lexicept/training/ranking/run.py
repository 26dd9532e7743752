"""A training run in one folder: data, states, checkpoints, metrics and the model."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from accelerate import PartialState
from transformers import TrainerCallback

from lexicept.corpora import Qrel
from lexicept.errors import InputError, LexiceptWarning
from lexicept.neural.backbones.backbone import Backbone
from lexicept.neural.backbones.lora import has_adapters, merge_adapters
from lexicept.neural.converters.reading import ModelLayout
from lexicept.neural.converters.writing import names_own_subwords, refusal
from lexicept.neural.encoders.encoder import Encoder
from lexicept.neural.sae.cached_states import CachedStates
from lexicept.progress import Progress, silent
from lexicept.storage.files import disk_errors, move, remove, remove_temporaries, sync_folder
from lexicept.storage.workspace import Workspace
from lexicept.training.own_parts import OwnPart
from lexicept.training.ranking.arguments import training_arguments
from lexicept.training.ranking.collection import (
    Corpus,
    RunData,
    RunFolder,
    check_corpora,
    open_corpus,
    read_run_data,
)
from lexicept.training.ranking.config import TrainingConfig, write_yaml
from lexicept.training.ranking.data import Collator, Sampler, TrainingData
from lexicept.training.ranking.initial_encoder import initial_encoder, load_models, set_trainable
from lexicept.training.ranking.metrics import MetricsFile, read_metrics, write_card
from lexicept.training.ranking.objective import Objective
from lexicept.training.ranking.trainer import Trainer
from lexicept.training.ranking.validation import (
    NamedTexts,
    RetrievalEvaluator,
    Texts,
    Words,
    affordable,
)

PREPARATION = timedelta(weeks=1)
"""Longest wait of the other processes, while the first prepares the shared files."""


def train(
    config: TrainingConfig,
    folder: str | os.PathLike[str],
    progress: Progress = silent,
    prepared: Path | None = None,
    *,
    restart: bool = False,
) -> Path:
    """Train an encoder; an interrupted run resumes from the last checkpoint.

    The folder holds ``config.yaml``, ``metrics.jsonl`` and, at the end, ``model`` with a model
    card; ``work`` has the reproducible files: data, states and checkpoints. Queries held out for
    validation are in ``held-out``, the split ``dev`` of a BEIR folder. After training of low-rank
    adapters, ``model`` has merged weights, and ``adapter`` the adapters and the head.

    Under a launcher (``torchrun``) the first process prepares and writes everything. A step is the
    mean over all processes' batches; an SAE is trained by the first process alone. Raises
    InputError if the folder holds a finished run or another configuration's, or another process
    works there, for data that do not fit together, or without a teacher for distillation. Raises
    NotFiniteError if the loss is not finite; the message has the ids of the batch's queries. Raises
    InputError if the vectors of all queries or documents end up empty.

    Args:
        prepared: folder of data and states, in place of the run's ``work``, for successive runs
            with the same data and states.

    Returns:
        The folder of the trained encoder.
    """
    path = Path(folder)
    listed = all(each.data.lists for each in config.collections)  # lists may have scores
    if (config.loss.kl or config.loss.margin_mse) and not (config.teacher.scores_all or listed):
        raise InputError(
            "loss.kl and loss.margin_mse require teacher.dense, teacher.bm25_weight, teacher.own "
            "or data.lists with scores"
        )
    # The first to join the processes says how long they wait.
    processes = PartialState(cpu=not torch.accelerator.is_available(), timeout=PREPARATION)
    training_arguments(config, path, validates=True)  # an error before minutes of work
    callbacks = [callback.make(TrainerCallback) for callback in config.callbacks]
    regularizers = config.query_regularizer.kind, config.document_regularizer.kind
    for part in (*config.loss.own, *regularizers):
        if isinstance(part, OwnPart):
            part.make()  # an error before minutes of work
    writes = processes.is_main_process
    shared = prepared or path / "work"
    run = RunFolder(config, path, shared, progress if writes else silent, writes)
    with _claimed(config, path, restart=restart) if writes else nullcontext():
        with processes.main_process_first():
            torch.manual_seed(config.optimizer.seed)  # of the rows of an own head
            # Models first: a missing or damaged model is an error before minutes of work on data.
            loaded = load_models(config)
            for each in config.collections:
                check_corpora(each)
            runs = [
                replace(run, config=each, prepared=shared / f"collection-{n}" if n else shared)
                for n, each in enumerate(config.collections)
            ]
            data = read_run_data(runs[0])
            further = [read_run_data(each, data.validation) for each in runs[1:]]
            settings = affordable(config, len(_validation_corpus(run, data).ids))
            run = replace(run, config=replace(config, validation=settings))
            if writes:
                write_yaml(config, path / "config.yaml")
        encoder = initial_encoder(run, data.training, loaded)  # the first process trains its SAE
        if writes:
            _announce(encoder, config)
        torch.manual_seed(config.optimizer.seed)  # with or without SAE training before
        set_trainable(encoder, config)
        with processes.main_process_first():
            pairs = zip(runs, [data, *further], strict=True)
            collators = [_collator(each, read.training, encoder) for each, read in pairs]
            trainer = _trainer(run, data, encoder, collators, callbacks)
        trainer.fit()
        if writes:
            _finish(run, encoder, trainer.objective)
        processes.wait_for_everyone()
    return path / "model"


@contextmanager
def _claimed(config: TrainingConfig, path: Path, *, restart: bool) -> Iterator[None]:
    """Hold a run's folder for this process during a block; an early failure leaves no folder.
    Raises InputError if the folder holds a finished run, another configuration's run or other
    files, or another process works there."""
    settings = {"config": asdict(config)}
    with Workspace(path, "train", settings, restart=restart, in_place=True) as work:
        if (path / "model").exists():
            raise InputError(
                f"{path}: this run is finished; name another folder, or --restart (restart=True)"
            )
        work.kept("work")
        remove_temporaries(path)
        yield


def _announce(encoder: Encoder, config: TrainingConfig) -> None:
    """Warn that a SPLADE will not be written for other libraries, before it is trained."""
    layouts = (ModelLayout.splade, ModelLayout.sentence_transformers)
    scaled = config.loss.words > 0 or config.model.query_scale != 1
    learned = "query_scale has no place there" if scaled else None
    reasons = {layout: learned or refusal(encoder, layout) for layout in layouts}
    if names_own_subwords(encoder):
        for layout, reason in reasons.items():
            if reason is not None:
                message = f"the trained model can't be written for {layout}: {reason}"
                warnings.warn(message, LexiceptWarning, stacklevel=3)


def _collator(run: RunFolder, data: TrainingData, encoder: Encoder) -> Collator:
    """Return the collator of a collection."""
    settings, optimizer, backbone = run.config.data, run.config.optimizer, encoder.backbone
    prompts = encoder.prompt("query"), encoder.prompt("document")
    source: Backbone | tuple[CachedStates, CachedStates] = backbone
    # With a frozen backbone, the head alone runs in a step, on cached token states.
    if run.config.model.trained == "head":
        source = (
            run.states(backbone, data.queries, "queries", prompts[0]),
            run.states(backbone, data.documents, "documents", prompts[1]),
        )
    return Collator(
        Sampler(data, settings.negatives, settings.positive_share, optimizer.seed),
        data,
        source,
        (settings.max_query_tokens, settings.max_document_tokens),
        optimizer.mini_batch,
        words=run.config.loss.words > 0,
        prompts=prompts,
    )


def _trainer(
    run: RunFolder,
    run_data: RunData,
    encoder: Encoder,
    collators: list[Collator],
    callbacks: Sequence[TrainerCallback],
) -> Trainer:
    """Return the trainer of an encoder, or of the encoder's head on cached states."""
    config, model = run.config, encoder
    if config.model.trained == "head":
        model = Encoder.of(None, encoder.head, encoder.index_settings)
    objective = Objective(model, encoder.head, config)
    evaluator = _evaluator(run, run_data, encoder, objective)
    return Trainer(
        model,
        objective,
        collators,
        config,
        run.path / "work" / "checkpoints",
        evaluator,
        [MetricsFile(run.path / "metrics.jsonl", run.progress), *callbacks],
    )


def _validation_corpus(run: RunFolder, data: RunData) -> Corpus:
    corpus = run.config.validation.corpus
    if corpus is None:
        return data.documents
    in_score = run.config.loss.words > 0
    return open_corpus(corpus, run.prepared, run.progress, words=in_score, prefix="validation-")


def _evaluator(
    run: RunFolder, data: RunData, encoder: Encoder, objective: Objective
) -> RetrievalEvaluator | None:
    """Return the evaluator of the held-out queries; None without held-out queries."""
    settings, corpus = run.config.validation, _validation_corpus(run, data)
    if not data.validation.queries:
        return None
    in_score = run.config.loss.words > 0
    texts = list(data.validation.queries.values())
    ids: Sequence[str] = corpus.ids
    contents: Sequence[str] = corpus.contents
    relevant = {qrel.document_id for qrel in data.validation.qrels if qrel.relevance > 0}
    if relevant.isdisjoint(ids):
        raise InputError("validation: no relevant document is in the corpus; validation.corpus?")
    indices = None
    if settings.documents is not None:
        indices = _draw(ids, settings.documents, data.validation.qrels, run.config.data_seed)
        ids, contents = [ids[n] for n in indices], [contents[n] for n in indices]
    words = None
    if in_score:
        weights = sp.csr_array(corpus.words.document_vectors().weights)
        weights = weights if indices is None else weights[indices]
        words = Words(corpus.words.query_vectors(texts), weights, lambda: objective.query_scale)
    queries: Texts = texts
    documents: Texts = contents
    if run.config.model.trained == "head":  # cached states of a frozen backbone
        training_corpus = settings.corpus is None and settings.documents is None
        name = "documents" if training_corpus else "validation-documents"
        backbone, prompt = encoder.backbone, encoder.prompt
        documents = run.states(backbone, contents, name, prompt("document"))
        queries = run.states(backbone, texts, "validation-queries", prompt("query"))
    return RetrievalEvaluator(
        NamedTexts(list(data.validation.queries), queries),
        NamedTexts(ids, documents),
        data.validation.qrels,
        settings,
        words,
        run.config.optimizer.bf16,
    )


def _draw(ids: Sequence[str], count: int, qrels: Sequence[Qrel], seed: int) -> list[int]:
    """Draw ``count`` document numbers, relevant documents before all others."""
    relevant_ids = {qrel.document_id for qrel in qrels if qrel.relevance > 0}
    relevant = np.fromiter((name in relevant_ids for name in ids), bool, len(ids))
    order = np.random.default_rng(seed).permutation(len(ids))
    drawn = np.concatenate([order[relevant[order]], order[~relevant[order]]])[:count]
    return [int(index) for index in np.sort(drawn)]


def _finish(run: RunFolder, encoder: Encoder, objective: Objective) -> None:
    """Publish the model, with its card."""
    backbone, head = encoder.backbone, encoder.head
    # Beside words, the learned balance of both scores becomes a factor on query weights.
    learned = run.config.loss.words > 0
    scale = objective.query_scale if learned else run.config.model.query_scale
    head.configure(query_scale=scale)
    path, metrics = run.path, read_metrics(run.path / "metrics.jsonl")
    encoder.eval()
    # The adapters are saved on their own first, as merging ends them.
    if has_adapters(backbone.model):
        adapter = _save(run, encoder, metrics, "adapter.unfinished")
        remove(path / "adapter")
        move(adapter, path / "adapter")
        backbone.model = merge_adapters(backbone.model)
    move(_save(run, encoder, metrics, "model.unfinished"), path / "model")


def _save(run: RunFolder, encoder: Encoder, metrics: list[dict[str, Any]], name: str) -> Path:
    folder = run.path / name
    remove(folder)
    try:
        with disk_errors(folder, sum(value.nbytes for value in encoder.parameters())):
            encoder.save(str(folder), create_model_card=False)
        write_card(encoder, run.config, metrics, folder / "README.md")
        sync_folder(folder)
    except BaseException:
        remove(folder)
        raise
    return folder
