"""Validation by retrieval: nDCG@10 and cost on judged queries."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import scipy.sparse as sp
import torch
from sentence_transformers.base.evaluation import BaseEvaluator

from lexicept.corpora import Qrel
from lexicept.engines import ExactEngine
from lexicept.evaluation import effectiveness
from lexicept.evaluation.runs import run_of_rows
from lexicept.index.impacts import VocabularySettings
from lexicept.measures import e2, mean_length, qd_flops
from lexicept.neural.backbones.blocks import autocast
from lexicept.neural.encoders.encoder import Encoder
from lexicept.neural.sae.cached_states import CachedStates
from lexicept.training.ranking.config import E2, TrainingConfig, ValidationSettings
from lexicept.vectors import stack_columns, stack_rows
from lexicept.weighting import Unchanged

BATCH = 64
"""Texts with cached states to pool together."""

MEASURES = ("nDCG@10", "RR@10")
"""Measures of every validation."""

STEPS = 250
"""Steps between two validations, if a tenth of the training pays for them."""

SHARE = 0.3
"""Documents that validations encode for each document of training: a tenth of the time, as the
forward and backward pass of a document take three times as long."""

FEWEST = 500
"""Documents of a validation, however short the training is."""

Texts = Sequence[str] | CachedStates


def affordable(config: TrainingConfig, documents: int) -> ValidationSettings:
    """Return the settings of validation, with ``every`` and the number of documents filled in so
    that a tenth of the training pays for all validations of a collection of ``documents``."""
    settings, steps = config.validation, config.optimizer.steps
    queries = steps * config.optimizer.batch_size * config.optimizer.accumulation
    trained_tokens = config.data.max_document_tokens
    tokens = max(trained_tokens, config.model.max_document_tokens or trained_tokens)
    budget = SHARE * queries * (1 + config.data.negatives) * trained_tokens / tokens
    limit, cached = settings.documents, config.model.trained == "head"
    # Fewer validations first; below four, fewer documents, unless their states are on disk anyway.
    validations = max(1 if cached else 4, budget // min(documents, limit or documents))
    every = settings.every or max(STEPS, math.ceil(steps / validations))
    if limit is None and not cached:
        limit = max(FEWEST, int(budget / math.ceil(steps / every)))
    return replace(settings, every=every, documents=None if (limit or 0) >= documents else limit)


@dataclass(frozen=True)
class Words:
    """BM25 weights of the validation's queries and documents, CSR [n, V]."""

    queries: sp.csr_array
    documents: sp.csr_array
    query_scale: Callable[[], float]
    """Returns the current factor on the encoder's query weights."""


class NamedTexts(NamedTuple):
    """Texts or their cached states, with ids."""

    ids: Sequence[str]
    texts: Texts


class RetrievalEvaluator(BaseEvaluator):  # type: ignore[misc]
    """Encode all documents and queries, and search exactly, also for ``words``. With ``bf16``,
    cached states are pooled in bfloat16, if the device supports it."""

    def __init__(
        self,
        queries: NamedTexts,
        documents: NamedTexts,
        qrels: Sequence[Qrel],
        settings: ValidationSettings,
        words: Words | None = None,
        bf16: bool = False,
    ) -> None:
        super().__init__()
        self.queries, self.documents, self.qrels = queries, documents, qrels
        self.settings, self.words, self.bf16 = settings, words, bf16

    def __call__(self, model: Encoder, *_: Any, **__: Any) -> dict[str, float]:
        """Return ``ndcg``, ``mrr``, ``qd_flops``, ``query_length``, ``document_length``, ``e2``,
        ``selection``, the value to maximise, and the selecting measure by name."""
        documents = encode(model, self.documents.texts, "document", self.bf16)
        queries = encode(model, self.queries.texts, "query", self.bf16)
        head = model.head.settings
        limits = VocabularySettings(
            Unchanged(),
            self.settings.query_max_active_dims or head.query_max_active_dims,
            self.settings.document_max_active_dims or head.document_max_active_dims,
            pruning=head.pruning,
        )
        queries, documents = limits.prune(queries, documents)
        lengths = {"query_length": mean_length(queries), "document_length": mean_length(documents)}
        # Side by side: one dot product is the sum of the words' and the encoder's scores.
        if self.words is not None:
            queries = stack_columns([self.words.queries, queries * self.words.query_scale()])
            documents = stack_columns([self.words.documents, documents])
        measures = list(MEASURES)
        if self.settings.select != E2:
            measures.append(self.settings.select)
        depth = min(max(map(effectiveness.depth_of, measures)), len(self.documents.ids))
        hits = ExactEngine.build(documents).search(queries, depth)
        run = run_of_rows(self.queries.ids, hits, self.documents.ids)
        values = effectiveness.evaluate(self.qrels, run, list(dict.fromkeys(measures)))
        cost = qd_flops(queries, documents)
        report = {"ndcg": values["nDCG@10"], "mrr": values["RR@10"], "qd_flops": cost, **lengths}
        report |= {name: values[name] for name in values if name not in MEASURES}
        report["e2"] = e2(values["RR@10"], cost)
        return report | {"selection": self.selection(report)}

    def selection(self, report: dict[str, float]) -> float:
        """Return the value to maximise."""
        names = {E2: "e2", "nDCG@10": "ndcg", "RR@10": "mrr"}
        return report[names.get(self.settings.select, self.settings.select)]


def encode(model: Encoder, texts: Texts, task: str, bf16: bool = False) -> sp.csr_array:
    """Return the weights [n, V] of texts, unpruned."""
    weighting, activations = model.weighting, pooled(model, texts, task, bf16)
    return weighting.queries(activations) if task == "query" else weighting.documents(activations)


def pooled(model: Encoder, texts: Texts, task: str, bf16: bool = False) -> sp.csr_array:
    """Return the pooled activations [n, V] of texts, before any weighting."""
    head = model.head
    if not isinstance(texts, CachedStates):
        return model.encode_activations(texts, task)
    blocks = []
    device = head.rows.device
    for start in range(0, len(texts), BATCH):
        indices = range(start, min(start + BATCH, len(texts)))
        states, text = (tensor.to(device) for tensor in texts.read(indices))
        with torch.inference_mode(), autocast(device, bf16):
            vectors = head.finish(head.pool(states, text, len(indices), task))
        blocks.append(sp.csr_array(vectors.float().cpu().numpy()))
    return stack_rows(blocks, head.size)
