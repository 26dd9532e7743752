"""Tiny models of transformers and sentence-transformers, made on the spot, of random weights."""

from pathlib import Path
from typing import Any

import torch
import transformers
from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules import Router
from sentence_transformers.base.modules.transformer import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from sentence_transformers.sparse_encoder.modules import (
    SparseAutoEncoder,
    SparseStaticEmbedding,
    SpladePooling,
)
from transformers import AutoTokenizer

from lexicept.neural.backbones.loading import quiet_transformers
from lexicept.neural.converters.reading import open_encoder
from support.tiny import save_bert

SIZES = {"vocab_size": 82, "max_position_embeddings": 64, "initializer_range": 0.3}
ENCODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "BertForMaskedLM": (
        "BertConfig",
        {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
        | {"intermediate_size": 64},
    ),
    "DistilBertForMaskedLM": (
        "DistilBertConfig",
        {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64},
    ),
    "ModernBertForMaskedLM": (
        "ModernBertConfig",
        {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2}
        | {"intermediate_size": 64, "pad_token_id": 0, "cls_token_id": 2, "sep_token_id": 3}
        | {"bos_token_id": 2, "eos_token_id": 3},
    ),
}
BERT = ENCODERS["BertForMaskedLM"][1]
ENCODERS |= {
    "RobertaForMaskedLM": (
        "RobertaConfig",
        {**BERT, "pad_token_id": 0, "max_position_embeddings": 70},
    ),
    "DebertaV2ForMaskedLM": ("DebertaV2Config", BERT),
    "BertForPreTraining": ("BertConfig", BERT),
    "BertForSequenceClassification": ("BertConfig", BERT),
    "ElectraForMaskedLM": ("ElectraConfig", {**BERT, "embedding_size": 16}),
    "ElectraForPreTraining": ("ElectraConfig", {**BERT, "embedding_size": 16}),
    "MobileBertForMaskedLM": (
        "MobileBertConfig",
        {**BERT, "embedding_size": 16, "intra_bottleneck_size": 16},
    ),
    "AlbertForMaskedLM": ("AlbertConfig", {**BERT, "embedding_size": 16}),
    "T5ForConditionalGeneration": (
        "T5Config",
        {"d_model": 32, "d_ff": 64, "num_layers": 2, "num_heads": 2, "d_kv": 16},
    ),
}


def save_masked(folder: Path, name: str = "BertForMaskedLM", **changes: Any) -> Path:
    """A tiny masked language model with random weights and the tiny BERT's tokens."""
    save_bert(folder)
    class_name, sizes = ENCODERS[name]
    config = getattr(transformers, class_name)(**{**SIZES, **sizes, **changes})
    torch.manual_seed(1)
    with quiet_transformers():
        model = getattr(transformers, name)(config)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
        model.save_pretrained(folder)
    return folder


def modules(folder: Path, *pooling: Any) -> list[Any]:
    return [Transformer(str(folder), transformer_task="fill-mask"), SpladePooling(*pooling)]


def table(folder: Path) -> SparseStaticEmbedding:
    weight = torch.arange(82) / 10
    return SparseStaticEmbedding(AutoTokenizer.from_pretrained(folder), weight, frozen=True)


def save_library(folder: Path, parts: list[Any], **settings: Any) -> Path:
    with quiet_transformers():
        SparseEncoder(modules=parts, **settings).save(str(folder), create_model_card=False)
    return folder


def inference_free(folder: Path, masked: Path) -> Path:
    return save_library(folder, [Router.for_query_document([table(masked)], modules(masked))])


def separate_encoders(folder: Path, masked: Path) -> Path:
    sides = list(open_encoder(masked)), list(open_encoder(masked))
    return save_library(folder, [Router.for_query_document(*sides)])


def csr(folder: Path, masked: Path) -> Path:
    config = [Transformer(str(masked)), Pooling(32), SparseAutoEncoder(32, 16, k=4)]
    return save_library(folder, config)
