"""A tiny encoder made on the spot, of random weights, and a collection that fits its words."""

import json
from itertools import product
from pathlib import Path

import torch
from transformers import BertConfig, BertModel, BertTokenizerFast

from lexicept.backbone import Backbone, quiet_transformers

SYLLABLES = ("ba", "de", "ki", "lo", "mu")
WORDS = [first + second for first, second in product(SYLLABLES, SYLLABLES)]


def save_bert(folder: Path, dropout: float = 0.1) -> str:
    """A BERT of 2 blocks and 32 dimensions that knows ``WORDS`` and letters, as a folder."""
    torch.manual_seed(0)
    letters = [chr(c) for c in range(ord("a"), ord("z") + 1)]
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *letters]
    names += [f"##{letter}" for letter in letters]
    vocabulary = {name: number for number, name in enumerate(names)}
    config = BertConfig(
        vocab_size=len(names),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        initializer_range=0.3,
    )
    with quiet_transformers():
        BertModel(config).save_pretrained(folder)
    BertTokenizerFast(vocab=vocabulary, model_max_length=64).save_pretrained(folder)
    return str(folder)


def tiny_backbone(folder: Path, dropout: float = 0.1) -> Backbone:
    return Backbone.from_pretrained(save_bert(folder, dropout))


def text(*numbers: int) -> str:
    return " ".join(WORDS[number % len(WORDS)] for number in numbers)


def save_collection(folder: Path, documents: int = 40, queries: int = 30) -> str:
    """A BEIR folder of different documents; a query repeats two words of its relevant one."""
    (folder / "qrels").mkdir(parents=True)
    content = [[(n + 1) * i + n // 25 * i * i for i in range(1, 9)] for n in range(documents)]
    rows = [{"_id": f"d{n}", "text": text(*numbers)} for n, numbers in enumerate(content)]
    asked = [{"_id": f"q{n}", "text": text(content[n][0], content[n][2])} for n in range(queries)]
    for name, lines in (("corpus", rows), ("queries", asked)):
        content = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / f"{name}.jsonl").write_text(content)
    for split, start in (("train", 0), ("dev", queries * 2 // 3)):
        end = queries * 2 // 3 if split == "train" else queries
        judged = "".join(f"q{n}\td{n}\t1\n" for n in range(start, end))
        (folder / "qrels" / f"{split}.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}")
    return str(folder)
