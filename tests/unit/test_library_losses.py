"""The losses of sentence-transformers on lexicept's encoders, against plain models and by texts."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from datasets import Dataset
from sentence_transformers import (
    SparseEncoder,
    SparseEncoderTrainer,
    SparseEncoderTrainingArguments,
)
from sentence_transformers.base.modules.transformer import Transformer
from sentence_transformers.sparse_encoder import losses
from sentence_transformers.sparse_encoder.modules import SpladePooling
from torch import Tensor, nn
from transformers import BertConfig, BertForMaskedLM

from lexicept.neural.backbones.loading import quiet_transformers
from lexicept.neural.converters.reading import ModelLayout, read_model
from lexicept.neural.encoders.encoder import Encoder
from support.tiny import WORDS, bert_sizes, save_bert

TARGETS = torch.rand(2, 4, 82, generator=torch.Generator().manual_seed(3))
LOSSES: dict[str, tuple[type[nn.Module], int, Tensor | None]] = {
    "ranking": (losses.SparseMultipleNegativesRankingLoss, 3, None),
    "margins": (losses.SparseMarginMSELoss, 4, torch.tensor([[0.5, -1.0]] * 4)),
    "MSE": (losses.SparseMSELoss, 2, TARGETS),
}
"""Losses of 2 to 4 columns of texts, and labels."""

WRAPPERS: dict[str, Callable[..., nn.Module]] = {
    "columns": losses.SpladeLoss,
    "rows one by one": lambda *a, **k: losses.CachedSpladeLoss(*a, mini_batch_size=1, **k),
    "rows in threes": lambda *a, **k: losses.CachedSpladeLoss(*a, mini_batch_size=3, **k),
    "rows by tokens": lambda *a, **k: losses.CachedSpladeLoss(*a, mini_batch_num_tokens=50, **k),
}


SETTINGS = [
    *((name, "columns", False) for name in LOSSES),
    ("ranking", "rows by tokens", True),
    ("margins", "rows one by one", False),
    ("margins", "rows in threes", True),
]
"""Loss, wrapper, and whether all columns are documents."""


def columns(longest: int) -> list[list[str]]:
    """Four columns of four texts, of 1 to ``longest`` words."""
    generator = torch.Generator().manual_seed(5)

    def text(words: int) -> str:
        word_ids = torch.randint(len(WORDS), (words,), generator=generator)
        return " ".join(WORDS[word_id] for word_id in word_ids)

    lengths = (1, longest, longest // 2, 3)
    return [[text(lengths[(i + column) % 4]) for i in range(4)] for column in range(4)]


@pytest.fixture(scope="module")
def masked(tmp_path_factory):
    folder = tmp_path_factory.mktemp("masked")
    save_bert(folder)
    sizes = bert_sizes(82, hidden=32, blocks=2, inner=64, positions=64)
    torch.manual_seed(1)
    config = BertConfig(
        **sizes,
        initializer_range=0.3,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        tie_word_embeddings=False,
    )
    with quiet_transformers():
        BertForMaskedLM(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def plain(masked):
    modules = [Transformer(str(masked), transformer_task="fill-mask"), SpladePooling()]
    return SparseEncoder(modules=modules, device="cpu")


@pytest.fixture(scope="module")
def own(masked):
    """The same weights as an encoder that reads long texts in windows."""
    encoder = read_model(masked, ModelLayout.splade)
    encoder.backbone.cut(None, None)
    return encoder


class TextByText(nn.Module):
    """A model that reads numbers of texts, and passes one text at a time to an encoder."""

    def __init__(self, encoder: Encoder, texts: list[str]) -> None:
        super().__init__()
        self.encoder, self.texts = encoder, texts

    def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        alone = [self.texts[token_id] for token_id in features["input_ids"].ravel().tolist()]
        vectors = [
            self.encoder(self.encoder.preprocess([text]))["sentence_embedding"] for text in alone
        ]
        return {"sentence_embedding": torch.cat(vectors)}


def numbered(texts: list[list[str]]) -> list[dict[str, Tensor]]:
    """Columns of texts as columns of their numbers, for ``TextByText``."""
    size = len(texts[0])
    positions = [torch.arange(size)[:, None] + size * i for i in range(len(texts))]
    return [{"input_ids": value, "attention_mask": torch.ones_like(value)} for value in positions]


def loss_of(
    model: nn.Module, features: list[dict[str, Any]], bias: Tensor, setting: tuple[str, str, bool]
) -> Tensor:
    """Return a loss and the gradient of the output's bias, in one vector."""
    name, wrapper, documents = setting
    loss_class, _, labels = LOSSES[name]
    queries = None if documents else 0.3
    loss = WRAPPERS[wrapper](
        model, loss_class(model), 0.1, queries, use_document_regularizer_only=documents
    )
    model.zero_grad()
    total: Tensor = sum(loss(features, labels).values())
    total.backward()
    assert bias.grad is not None
    return torch.cat([total.detach()[None], bias.grad])


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_short_texts_have_the_losses_of_a_plain_model(plain, own, setting):
    texts = columns(20)[: LOSSES[setting[0]][1]]
    bias = plain[0].model.get_output_embeddings().bias
    expected = loss_of(plain, list(map(plain.preprocess, texts)), bias, setting)
    actual = loss_of(own, list(map(own.preprocess, texts)), own.head.bias, setting)
    torch.testing.assert_close(actual, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_long_texts_have_the_losses_of_their_pooled_windows(own, setting):
    texts = columns(100)[: LOSSES[setting[0]][1]]
    assert [window.text for window in own.backbone.windows(texts[0])] == [0, 1, 1, 1, 2, 3]
    alone = TextByText(own, [text for column in texts for text in column])
    expected = loss_of(alone, numbered(texts), own.head.bias, setting)
    actual = loss_of(own, list(map(own.preprocess, texts)), own.head.bias, setting)
    torch.testing.assert_close(actual, expected, rtol=1e-3, atol=1e-4)


def test_their_trainer_takes_the_same_steps(plain, own, tmp_path):
    names = ["anchor", "positive", "negative"]
    data = Dataset.from_dict(dict(zip(names, columns(20), strict=False)))

    def steps(model):
        arguments = SparseEncoderTrainingArguments(
            output_dir=str(tmp_path), max_steps=3, per_device_train_batch_size=2,
            learning_rate=1e-2, logging_steps=1, optim="sgd", report_to="none", disable_tqdm=True,
            save_strategy="no", use_cpu=True, dataloader_pin_memory=False,
        )  # fmt: skip
        ranking = losses.SparseMultipleNegativesRankingLoss(model)
        loss = losses.CachedSpladeLoss(model, ranking, 0.1, 0.1, mini_batch_size=3)
        trainer = SparseEncoderTrainer(model, arguments, data, loss=loss)
        trainer.train()
        return [record["loss"] for record in trainer.state.log_history if "loss" in record]

    expected = steps(deepcopy(plain))
    assert len(expected) == 3
    assert steps(deepcopy(own)) == pytest.approx(expected, rel=1e-3)
