"""``python -m mini.static DATA [DATA ...] --out FILE``: the package's static encoder of queries.

DATA are BEIR folders or data set names. The encoder is trained on the states of MiniLM's last block
for texts like queries: the queries of splits called train; titles, sentences and runs of words of
documents; and, because a table needs a row for every token, groups of words from the tokenizer.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import torch

from lexicept.corpora import read_documents, read_queries
from lexicept.corpora.pseudo_queries import generate
from lexicept.models.half_bert import has_bfloat16
from lexicept.progress import ProgressBars
from lexicept.training.static import StaticModel, TokenTexts, add_residuals, train_static
from lexicept.vectorizers.concepts import ConceptVectorizer

SEED = 0


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m mini.static", description=__doc__)
    parser.add_argument("data", nargs="+", help="BEIR folders, or names of data sets.")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--documents", type=int, default=110_000, help="Texts of documents.")
    parser.add_argument("--queries", type=int, default=45_000)
    parser.add_argument("--passes", type=int, default=3)
    arguments = parser.parse_args()
    encoder = ConceptVectorizer.load("lexicept-mini").encoder
    if has_bfloat16(torch.device("cpu")):
        encoder.backbone.precision = "bfloat16"
    random = np.random.default_rng(SEED)
    texts = sample([t for d in arguments.data for t in of_documents(d)], arguments.documents)
    texts += sample([t for d in arguments.data for t in of_queries(d)], arguments.queries)
    texts += list(groups_of_words(list(encoder.backbone.tokenizer.get_vocab()), random))
    order = random.permutation(len(texts)).tolist()
    with ProgressBars() as progress:
        states = TokenTexts.read(encoder, [texts[number] for number in order], progress)
        model = StaticModel(len(encoder.backbone.tokenizer), encoder.head.d_in)
        add_residuals(model, [states])
        train_static(model, states, arguments.passes, progress)
    model.save(arguments.out, most=63)


def of_documents(data: str) -> Iterator[str]:
    """Yield texts like queries from the documents of a folder."""
    return (text for _, text in generate(read_documents(data), per_document=8))


def of_queries(data: str) -> Iterator[str]:
    """Yield the training queries of a folder, if any."""
    if Path(data, "qrels", "train.tsv").exists():
        yield from (query.text for query in read_queries(data, "train"))


def sample(texts: list[str], most: int) -> list[str]:
    """Return distinct texts in random order."""
    distinct = list(dict.fromkeys(texts))
    order = np.random.default_rng(SEED).permutation(len(distinct))
    return [distinct[number] for number in islice(order.tolist(), most)]


def groups_of_words(tokens: list[str], random: np.random.Generator) -> Iterator[str]:
    """Yield groups of two to seven words, each word three times; and each part of a word twice,
    behind a word."""
    words = sorted(t for t in tokens if t.isascii() and t.isalpha() and len(t) > 2)
    parts = sorted(t[2:] for t in tokens if t.startswith("##") and t[2:].isalpha())
    for _ in range(3):
        order = random.permutation(len(words)).tolist()
        while order:
            size = random.integers(2, 8)
            yield " ".join(words[number] for number in order[:size])
            order = order[size:]
    for part in parts * 2:
        first, second, third = (words[number] for number in random.integers(len(words), size=3))
        yield f"{first} {second}{part} {third}"


if __name__ == "__main__":
    main()
