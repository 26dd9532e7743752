"""A training run in one folder: data, states, checkpoints, metrics, curves and the model."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import scipy.sparse as sp
import torch
import yaml
from accelerate import PartialState
from torch import Tensor
from torch.utils.data import ConcatDataset

from lexicept.corpora import Qrel, Query, pseudo_queries, read_documents, read_qrels, read_queries
from lexicept.errors import InputError
from lexicept.index.builder import Contents, IndexBuilder
from lexicept.index.impacts import VocabularySettings
from lexicept.index.reader import IndexReader
from lexicept.models.backbone import Backbone
from lexicept.models.encoder import Encoder
from lexicept.models.heads.base import Head
from lexicept.models.heads.sae import SAEHead
from lexicept.models.language_heads import language_head
from lexicept.models.lookup import Lookup
from lexicept.models.lora import add_adapters, has_adapters, merge_adapters
from lexicept.models.sae.pretrained import find_pretrained_sae
from lexicept.progress import Progress, silent
from lexicept.storage.files import replace_file
from lexicept.storage.locks import lock
from lexicept.training.candidates.lists import CandidateList, Lists, write_lists
from lexicept.training.candidates.mining import mine
from lexicept.training.candidates.teacher_mining import teacher_lists
from lexicept.training.config import ModelSettings, TrainingConfig, to_mapping
from lexicept.training.data import Collator, Sampler, TeacherScores, TrainingData
from lexicept.training.objective import Objective
from lexicept.training.report import read_metrics, write_card, write_curves
from lexicept.training.sae.trainer import train_on_states, train_sae
from lexicept.training.states import CachedStates, cached_reader
from lexicept.training.trainer import Trainer
from lexicept.training.validation import RetrievalEvaluator, Words
from lexicept.vectorizers.words import WordVectorizer
from lexicept.weighting import BM25

PREPARATION = timedelta(weeks=1)
"""How long processes wait for the first one, which prepares what all of them read."""

CALIBRATION_TOKENS = 1000
"""Tokens that a head's first biases are measured on."""


def train(
    config: TrainingConfig,
    folder: str | os.PathLike[str],
    progress: Progress = silent,
    prepared: Path | None = None,
) -> Path:
    """Train an encoder; a run that was killed goes on from its last checkpoint.

    The folder holds ``config.yaml``, ``metrics.jsonl``, ``curves.png`` and, at the end, ``model``
    with a model card; ``work`` has what can be made again: data, states and checkpoints. Queries
    that validation held out of training are in ``held-out``, the split ``dev`` of a BEIR folder.
    Where low-rank adapters were trained, ``model`` has them added to its weights, and ``adapter``
    is the same encoder as adapters and head alone.

    Under a launcher (``torchrun``) the first of its processes prepares and writes everything, and
    a step is the mean of all processes' batches.

    Args:
        prepared: where data and states are or will be, in place of the run's ``work``: runs that
            differ in neither may share them, one after another.

    Returns:
        The folder of the trained encoder.

    Raises:
        InputError: the folder holds a run of another configuration or a finished one, another
            process works there, data that do not fit together, or nothing to distil from.
        NotFiniteError: a loss, with the ids of the batch's queries.
    """
    path = Path(folder)
    loss, teacher = config.loss, config.teacher
    taught = teacher.dense or teacher.bm25_weight or config.data.lists
    if (loss.kl or loss.margin_mse) and not taught:
        raise InputError(
            "loss.kl and loss.margin_mse need teacher.dense, teacher.bm25_weight, or data.lists "
            "with scores"
        )
    processes = PartialState(cpu=not torch.accelerator.is_available(), timeout=PREPARATION)
    descriptor = None
    try:
        if processes.is_main_process:
            if (path / "model").exists():
                raise InputError(f"{path}: this run is finished; name another folder")
            (path / "work").mkdir(parents=True, exist_ok=True)
            descriptor = lock(path)
            _keep_config(config, path / "config.yaml", prepared or path / "work")
        return _Run(config, path, prepared or path / "work", progress, processes).train()
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _keep_config(config: TrainingConfig, path: Path, prepared: Path) -> None:
    content = yaml.safe_dump(to_mapping(config), sort_keys=False)
    begun = (prepared / "words").exists()  # before that nothing can be lost
    if begun and path.exists() and path.read_text() != content:
        raise InputError(f"{path}: a run of another configuration; name another folder")
    replace_file(path, content.encode())


class _Prepared(NamedTuple):
    """What a trainer needs; all processes read the same files for it."""

    data: TrainingData
    encoder: Encoder
    model: Encoder
    """What learns: the encoder, or its head alone on cached states."""
    objective: Objective
    collator: Collator
    evaluator: RetrievalEvaluator | None


class _Run:
    def __init__(
        self,
        config: TrainingConfig,
        path: Path,
        work: Path,
        progress: Progress,
        processes: PartialState,
    ) -> None:
        self.config, self.path, self.work, self.processes = config, path, work, processes
        self.progress = progress if processes.is_main_process else silent

    def train(self) -> Path:
        config = self.config
        with self.processes.main_process_first():
            data, encoder, model, objective, collator, evaluator = self._prepare()
        torch.manual_seed(config.optimizer.seed)  # after an SAE that was trained now or before
        set_trainable(encoder, config.model, config.loss.reconstruction > 0)
        trainer = Trainer(
            model,
            objective,
            collator,
            config,
            self.path / "work",
            evaluator,
            self.progress,
            lambda row: data.query_ids[row],
        )
        trainer.fit()
        if self.processes.is_main_process:
            self._finish(encoder, objective)
        self.processes.wait_for_everyone()
        return self.path / "model"

    def _prepare(self) -> _Prepared:
        config = self.config
        index = word_index(config.data.corpus, self.work / "words", self.progress)
        queries, qrels = self._queries(index)
        validation_queries, validation_qrels, queries, qrels = self._split(queries, qrels)
        data = self._data(index, queries, qrels)
        data.lists = self._lists(index, queries, qrels, data)
        encoder = self._encoder(data)
        backbone, head, lookup = encoder.backbone, encoder.head, encoder.lookup
        source: Backbone | tuple[CachedStates | None, CachedStates] = backbone
        model = encoder
        if config.model.trained == "head":
            source = (
                None if lookup else self._states(backbone, data.queries, "queries"),
                self._states(backbone, data.documents, "documents"),
            )
            model = Encoder.over_states(head, lookup, encoder.index_settings)
        objective = Objective.from_config(model, head, config)
        evaluator = self._evaluator(index, encoder, objective, validation_queries, validation_qrels)
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

    def _queries(self, index: IndexReader) -> tuple[dict[str, str], dict[str, list[str]]]:
        """Texts and relevant documents of the training queries."""
        data = self.config.data
        if data.queries is not None:
            qrels = relevant(read_qrels(data.queries, data.split))
            found = {query.id: query.text for query in read_queries(data.queries, data.split)}
        else:
            found, qrels = self._pseudo_queries(index)
        if data.count is not None:
            random = np.random.default_rng(self.config.optimizer.seed)
            names = list(found)
            drawn = sorted(random.permutation(len(names))[: data.count])
            found = {names[i]: found[names[i]] for i in drawn}
        return found, qrels

    def _pseudo_queries(self, index: IndexReader) -> tuple[dict[str, str], dict[str, list[str]]]:
        data = self.config.data
        pairs = pseudo_queries.generate(
            index.documents(), "mixed", data.pseudo_queries, self.config.optimizer.seed
        )
        queries, sources = {}, {}
        for name, document, text in pseudo_queries.named(pairs):
            queries[name], sources[name] = text, [document]
        if not queries:
            raise InputError(f"{data.corpus}: no pseudo-queries can be made of these documents")
        return queries, sources

    def _split(
        self, queries: dict[str, str], qrels: dict[str, list[str]]
    ) -> tuple[dict[str, str], list[Qrel], dict[str, str], dict[str, list[str]]]:
        """Validation's queries and judgements, and what is left for training."""
        settings = self.config.validation
        random = np.random.default_rng(self.config.optimizer.seed)
        if settings.queries is not None:
            found = {q.id: q.text for q in read_queries(settings.queries, settings.split)}
            chosen = sorted(found)
            random.shuffle(chosen)
            chosen = sorted(chosen[: settings.count])
            kept = {name: found[name] for name in chosen}
            judged = [q for q in read_qrels(settings.queries, settings.split) if q.query_id in kept]
            return kept, judged, queries, qrels
        names = sorted(name for name in queries if name in qrels)
        random.shuffle(names)
        held = set(names[: min(settings.count, len(names) // 10)])
        kept = {name: queries[name] for name in sorted(held)}
        judged = [Qrel(name, document, 1) for name in kept for document in qrels[name]]
        if held and self.processes.is_main_process:
            of_query = (
                (Query(name, text), [Qrel(name, document, 1) for document in qrels[name]])
                for name, text in kept.items()
            )
            pseudo_queries.write_judged(self.path / "held-out", "dev", of_query)
        return (
            kept,
            judged,
            {name: text for name, text in queries.items() if name not in held},
            {name: found for name, found in qrels.items() if name not in held},
        )

    def _lists(
        self,
        index: IndexReader,
        queries: dict[str, str],
        qrels: dict[str, list[str]],
        training: TrainingData,
    ) -> Lists:
        data, path = self.config.data, self.work / "lists.jsonl"
        if path.exists():
            return Lists.open(path)
        if data.lists is not None:
            lists = Lists.open(data.lists)
            if data.count is None and self.config.validation.queries is not None:
                return lists
            # Some queries were left out, so that their lists are too.
            return write_lists(path, (found for found in lists if found.query_id in queries))
        if data.mining == "teacher":
            return teacher_lists(training, qrels, path, data.mining_depth, self.progress)
        return mine(index, queries, qrels, path, depth=data.mining_depth, progress=self.progress)

    def _data(
        self, index: IndexReader, queries: dict[str, str], qrels: dict[str, list[str]]
    ) -> TrainingData:
        teacher, documents = self.config.teacher, Contents(index.folder)
        words: tuple[sp.csr_array | None, sp.csr_array | None] = (None, None)
        if teacher.bm25_weight or self.config.loss.words:
            words = (
                index.query_vectors(list(queries.values())),
                sp.csr_array(index.document_vectors().weights),
            )
        scores = None
        if teacher.dense is not None or teacher.bm25_weight:
            vectors: tuple[Any, Any] = (None, None)
            if teacher.dense is not None:
                from lexicept.training.candidates.neural_teachers import embeddings

                texts = (list(queries.values()), documents)
                folder = self.work / "teacher"
                bf16 = self.config.optimizer.bf16
                vectors = embeddings(teacher.dense, *texts, folder, self.progress, bf16=bf16)
            weights = (teacher.dense_weight, teacher.bm25_weight)
            scores = TeacherScores(*vectors, *weights)
        ids = (list(queries), list(queries.values()), index.ids, documents)
        known = [
            CandidateList(query, tuple(qrels.get(query, ())), len(qrels.get(query, ())))
            for query in queries
        ]
        return TrainingData(*ids, known, *words, scores)

    def _encoder(self, data: TrainingData) -> Encoder:
        settings = self.config.model
        if settings.start is not None:
            encoder = Encoder.load(settings.start)
        else:
            encoder = self._new_encoder(settings, data)
        backbone, head = encoder.backbone, encoder.head
        if settings.query == "lookup" and encoder.lookup is None:
            lookup = Lookup.for_head(head, backbone.tokenizer)
            lookup.set_idf(data.documents)
            encoder = Encoder.of(backbone, head, lookup, encoder.index_settings)
        elif settings.query == "encoder":
            encoder = Encoder.of(backbone, head, index_settings=encoder.index_settings)
        # What a query's weights are worth beside words' may be learned anew.
        changes: dict[str, Any] = {"query_scale": 1.0} | {
            name: getattr(settings, name) or None
            for name in ("query_k", "document_k")
            if getattr(settings, name) is not None
        }
        for name in ("pooling", "query_max_active_dims", "document_max_active_dims"):
            if getattr(settings, name) is not None:
                changes[name] = getattr(settings, name)
        head.configure(**changes)
        weighed = {name: getattr(settings, name) for name in ("weighting", "k1", "b")}
        encoder.index_settings = replace(encoder.index_settings, **weighed)
        if settings.initial_active_dims is not None:
            head.calibrate(_sample(backbone, data.documents), settings.initial_active_dims)
        return encoder

    def _new_encoder(self, settings: ModelSettings, data: TrainingData) -> Encoder:
        layer, pretrained = settings.layer, None
        if settings.pretrained is not None:
            wanted = (settings.pretrained, layer, settings.pretrained_width)
            pretrained = find_pretrained_sae(*wanted, l0=settings.pretrained_l0)
            layer = layer or pretrained.layer
        backbone = Backbone.from_pretrained(
            settings.backbone,
            layer,
            bidirectional=settings.bidirectional,
            dtype=settings.dtype,
            precision="bfloat16" if self.config.optimizer.bf16 else None,
        )
        if pretrained is None:
            return Encoder.of(backbone, self._head(settings, backbone, data))
        sae = pretrained.load(settings.pretrained_scale, backbone)
        return Encoder.of(backbone, SAEHead(sae))

    def _head(self, settings: ModelSettings, backbone: Backbone, data: TrainingData) -> Head:
        if settings.head == "sae":
            inner = language_head(settings.backbone) if settings.sae_input != "states" else None
            transform = None if inner is None else inner.transform
            sides = ["documents", "queries"] if settings.sae_queries else ["documents"]
            texts = [getattr(data, side) for side in sides]
            to = (settings.sae, self.work / "sae", self.progress)
            if settings.trained == "head":  # what it trains on later is read once, for both
                caches = [self._states(backbone, *of) for of in zip(texts, sides, strict=True)]
                reader = cached_reader(caches, backbone.model.device, transform)
                sae = train_on_states(reader, sum(map(len, texts)), *to)
            else:
                both = cast(Sequence[str], ConcatDataset(texts))
                sae = train_sae(backbone, both, *to, transform=transform)
            return SAEHead(sae, inner=inner)
        head = language_head(settings.backbone)
        if settings.head == "mlm":
            return head
        size = settings.size or 0
        if settings.head == "random":
            return head.random(size, self.config.optimizer.seed)
        from lexicept.models.word_vocabulary import expanded_words

        words, pieces = expanded_words(data.documents, backbone.tokenizer, size)
        return head.expanded(pieces, words)

    def _states(self, backbone: Backbone, texts: Sequence[str], name: str) -> CachedStates:
        folder = self.work / "states" / name
        bf16 = self.config.optimizer.bf16
        return CachedStates.build(folder, backbone, texts, self.progress, bf16=bf16)

    def _evaluator(
        self,
        index: IndexReader,
        encoder: Encoder,
        objective: Objective,
        queries: dict[str, str],
        qrels: list[Qrel],
    ) -> RetrievalEvaluator | None:
        settings = self.config.validation
        if not queries:
            return None
        if settings.corpus is not None:
            index = word_index(settings.corpus, self.work / "validation-words", self.progress)
        texts = list(queries.values())
        ids: Sequence[str] = index.ids
        documents: Sequence[str] = Contents(index.folder)
        words = sp.csr_array(index.document_vectors().weights)
        if settings.documents is not None:
            rows = self._drawn(ids, settings.documents, qrels)
            ids, documents = [ids[n] for n in rows], [documents[n] for n in rows]
            words = words[rows]
        sources: tuple[Any, Any] = (texts, documents)
        if self.config.model.trained == "head":
            whole = settings.corpus is None and settings.documents is None
            name = "documents" if whole else "validation-documents"
            sources = (
                texts
                if encoder.lookup
                else self._states(encoder.backbone, texts, "validation-queries"),
                self._states(encoder.backbone, documents, name),
            )
        both = None
        if self.config.loss.words:
            both = Words(index.query_vectors(texts), words, lambda: objective.query_scale)
        return RetrievalEvaluator(
            list(queries),
            sources[0],
            ids,
            sources[1],
            qrels,
            settings,
            both,
            self.config.optimizer.bf16,
        )

    def _drawn(self, ids: Sequence[str], count: int, qrels: Sequence[Qrel]) -> list[int]:
        """Rows of so many documents: the relevant ones first, then any."""
        relevant = {qrel.document_id for qrel in qrels if qrel.relevance > 0}
        order = np.random.default_rng(self.config.optimizer.seed).permutation(len(ids)).tolist()
        return sorted(sorted(order, key=lambda row: ids[row] not in relevant)[:count])

    def _finish(self, encoder: Encoder, objective: Objective) -> None:
        """Publish the model, with its card and curves."""
        backbone, head, lookup = encoder.backbone, encoder.head, encoder.lookup
        learned = self.config.loss.words > 0
        scale = objective.query_scale if learned else self.config.model.query_scale
        if lookup is None:
            head.configure(query_scale=scale)
        else:
            with torch.no_grad():
                lookup.weight.mul_(scale)
        metrics = read_metrics(self.path / "work" / "metrics.jsonl")
        encoder.eval()
        if has_adapters(backbone.model):
            adapter = self._save(encoder, metrics, "adapter.unfinished")
            shutil.rmtree(self.path / "adapter", ignore_errors=True)
            adapter.rename(self.path / "adapter")
            backbone.model = merge_adapters(backbone.model)
        model = self._save(encoder, metrics, "model.unfinished")
        write_curves(metrics, self.path / "curves.png")
        shutil.copy(self.path / "work" / "metrics.jsonl", self.path / "metrics.jsonl")
        model.rename(self.path / "model")

    def _save(self, encoder: Encoder, metrics: list[dict[str, Any]], name: str) -> Path:
        folder = self.path / name
        shutil.rmtree(folder, ignore_errors=True)
        encoder.save(str(folder), create_model_card=False)
        write_card(encoder, self.config, metrics, folder / "README.md")
        return folder


def _sample(backbone: Backbone, texts: Sequence[str]) -> Tensor:
    """States of about ``CALIBRATION_TOKENS`` tokens of the first texts [n, d]."""
    found: list[Tensor] = []
    for text in texts:
        found += (states for _, states in backbone.token_states(backbone.windows([text])))
        if sum(map(len, found)) >= CALIBRATION_TOKENS:
            break
    return torch.cat(found)[:CALIBRATION_TOKENS]


def word_index(corpus: str, path: Path, progress: Progress) -> IndexReader:
    """The documents and their words: made once, opened afterwards."""
    if path.exists():
        return IndexReader.open(path)
    with closing(IndexBuilder(path)) as builder:
        builder.add_documents(read_documents(corpus), {})
        builder.add_vocabulary(WordVectorizer(), VocabularySettings(BM25()), progress)
        return builder.commit()


def relevant(qrels: Any) -> dict[str, list[str]]:
    """Query id → ids of its relevant documents."""
    found: dict[str, list[str]] = {}
    for qrel in qrels:
        if qrel.relevance > 0:
            found.setdefault(qrel.query_id, []).append(qrel.document_id)
    return found


def set_trainable(encoder: Encoder, settings: ModelSettings, reconstructs: bool) -> None:
    """Which parameters learn: the head's, adapters of the backbone, or the backbone's own; an SAE's
    decoder where it reconstructs."""
    backbone, head, lookup = encoder.backbone, encoder.head, encoder.lookup
    backbone.requires_grad_(settings.trained == "all")
    if settings.trained == "lora":
        backbone.model = add_adapters(
            backbone.model, backbone.source, settings.lora_rank, settings.lora_alpha
        )
    head.requires_grad_(not settings.freeze_head)
    if lookup is not None:
        lookup.requires_grad_(True)
    if isinstance(head, SAEHead):
        head.freeze_unused(decoder=not reconstructs)
