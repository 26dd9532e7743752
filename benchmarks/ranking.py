"""Steps of ranking training per second, compared with ``SparseEncoderTrainer``."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Literal

import torch
from datasets import Dataset
from sentence_transformers import (
    SparseEncoder,
    SparseEncoderTrainer,
    SparseEncoderTrainingArguments,
)
from sentence_transformers.sparse_encoder.callbacks.splade_callbacks import (
    SpladeRegularizerWeightSchedulerCallback,
)
from sentence_transformers.sparse_encoder.losses import (
    SparseMultipleNegativesRankingLoss,
    SpladeLoss,
)
from sentence_transformers.sparse_encoder.modules import SpladePooling, Transformer
from transformers import AutoTokenizer, BertConfig, BertForMaskedLM, BertModel, TrainerCallback

from benchmarks.common import Table, ratio
from lexicept.candidates.lists import CandidateList
from lexicept.corpora import read_documents
from lexicept.encoding.sources import DEFAULT_BACKBONE, resolve
from lexicept.neural.encoders.encoder import Encoder
from lexicept.neural.sae.cached_states import CachedStates
from lexicept.training.ranking.config import (
    DataSettings,
    LossSettings,
    OptimizerSettings,
    RegularizerSettings,
    TrainingConfig,
)
from lexicept.training.ranking.data import Collator, Sampler, TrainingData
from lexicept.training.ranking.initial_encoder import load_models, set_trainable
from lexicept.training.ranking.model_settings import ModelSettings
from lexicept.training.ranking.objective import Objective
from lexicept.training.ranking.trainer import Trainer

WEIGHT = 1e-3
"""Of FLOPS, on queries and on documents."""

ACTIVE = 200
"""Dimensions of the vocabulary that are active in a document at first, on average."""

LENGTH = 128
"""Most tokens of a document."""

Trained = Literal["head", "all"]
TRAINED: dict[Trained, str] = {"all": "the whole model", "head": "the head, a frozen backbone"}

Pairs = list[tuple[str, str]]
"""Queries and their documents: one batch."""


class Times(TrainerCallback):  # type: ignore[misc]
    """Notes the processor time at the end of each step."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.ends.append(time.process_time())


def save_model(folder: Path, texts: list[str]) -> None:
    """Write MiniLM with a language head that is not trained: its rows are the embeddings, its
    biases leave ``ACTIVE`` dimensions in a text. Without dropout, losses can be compared."""
    source = resolve(DEFAULT_BACKBONE)
    tokenizer = AutoTokenizer.from_pretrained(source, model_max_length=LENGTH)
    config = BertConfig.from_pretrained(
        source, tie_word_embeddings=False, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    torch.manual_seed(0)
    model = BertForMaskedLM(config).eval()
    bert = BertModel.from_pretrained(source, add_pooling_layer=False)
    model.bert.load_state_dict(bert.state_dict())
    head = model.cls.predictions
    with torch.no_grad():
        head.decoder.weight.copy_(bert.embeddings.word_embeddings.weight)
        inputs = tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
        logits = model(**inputs).logits
        real = inputs["attention_mask"].bool()[:, :, None]
        largest = logits.masked_fill(~real, -torch.inf).amax(dim=1)
        head.decoder.bias.sub_(largest.topk(ACTIVE, dim=1).values[:, -1].mean())
        head.bias.copy_(head.decoder.bias)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def lexicept_steps(model: Path, pairs: Pairs, trained: Trained, steps: int, work: Path) -> Trainer:
    """Return lexicept's trainer; the states of a frozen backbone are on disk."""
    regularizer = RegularizerSettings(weight=WEIGHT, steps=1)
    config = TrainingConfig(
        data=DataSettings(corpus="scifact", negatives=0, max_document_tokens=LENGTH),
        model=ModelSettings(backbone=str(model), head="mlm", trained=trained, special_tokens=True),
        loss=LossSettings(kl=0.0, in_batch=1.0, scale_learning_rate=0.0),
        query_regularizer=regularizer,
        document_regularizer=regularizer,
        optimizer=OptimizerSettings(
            steps=steps, batch_size=len(pairs), learning_rate=2e-5, warmup_steps=0
        ),
    )
    loaded = load_models(config)
    assert loaded.head is not None
    encoder = Encoder.of(loaded.backbone, loaded.head)
    set_trainable(encoder, config)
    ids = [str(i) for i in range(len(pairs))]
    queries, documents = (list(side) for side in zip(*pairs, strict=True))
    lists = [CandidateList(name, (name,), 1) for name in ids]
    data = TrainingData(ids, queries, ids, documents, lists)
    source: Any = encoder.backbone
    learns = encoder
    if trained == "head":
        texts = {"queries": queries, "documents": documents}
        source = tuple(
            CachedStates.build(work / side, encoder.backbone, of_side)
            for side, of_side in texts.items()
        )
        learns = Encoder.of(None, encoder.head)
    collator = Collator(Sampler(data, 0, 1.0, 0), data, source, (LENGTH, LENGTH))
    objective = Objective(learns, encoder.head, config)
    return Trainer(learns, objective, [collator], config, work, None, ())


def library_steps(
    model: Path, pairs: Pairs, trained: Trained, steps: int, work: Path
) -> SparseEncoderTrainer:
    """Return the library's trainer; it runs a frozen backbone in every step, without gradient."""
    transformer = Transformer(str(model), transformer_task="fill-mask")
    encoder = SparseEncoder(modules=[transformer, SpladePooling()], device="cpu")
    if trained == "head":
        transformer.model.bert.requires_grad_(False)
    queries, documents = zip(*pairs, strict=True)
    ranking = SparseMultipleNegativesRankingLoss(encoder, scale=1.0)
    loss = SpladeLoss(encoder, ranking, WEIGHT, WEIGHT)
    # Both begin with a weight of 0.
    schedule = SpladeRegularizerWeightSchedulerCallback(loss, warmup_ratio=1 / steps)
    return SparseEncoderTrainer(
        encoder,
        SparseEncoderTrainingArguments(
            output_dir=str(work),
            max_steps=steps,
            per_device_train_batch_size=len(pairs),
            learning_rate=2e-5,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
        ),
        Dataset.from_dict({"anchor": queries, "positive": documents}),
        loss=loss,
        callbacks=[schedule],
    )


def run(data: Path, batch: int = 8, steps: int = 3, rounds: int = 3) -> list[Table]:
    """Train on one batch in turns; the first step of each training does not count."""
    torch.set_num_threads(1)
    documents = list(read_documents(data / "scifact"))[:batch]
    pairs = [(" ".join(document.title.split()[:12]), document.content) for document in documents]
    makers: dict[str, Callable[..., SparseEncoderTrainer]] = {
        "lexicept": lexicept_steps,
        "`SparseEncoderTrainer`": library_steps,
    }
    lines = []
    with TemporaryDirectory() as folder:
        model = Path(folder, "model")
        save_model(model, [document for _, document in pairs])
        for trained, title in TRAINED.items():
            times: dict[str, list[float]] = {name: [] for name in makers}
            for i in range(rounds):
                reached = []
                for name, make in makers.items():
                    trainer = make(model, pairs, trained, steps, Path(folder, f"{i}"))
                    clock = Times()
                    trainer.add_callback(clock)
                    trainer.train()
                    reached.append(trainer.state.log_history[-1]["train_loss"])
                    times[name].append((clock.ends[-1] - clock.ends[0]) / (steps - 1))
                # With a frozen backbone, whose states are in half precision, 2 % apart.
                assert abs(reached[0] - reached[1]) < 0.05 * reached[1], reached
            first = times["lexicept"]
            lines += [
                [title, name, f"{1 / median(took):.2f}", f"{ratio(took, first):.2f} ×"]
                for name, took in times.items()
            ]
    return [Table("ranking", ["Ranking", "", "steps/s", "time / lexicept's"], lines)]
