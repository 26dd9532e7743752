"""A training run in one folder: data, states, checkpoints, metrics, curves and the model."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from accelerate import PartialState

from lexicept.corpora import Qrel
from lexicept.errors import InputError
from lexicept.models.backbone import Backbone
from lexicept.models.cached_states import CachedStates
from lexicept.models.encoder import Encoder
from lexicept.models.lora import has_adapters, merge_adapters
from lexicept.progress import Progress, silent
from lexicept.storage.files import disk_errors, move, remove, replace_file, sync_folder
from lexicept.training.candidates.late_interaction import LateInteraction
from lexicept.training.collection import RunData, open_corpus, read_run_data
from lexicept.training.config import TrainingConfig
from lexicept.training.data import Collator, Sampler, TrainingData
from lexicept.training.initial_encoder import initial_encoder, load_models, set_trainable
from lexicept.training.objective import Objective
from lexicept.training.report import read_metrics, write_card, write_curves
from lexicept.training.run_folder import RunFolder, claimed
from lexicept.training.sharding import Shards
from lexicept.training.trainer import Trainer
from lexicept.training.validation import RetrievalEvaluator, Words

PREPARATION = timedelta(weeks=1)
"""Time that processes wait for the first one, which prepares what all of them read."""


def train(
    config: TrainingConfig,
    folder: str | os.PathLike[str],
    progress: Progress = silent,
    prepared: Path | None = None,
    *,
    restart: bool = False,
) -> Path:
    """Train an encoder; an interrupted run resumes from its last checkpoint.

    The folder holds ``config.yaml``, ``metrics.jsonl``, ``curves.png`` and, at the end, ``model``
    with a model card; ``work`` has what can be made again: data, states and checkpoints. Queries
    that validation held out of training are in ``held-out``, the split ``dev`` of a BEIR folder.
    Where low-rank adapters were trained, ``model`` has them added to its weights, and ``adapter``
    is the same encoder as adapters and head alone.

    Under a launcher (``torchrun``) the first of its processes prepares and writes everything, and
    a step is the mean of all processes' batches; a step of an SAE is one batch that they share.
    With ``optimizer.sharded`` they divide the backbone; what is written is the same.

    Args:
        prepared: folder of data and states, in place of the run's ``work``: runs that differ in
            neither may share them, one after another.
        restart: whether to remove what an earlier run left in the folder.

    Returns:
        The folder of the trained encoder.

    Raises:
        InputError: the folder holds a run of another configuration or a finished one, another
            process works there, data that do not fit together, or nothing to distil from.
        NotFiniteError: the loss is not finite; the message has the ids of the batch's queries.
    """
    path = Path(folder)
    if (config.loss.kl or config.loss.margin_mse) and not config.has_teacher:
        raise InputError(
            "loss.kl and loss.margin_mse require teacher.dense, teacher.bm25_weight, "
            "teacher.max_sim, or data.lists with scores"
        )
    processes = PartialState(cpu=not torch.accelerator.is_available(), timeout=PREPARATION)
    writes = processes.is_main_process
    shared = prepared or path / "work"
    run = RunFolder(config, path, shared, progress if writes else silent, writes)
    with claimed(config, path, restart=restart) if writes else nullcontext():
        with processes.main_process_first():
            loaded = load_models(config)
            everything = read_run_data(run)
            if writes:
                run.record()
        encoder = initial_encoder(run, everything.training, loaded)  # all processes train its SAE
        with processes.main_process_first():
            ready = _prepare(run, everything, encoder)
        torch.manual_seed(config.optimizer.seed)  # whether or not an SAE was trained just now
        set_trainable(ready.encoder, config)
        shards = None
        if config.optimizer.sharded and processes.num_processes > 1:
            shards = Shards(ready.encoder.backbone, processes.device)
            ready.objective.rounds = shards.rounds
        _trainer(run, ready).fit()
        if shards is not None:
            shards.gather()
        if writes:
            _finish(run, ready.encoder, ready.objective)
        processes.wait_for_everyone()
    return path / "model"


class _Prepared(NamedTuple):
    """Data and models of a trainer; all processes read them from the same files."""

    data: TrainingData
    encoder: Encoder
    model: Encoder
    """The part that learns: the encoder, or its head alone on cached states."""
    objective: Objective
    collator: Collator
    evaluator: RetrievalEvaluator | None


def _prepare(run: RunFolder, everything: RunData, encoder: Encoder) -> _Prepared:
    config, data = run.config, everything.training
    backbone, head, lookup = encoder.backbone, encoder.head, encoder.lookup
    source: Backbone | tuple[CachedStates | None, CachedStates] = backbone
    model = encoder
    if config.model.trained == "head":
        source = (
            None if lookup else run.states(backbone, data.queries, "queries"),
            run.states(backbone, data.documents, "documents"),
        )
        model = Encoder.over_states(head, lookup, encoder.index_settings)
    if data.teacher is not None and config.teacher.max_sim:
        data.teacher = replace(
            data.teacher, late_interaction=_late_interaction(run, backbone, data)
        )
    objective = Objective.from_config(model, head, config)
    evaluator = _evaluator(run, everything, encoder, objective)
    settings = config.data
    sampler = Sampler(data, settings.negatives, settings.positive_share, config.optimizer.seed)
    collator = Collator(
        sampler,
        data,
        source,
        (settings.max_query_tokens, settings.max_document_tokens),
        config.optimizer.mini_batch,
        words=config.loss.words > 0,
        lookup=lookup,
    )
    return _Prepared(data, encoder, model, objective, collator, evaluator)


def _late_interaction(run: RunFolder, backbone: Backbone, data: TrainingData) -> LateInteraction:
    """Return MaxSim over the states of a backbone that nothing has trained yet."""
    queries = run.states(backbone, data.queries, "queries")
    documents = run.states(backbone, data.documents, "documents")
    limits = (run.config.data.max_query_tokens, run.config.data.max_document_tokens)
    return LateInteraction(queries, documents, limits)


def _trainer(run: RunFolder, ready: _Prepared) -> Trainer:
    return Trainer(
        ready.model,
        ready.objective,
        ready.collator,
        run.config,
        run.work,
        ready.evaluator,
        run.progress,
        lambda row: ready.data.query_ids[row],
    )


def _evaluator(
    run: RunFolder, data: RunData, encoder: Encoder, objective: Objective
) -> RetrievalEvaluator | None:
    """Return the evaluator of the held-out queries; None where there are none."""
    settings, corpus = run.config.validation, data.documents
    if not data.validation.queries:
        return None
    in_score = run.config.loss.words > 0
    if settings.corpus is not None:
        to = (run.prepared, run.progress)
        corpus = open_corpus(settings.corpus, *to, words=in_score, prefix="validation-")
    texts = list(data.validation.queries.values())
    ids: Sequence[str] = corpus.ids
    documents: Sequence[str] = corpus.contents
    rows = None
    if settings.documents is not None:
        rows = _drawn(ids, settings.documents, data.validation.qrels, run.config.data_seed)
        ids, documents = [ids[n] for n in rows], [documents[n] for n in rows]
    both = None
    if in_score:
        words = sp.csr_array(corpus.words.document_vectors().weights)
        words = words if rows is None else words[rows]
        both = Words(corpus.words.query_vectors(texts), words, lambda: objective.query_scale)
    queries, read = _validation_texts(run, encoder, texts, documents)
    return RetrievalEvaluator(
        list(data.validation.queries),
        queries,
        ids,
        read,
        data.validation.qrels,
        settings,
        both,
        run.config.optimizer.bf16,
    )


def _validation_texts(
    run: RunFolder, encoder: Encoder, queries: Sequence[str], documents: Sequence[str]
) -> tuple[Any, Any]:
    """Return the texts, or their cached states where the backbone is frozen."""
    if run.config.model.trained != "head":
        return queries, documents
    settings = run.config.validation
    whole = settings.corpus is None and settings.documents is None
    return (
        queries if encoder.lookup else run.states(encoder.backbone, queries, "validation-queries"),
        run.states(encoder.backbone, documents, "documents" if whole else "validation-documents"),
    )


def _drawn(ids: Sequence[str], count: int, qrels: Sequence[Qrel], seed: int) -> list[int]:
    """Return the rows of some documents: the relevant ones first, then any."""
    wanted = {qrel.document_id for qrel in qrels if qrel.relevance > 0}
    relevant = np.fromiter((name in wanted for name in ids), bool, len(ids))
    order = np.random.default_rng(seed).permutation(len(ids))
    chosen = np.concatenate([order[relevant[order]], order[~relevant[order]]])[:count]
    return [int(row) for row in np.sort(chosen)]


def _finish(run: RunFolder, encoder: Encoder, objective: Objective) -> None:
    """Publish the model, with its card and curves."""
    backbone, head, lookup = encoder.backbone, encoder.head, encoder.lookup
    learned = run.config.loss.words > 0
    scale = objective.query_scale if learned else run.config.model.query_scale
    if lookup is None:
        head.configure(query_scale=scale)
    else:
        with torch.no_grad():
            lookup.weight.mul_(scale)
    path, metrics = run.path, read_metrics(run.work / "metrics.jsonl")
    encoder.eval()
    if has_adapters(backbone.model):
        adapter = _save(run, encoder, metrics, "adapter.unfinished")
        remove(path / "adapter")
        move(adapter, path / "adapter")
        backbone.model = merge_adapters(backbone.model)
    model = _save(run, encoder, metrics, "model.unfinished")
    write_curves(metrics, path / "curves.png")
    replace_file(path / "metrics.jsonl", (run.work / "metrics.jsonl").read_bytes())
    move(model, path / "model")


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
