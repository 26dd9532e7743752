"""Teacher networks with random weights, as folders."""

from pathlib import Path

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

from lexicept.neural.backbones.loading import quiet_transformers
from support.tiny import bert_sizes


def save_cross_encoder(folder: Path) -> Path:
    """Save a tiny cross-encoder, and a tokenizer of letters."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters]
    vocabulary += [f"##{letter}" for letter in letters]
    (folder / "vocab.txt").write_text("\n".join(vocabulary))
    tokenizer = BertTokenizerFast(vocab=str(folder / "vocab.txt"), model_max_length=64)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    sizes = bert_sizes(len(vocabulary), hidden=16, blocks=1, inner=16, positions=64)
    config = BertConfig(**sizes, num_labels=1, initializer_range=0.5)  # type: ignore[call-arg]
    with quiet_transformers():
        BertForSequenceClassification(config).save_pretrained(folder)
    return folder


def save_dense_encoder(folder: Path, bert: Path) -> Path:
    """Save the same network as an encoder of long vectors compared by dot product."""
    with quiet_transformers():
        model = SentenceTransformer(
            modules=[Transformer(str(bert)), Pooling(16)],
            similarity_fn_name="dot",
            prompts={"query": "find ", "document": "text "},
        )
        model.save(str(folder), create_model_card=False)
    return folder
