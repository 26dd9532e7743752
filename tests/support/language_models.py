"""Tiny masked language models of every architecture, with a WordPiece tokenizer."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import BertTokenizer

from lexicept.neural.backbones.loading import quiet_transformers
from support.tiny import bert_sizes

VOCABULARY = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    *("the", "cat", "dog", "sat", "on", "a", "mat", "and", "ran", "away", "from", "it"),
    *("lov", "##e", "##ly", "run", "##ning", "##s", ".", "!"),
]
TEXT = "the lovely cats sat on a mat and ran away"
SIZES = bert_sizes(len(VOCABULARY), hidden=16, blocks=2, inner=32, positions=34)
SMALL = {**SIZES, "pad_token_id": 0}
SPECIAL = {"cls_token_id": 2, "sep_token_id": 3, "bos_token_id": 2, "eos_token_id": 3}
CONFIGS: dict[str, Callable[[], Any]] = {
    "Bert": lambda: transformers.BertConfig(**SMALL),
    "DistilBert": lambda: transformers.DistilBertConfig(
        vocab_size=len(VOCABULARY),
        dim=16,
        n_layers=2,
        n_heads=2,
        hidden_dim=32,
        max_position_embeddings=34,
        activation="relu",
    ),
    "Roberta": lambda: transformers.RobertaConfig(**SMALL),
    "ModernBert": lambda: transformers.ModernBertConfig(**SMALL, **SPECIAL),
    "MPNet": lambda: transformers.MPNetConfig(**SMALL),
}


def save(folder: Path, architecture: str, kind: str = "ForMaskedLM") -> Any:
    """A tiny model with weights that are all different, saved with a WordPiece tokenizer."""
    vocabulary = {token: number for number, token in enumerate(VOCABULARY)}
    torch.manual_seed(0)
    with quiet_transformers():
        model = getattr(transformers, architecture + kind)(CONFIGS[architecture]()).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.3 * torch.randn_like(parameter))
        model.save_pretrained(folder)
        BertTokenizer(vocab=vocabulary, model_max_length=32).save_pretrained(folder)
    return model
