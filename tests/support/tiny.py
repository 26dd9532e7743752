"""A tiny encoder of random weights, and a collection of its words."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import BertConfig, BertModel, BertTokenizerFast, PreTrainedTokenizerFast

from lexicept.neural.backbones.backbone import Backbone
from lexicept.neural.backbones.loading import quiet_transformers

SYLLABLES = ("ba", "de", "ki", "lo", "mu")
WORDS = [first + second for first, second in product(SYLLABLES, SYLLABLES)]


def bert_sizes(tokens: int, hidden: int, blocks: int, inner: int, positions: int) -> dict[str, int]:
    """Settings of a BERT by transformers' names; two attention heads."""
    return {
        "vocab_size": tokens,
        "hidden_size": hidden,
        "num_hidden_layers": blocks,
        "num_attention_heads": 2,
        "intermediate_size": inner,
        "max_position_embeddings": positions,
    }


def save_bert(folder: Path, dropout: float = 0.1, blocks: int = 2, inner: int = 64) -> str:
    """A BERT of 32 dimensions for ``WORDS`` and letters, as a folder."""
    torch.manual_seed(0)
    letters = [chr(c) for c in range(ord("a"), ord("z") + 1)]
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *letters]
    names += [f"##{letter}" for letter in letters]
    vocabulary = {name: i for i, name in enumerate(names)}
    config = BertConfig(
        **bert_sizes(len(names), hidden=32, blocks=blocks, inner=inner, positions=64),
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        initializer_range=0.3,
    )
    with quiet_transformers():
        BertModel(config).save_pretrained(folder)
    BertTokenizerFast(vocab=vocabulary, model_max_length=64).save_pretrained(folder)
    return str(folder)


def count_read(monkeypatch: pytest.MonkeyPatch, backbone: Any) -> list[int]:
    """The number of windows in each batch that models of a class read from now on."""
    counts: list[int] = []
    states = backbone.states

    def counted(self: Any, ids: Any, mask: Any) -> Any:
        counts.append(len(ids))
        return states(self, ids, mask)

    monkeypatch.setattr(backbone, "states", counted)
    return counts


def tiny_backbone(folder: Path, dropout: float = 0.1, **sizes: int) -> Backbone:
    return Backbone.from_pretrained(save_bert(folder, dropout, **sizes))


DECODER = {
    "hidden_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "initializer_range": 0.3,
}
SLIDING = {"sliding_window": 4}
GEMMA = {"head_dim": 8, "query_pre_attn_scalar": 8, **SLIDING}
DECODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "Llama": ("LlamaConfig", {}),
    "Gemma2": ("Gemma2Config", GEMMA),
    "Gemma3": (
        "Gemma3TextConfig",
        {**GEMMA, "layer_types": ["sliding_attention", "full_attention"] * 2},
    ),
    "Qwen2": ("Qwen2Config", {"use_sliding_window": True, "max_window_layers": 2, **SLIDING}),
    "Qwen3": ("Qwen3Config", {"head_dim": 8}),
    "Mistral": ("MistralConfig", SLIDING),
}
"""Four blocks of 32 dimensions; those that the architectures let slide see a window of 4."""
WITH_LAYER_NORM = {
    "GPT2": ("GPT2Config", {}),
    "GPTNeoX": ("GPTNeoXConfig", {}),
    "OPT": ("OPTConfig", {"ffn_dim": 48, "word_embed_proj_dim": 32}),
    "Bloom": ("BloomConfig", {}),
    "Phi": ("PhiConfig", {}),
}
"""Decoders whose last norm is a LayerNorm."""


def decoder_tokenizer(start: bool = True, whole: bool = False) -> PreTrainedTokenizerFast:
    """A small BPE tokenizer without a padding or mask token that knows ``WORDS``.

    Args:
        start: whether <s> is put before every text.
        whole: takes a text for one word, with ▁ for spaces (Gemma, Llama 2), not bytes (Llama 3).
    """
    special = ["<unk>", "<s>", "</s>"]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    if whole:
        tokenizer.normalizer = normalizers.Replace(" ", "▁")
        tokenizer.decoder = decoders.Replace("▁", " ")
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
    letters = [] if whole else pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=340, special_tokens=special, initial_alphabet=letters, show_progress=False
    )
    words = [*WORDS, "_"]
    tokenizer.train_from_iterator([*words, *(f" {word}" for word in words)], trainer)
    if start:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", 1)]
        )
    names = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=64, **names)


def save_decoder(
    folder: Path,
    architecture: str = "Llama",
    tokenizer: PreTrainedTokenizerFast | None = None,
    **config: Any,
) -> str:
    """A causal language model, all weights different, with more rows than its tokenizer has tokens.

    Args:
        architecture: one of ``DECODERS`` or ``WITH_LAYER_NORM``.
        config: what else its configuration says.
    """
    tokenizer = tokenizer or decoder_tokenizer()
    torch.manual_seed(0)
    class_name, class_settings = (DECODERS | WITH_LAYER_NORM)[architecture]
    tokens = {"vocab_size": len(tokenizer) + 2, "bos_token_id": 1, "eos_token_id": 2}
    made = getattr(transformers, class_name)(
        **{**DECODER, **class_settings, **tokens, "pad_token_id": None, **config}
    )
    with quiet_transformers():
        model = transformers.AutoModelForCausalLM.from_config(made)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
        model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def text(*word_ids: int) -> str:
    return " ".join(WORDS[word_id % len(WORDS)] for word_id in word_ids)


def save_collection(folder: Path, documents: int = 40, queries: int = 30) -> str:
    """A BEIR folder of different documents; a query repeats two words of its relevant document."""
    (folder / "qrels").mkdir(parents=True)
    content = [[(n + 1) * i + n // 25 * i * i for i in range(1, 9)] for n in range(documents)]
    records = [{"_id": f"d{n}", "text": text(*word_ids)} for n, word_ids in enumerate(content)]
    judged_queries = [
        {"_id": f"q{n}", "text": text(content[n][0], content[n][2])} for n in range(queries)
    ]
    for name, lines in (("corpus", records), ("queries", judged_queries)):
        content = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / f"{name}.jsonl").write_text(content)
    for split, start in (("train", 0), ("dev", queries * 2 // 3)):
        end = queries * 2 // 3 if split == "train" else queries
        judged = "".join(f"q{n}\td{n}\t1\n" for n in range(start, end))
        (folder / "qrels" / f"{split}.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}")
    return str(folder)


def states_of(backbone: Backbone, texts: list[str]) -> torch.Tensor:
    """The token states of all texts, one after another."""
    return torch.cat([states for _, states in backbone.token_states(backbone.windows(texts))])
