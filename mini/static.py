"""``python -m mini.static DATA [DATA ...] --out FILE``: the package's static encoder of queries.

DATA are BEIR folders or names of data sets. The student of MiniLM is trained on the states of
MiniLM's last block for pieces of documents and of the queries of splits called train: one to four
sentences, runs of words, sentences without some of their words; and, because every token has an
embedding, groups of words from the tokenizer.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lexicept.corpora import read_documents, read_queries
from lexicept.models.half_bert import autocast, has_bfloat16
from lexicept.progress import ProgressLine
from lexicept.training.static import Batch, StaticModel, train_static, write_static
from lexicept.vectorizers.concepts import ConceptVectorizer

BLOCKS = 3
"""Blocks of the student."""

TOKENS = 32768
"""Tokens of a batch, padding included."""

SHARES = {6: 0.08, 14: 0.18, 22: 0.2, 30: 0.18, 46: 0.14, 62: 0.1, 126: 0.08, 254: 0.04}
"""Share of the batches with texts of up to so many tokens."""

LONGEST = max(SHARES)

GROUPS, SHORTENED, MOST_SHORTENED = 0.1, 0.15, 46
"""Share of batches of groups of words; of batches of sentences without some of their words, among
those of texts of at most so many tokens."""

SPANS = 1_000_000
"""Runs of words to draw from."""

SENTENCE_END = re.compile(r"(?<=[.!?。！？])\s+|\n+")


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m mini.static", description=__doc__)
    parser.add_argument("data", nargs="+", help="BEIR folders, or names of data sets.")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=4700)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    backbone = ConceptVectorizer.load("lexicept-mini").encoder.backbone
    texts = [text for data in arguments.data for text in texts_of(data)]
    pieces = Pieces(texts, backbone.tokenizer)
    batches = (taught(backbone, *pieces.draw()) for _ in range(arguments.steps))
    sample = torch.cat([taught(backbone, *pieces.draw()).states for _ in range(6)])
    model = StaticModel(backbone, BLOCKS)
    with ProgressLine() as progress:
        train_static(model, batches, arguments.steps, sample, learning_rate=1e-3, progress=progress)
    write_static(arguments.out, model.stored())


def texts_of(data: str) -> Iterator[list[str]]:
    """Yield title and sentences of each document, and each training query, if any."""
    for document in read_documents(data):
        units = [document.title, *SENTENCE_END.split(document.text)]
        yield [unit.strip() for unit in units if unit.strip()]
    if Path(data, "qrels", "train.tsv").exists():
        yield from ([query.text] for query in read_queries(data, "train"))


class Pieces:
    """Random pieces of texts, each a list of sentences, as tokens."""

    def __init__(self, texts: list[list[str]], tokenizer: Any) -> None:
        self._random = np.random.default_rng(0)
        vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
        inner = [token.startswith("##") for token, _ in vocabulary]
        words = [i for t, i in vocabulary if t.isascii() and t.isalpha() and len(t) > 2]
        parts = [i for t, i in vocabulary if t.startswith("##") and t[2:].isalpha()]
        self._inner, self._words, self._parts = map(np.array, (inner, words, parts))
        units = [unit for text in texts for unit in text]
        tokens = tokenizer(units, add_special_tokens=False, verbose=False)["input_ids"]
        lengths = np.array([*map(len, tokens)])
        self._ids = np.concatenate(tokens).astype(np.int64)
        starts, sizes = self._candidates(lengths, np.repeat(range(len(texts)), [*map(len, texts)]))
        lists = np.searchsorted([*SHARES], sizes)
        self._lists = [(starts[lists == n], sizes[lists == n]) for n in range(len(SHARES))]

    def _candidates(self, lengths: Any, texts: Any) -> tuple[Any, Any]:
        """Return starts and lengths of pieces, given the length and the text of each sentence."""
        ends = np.cumsum(lengths)
        starts, pieces = ends - lengths, []
        some = np.flatnonzero(lengths >= 2)
        for count in range(1, 5):
            first = some[some + count <= len(lengths)]
            last = first + count - 1
            whole = (texts[first] == texts[last]) & (ends[last] - starts[first] <= LONGEST)
            if count > 2:
                whole &= self._random.random(len(first)) < 0.4
            pieces.append((starts[first[whole]], ends[last[whole]]))
        text_ends = ends[np.searchsorted(texts, texts, side="right") - 1]
        of = self._random.choice(some, SPANS)
        start = starts[of] + (self._random.random(SPANS) * lengths[of]).astype(np.int64)
        length = np.exp(self._random.uniform(np.log(2), np.log(LONGEST), SPANS)).astype(np.int64)
        end = np.minimum(start + length, text_ends[of])
        pieces.append((start[end - start >= 2], end[end - start >= 2]))
        first, after = map(np.concatenate, zip(*pieces, strict=True))
        return first, after - first

    def draw(self) -> tuple[Any, Any]:
        """Return the ids and the mask of the pieces of a batch [texts, length]."""
        random = self._random
        if random.random() < GROUPS:
            ids = random.choice(self._words, (TOKENS // 8, 6))
            if random.random() < 0.5:
                ids[:, 1] = random.choice(self._parts, len(ids))
            return ids, np.arange(6) < random.integers(2, 7, (len(ids), 1))
        number = random.choice(len(SHARES), p=[*SHARES.values()])
        starts, lengths = self._lists[number]
        length = [*SHARES][number]
        pieces = random.integers(len(starts), size=TOKENS // (length + 2))
        places = np.arange(length)
        mask = places < lengths[pieces, None]
        ids = self._ids[np.minimum(starts[pieces, None] + places, len(self._ids) - 1)]
        if length <= MOST_SHORTENED and random.random() < SHORTENED:
            # All tokens of a word stay or go together, and one token stays at least.
            word = np.cumsum(~self._inner[ids], axis=1)
            stays = random.random((len(ids), length + 1)) < random.uniform(0.3, 0.9, (len(ids), 1))
            kept = np.take_along_axis(stays, word, axis=1) & mask
            kept[:, 0] |= ~kept.any(axis=1)
            order = np.argsort(~kept, axis=1, kind="stable")
            ids, mask = (np.take_along_axis(array, order, axis=1) for array in (ids, kept))
        return ids, mask


def taught(backbone: Any, ids: Any, mask: Any) -> Batch:
    """Return pieces between special tokens, with the backbone's states."""
    device, tokenizer = backbone.model.device, backbone.tokenizer
    rows, lengths = np.arange(len(ids)), mask.sum(axis=1)
    framed = np.full((len(ids), ids.shape[1] + 2), tokenizer.pad_token_id)
    framed[:, 1:-1][mask] = ids[mask]
    framed[:, 0], framed[rows, lengths + 1] = tokenizer.cls_token_id, tokenizer.sep_token_id
    attended = np.arange(framed.shape[1]) < lengths[:, None] + 2
    counted = np.pad(mask, ((0, 0), (1, 1)))
    names = ("input_ids", "attention_mask", "token_mask")
    arrays = (framed, attended.astype(np.int64), counted)
    windows: dict[str, Tensor] = {
        name: torch.from_numpy(array).to(device) for name, array in zip(names, arrays, strict=True)
    }
    with torch.no_grad(), autocast(device, has_bfloat16(device)):
        states = backbone.states(windows["input_ids"], windows["attention_mask"])
    return Batch(windows, states[windows["token_mask"]])


if __name__ == "__main__":
    main()
