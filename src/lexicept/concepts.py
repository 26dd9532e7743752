"""Concepts: texts as activations of latents, and the words that name a latent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from sentence_transformers import SparseEncoder

from lexicept.backbone import DEFAULT_BACKBONE, Backbone, Window
from lexicept.encoder import (
    encode_activations,
    load_encoder,
    make_encoder,
    parts,
    token_activations,
)
from lexicept.errors import InputError
from lexicept.heads import Head, SAEHead
from lexicept.progress import Progress, silent
from lexicept.sae.pretrained import find_pretrained_sae
from lexicept.sae.settings import SAESettings
from lexicept.sae.states import READ
from lexicept.sae.training import train_sae
from lexicept.storage import TextStore
from lexicept.words import STOP_WORDS

NAMING_TOKENS = 100_000
"""Tokens of a corpus that latents are named from."""

WORDS_PER_NAME = 4


@dataclass(frozen=True)
class BackboneSettings:
    """Whose states the concepts are learned from."""

    name: str = DEFAULT_BACKBONE
    """A hub name or a folder."""
    layer: int | None = None
    """Blocks to run, all by default."""


class ConceptVectorizer:
    """Texts to the pooled activation of every dimension of a head.

    Args:
        encoder: a ``SparseEncoder`` of backbone and head.
        terms: a name per dimension; the head's own or its number by default.
    """

    name = "concepts"
    grows = False

    def __init__(self, encoder: SparseEncoder, terms: Sequence[str] | None = None) -> None:
        self.encoder = encoder
        if terms is None:
            terms = self.head.terms or [f"#{latent}" for latent in range(self.size)]
        self._terms = list(terms)

    @classmethod
    def train(
        cls,
        texts: Sequence[str],
        backbone: BackboneSettings,
        sae: SAESettings,
        checkpoints: Path | None = None,
        progress: Progress = silent,
    ) -> ConceptVectorizer:
        """Learn concepts from texts, without labels; see ``sae.training.train_sae``."""
        base = Backbone.from_pretrained(backbone.name, backbone.layer)
        return cls(make_encoder(base, SAEHead(train_sae(base, texts, sae, checkpoints, progress))))

    @classmethod
    def pretrained(
        cls, source: str, backbone: BackboneSettings, width: int | None = None
    ) -> ConceptVectorizer:
        """The latents of a pretrained SAE; see ``sae.pretrained.find_pretrained_sae``.

        Args:
            backbone: its layer is the SAE's own by default.

        Raises:
            InputError: no such SAE or backbone, or two that do not fit.
        """
        found = find_pretrained_sae(source, backbone.layer, width)
        if found.layer is None and found.layout.hook is None:
            raise InputError(f"{source}: after how many blocks it reads is unknown: name the layer")
        base = Backbone.from_pretrained(backbone.name, found.layer)
        return cls(make_encoder(base, SAEHead(found.load(backbone=base))))

    @property
    def head(self) -> Head:
        """The encoder's head."""
        return parts(self.encoder).head

    @property
    def size(self) -> int:
        """Number of dimensions."""
        return self.head.size

    @property
    def terms(self) -> Sequence[str]:
        """The name of every dimension."""
        return self._terms

    def documents(self, texts: Sequence[str]) -> sp.csr_array:
        """The pooled activation of every dimension in every document [n, size]."""
        return encode_activations(self.encoder, texts, "document")

    def queries(self, texts: Sequence[str]) -> sp.csr_array:
        """The same for queries."""
        return encode_activations(self.encoder, texts, "query")

    def learn_terms(self, texts: Sequence[str], progress: Progress = silent) -> None:
        """Name each latent by the words of the texts that fire it most, in a sample of them.

        Dimensions that have terms of their own keep them.
        """
        if self.head.terms is not None:
            return
        totals = word_activations(self.encoder, texts, progress)
        self._terms = name_latents(totals, self.size)

    def explain(self, explanations: Mapping[int, str]) -> None:
        """Name latents by what is said of them. The others keep the words that fire them."""
        for latent, explanation in explanations.items():
            self._terms[latent] = f"{explanation} #{latent}"

    def save(self, folder: Path) -> None:
        """Write the encoder, ``model``, and the names into a folder."""
        self.encoder.save(str(folder / "model"), create_model_card=False)
        TextStore.write(folder / "terms", self._terms)

    @classmethod
    def load(cls, folder: Path) -> ConceptVectorizer:
        """Read what ``save`` wrote, or a folder that an encoder alone was saved to.

        Raises:
            InputError: neither.
        """
        if (folder / "modules.json").exists():
            return cls(load_encoder(folder))
        encoder = load_encoder(folder / "model")
        return cls(encoder, TextStore(folder / "terms"))


def word_activations(
    encoder: SparseEncoder, texts: Sequence[str], progress: Progress = silent
) -> dict[int, dict[str, float]]:
    """Latent → word → summed activation on that word's tokens, over evenly spread texts."""
    lengths = [len(texts[i]) for i in range(0, len(texts), max(1, len(texts) // 100))]
    characters = float(np.mean(lengths)) * len(texts) if lengths else 0.0
    # About four characters to a token: enough texts for the sample, from the whole collection.
    step = max(1, int(characters / 4 / NAMING_TOKENS))
    sample = range(0, len(texts), step)
    done = 0
    words: dict[str, int] = {}
    keys: list[np.ndarray] = []
    values: list[np.ndarray] = []
    for start in range(0, len(sample), READ):
        batch = [texts[i] for i in sample[start : start + READ]]
        windows = parts(encoder).backbone.windows(batch)
        for acts, latents, tokens in token_activations(encoder, windows):
            spelled = [word_of(batch, windows[window], place) for window, place in tokens]
            number = np.array([words.setdefault(word, len(words)) for word in spelled])
            pair = latents.numpy().astype(np.int64) << 32 | number[:, None]
            fired = acts.numpy() > 0
            keys.append(pair[fired])
            values.append(acts.numpy()[fired])
        done += len(batch)
        progress("naming", done, len(sample))
    if not keys:
        return {}
    unique, inverse = np.unique(np.concatenate(keys), return_inverse=True)
    sums = np.bincount(inverse, np.concatenate(values))
    spelling = list(words)
    totals: dict[int, dict[str, float]] = {}
    for key, total in zip(unique.tolist(), sums.tolist(), strict=True):
        totals.setdefault(key >> 32, {})[spelling[key & 0xFFFFFFFF]] = total
    return totals


def word_of(texts: Sequence[str], window: Window, place: int) -> str:
    """The lower-case word that a token is a piece of."""
    word = window.words[place]
    start, end = window.offsets[place]
    first = last = place
    while first > 0 and window.words[first - 1] == word:
        first -= 1
    while last + 1 < len(window.words) and window.words[last + 1] == word:
        last += 1
    if word is not None:
        start, end = window.offsets[first][0], window.offsets[last][1]
    return texts[window.text][start:end].strip().lower()


def name_latents(totals: dict[int, dict[str, float]], size: int) -> list[str]:
    """The strongest words of every latent, and its number. Stop words only if all of them are."""
    stop = frozenset(STOP_WORDS["en"])
    names = []
    for latent in range(size):
        words = totals.get(latent, {})
        ranked = sorted(words, key=lambda word: (-words[word], word))
        telling = [w for w in ranked if any(map(str.isalnum, w)) and w not in stop] or ranked
        names.append(" ".join([*telling[:WORDS_PER_NAME], f"#{latent}"]))
    return names
