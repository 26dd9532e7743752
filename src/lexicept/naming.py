"""Finding out what concepts mean, from the texts that they fire on and without labels.

A sample of the collection is read once: how often concepts fire, on which words, and where most.
Concepts that the sample misses are looked for in the documents that have most of them. What they
fire on is compared with all that was read, for they fire nowhere in the sample; what the others
fire on, with the sample, for they were looked for nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from sentence_transformers import SparseEncoder

from lexicept.atlas import SOURCES, Findings, unique_labels
from lexicept.backbone import word_spans
from lexicept.encoder import parts, token_activations
from lexicept.heads import Head, SAEHead
from lexicept.progress import Progress, silent
from lexicept.sae.states import READ
from lexicept.texts import one_line
from lexicept.vectors import Floats, Integers, row_numbers
from lexicept.words import Tokenizer

Booleans = np.ndarray[Any, np.dtype[np.bool_]]

SAMPLE_TOKENS = 100_000
"""Tokens of a collection that are read, evenly spread."""

EXAMPLES = 8
"""Documents that are kept for a concept."""

WORDS = 10
"""Words that are kept for a concept."""

NEAREST = 8
"""Neighbours that are kept for a concept."""

PRIOR = 500.0
"""Words that the prior of the log-odds is worth, spread as in the background."""

SIGNIFICANT = 1.96
"""The z-score from which a word is no accident, at 95 %."""

WORDS_PER_LABEL = 3

FAINT = 0.25
"""A word's share of the strongest one's z-score below which it is left out of a label."""

LONGEST_WORD = 40
"""Characters of a word."""

STRONGEST = 64
"""Concepts that are counted for a word: heads without k may have thousands."""

ROUNDS = 3
"""Documents that are read, one after the other, for a concept that none had an example of."""

BUFFER = 2**21
"""Entries that are collected before they are reduced: about 100 MB."""

COSINES = 2**24
"""Cosines that exist at once: 64 MB."""


def describe(
    encoder: SparseEncoder,
    texts: Sequence[str],
    frequencies: sp.csr_array,
    *,
    language: str = "en",
    explanations: Mapping[int, str] | None = None,
    progress: Progress = silent,
) -> Findings:
    """An atlas of an encoder's dimensions over the documents that it encoded.

    It costs the encoding of about ``SAMPLE_TOKENS`` tokens, and of one more document for each
    concept that fires in the collection but not in the sample: of the collection at most. So every
    concept that fires has an example.

    Args:
        texts: the documents [N].
        frequencies: what the encoder found in them [N, M].
        language: whose stop words are left out of labels, and whose stems tell words apart.
        explanations: labels of some concepts that came with a pretrained SAE.

    Raises:
        InputError: no such language.
    """
    tokenizer = Tokenizer(language)
    head = parts(encoder).head
    reader = _Reader(encoder, texts)
    reader.read(sample(texts), "naming", progress)
    sampled, sample_words = reader.has_example.copy(), reader.background
    active = np.zeros(head.size, bool)
    active[frequencies.indices] = True
    for rank in range(ROUNDS):
        missed = active & ~reader.has_example
        documents = strongest_documents(frequencies, missed, rank)
        if not documents.size:
            break
        reader.read(documents.tolist(), "examples", progress, active & ~sampled)
    log_odds = _log_odds(reader.word_counts(), sampled, sample_words, reader.background)
    words = reader.words
    labels = list(head.terms or ())
    sources = np.full(head.size, SOURCES.index("words" if head.terms is None else "vocabulary"))
    if head.terms is None:
        labels = [label_of(_ranked(log_odds, n, words), tokenizer) for n in range(head.size)]
        for number, text in (explanations or {}).items():
            labels[number], sources[number] = text, SOURCES.index("explanations")
        labels = unique_labels(labels)
    examples, spans = reader.examples()
    return Findings(
        labels=labels,
        sources=sources,
        tokens=reader.tokens,
        firings=reader.firings,
        words=words,
        log_odds=first_of_rows(log_odds, WORDS),
        examples=examples,
        spans=spans,
        nearest=nearest(directions(head), active, progress),
    )


def sample(texts: Sequence[str]) -> range:
    """Evenly spread texts of about ``SAMPLE_TOKENS`` tokens together, or all where they have
    fewer."""
    lengths = [len(texts[i]) for i in range(0, len(texts), max(1, len(texts) // 100))]
    characters = float(np.mean(lengths)) * len(texts) if lengths else 0.0
    # About four characters to a token: enough texts for the sample, from the whole collection.
    return range(0, len(texts), max(1, int(characters / 4 / SAMPLE_TOKENS)))


def strongest_documents(frequencies: sp.csr_array, wanted: Booleans, rank: int) -> Integers:
    """The documents with the largest frequency of each wanted dimension, or those of another rank.

    Args:
        frequencies: [N, M].
        wanted: [M].
        rank: 0 for the largest, 1 for the second; a dimension of fewer documents has none.

    Returns:
        Different row numbers, in order.
    """
    entries = np.flatnonzero(wanted[frequencies.indices])
    columns = frequencies.indices[entries]
    rows = np.searchsorted(frequencies.indptr, entries, side="right") - 1
    order = np.lexsort((rows, -frequencies.data[entries], columns))
    return np.unique(rows[order[_ranks(columns[order]) == rank]])


def weighted_log_odds(counts: sp.csr_array, background: Floats) -> sp.csr_array:
    """How much more each row uses a word than its background does, in standard deviations.

    The z-scores of log-odds ratios with an informative Dirichlet prior (Monroe, Colaresi & Quinn
    2008, "Fightin' Words", equations 16, 20 and 22). With counts y of a row and c of all text that
    they were counted in, their sums n and m, and a prior α = ``PRIOR`` · c / m::

        δ = log((y + α) / (n + PRIOR − y − α)) − log((c + α) / (m + PRIOR − c − α))
        z = δ / √(1 / (y + α) + 1 / (c + α))

    Args:
        counts: y [M, W].
        background: c [W], above 0 wherever a row has a count.

    Returns:
        CSR [M, W], of the positive z alone, largest first in every row.
    """
    rows = row_numbers(counts)
    c = background[counts.indices]
    m = background.sum()
    prior = PRIOR * c / m
    y = counts.data + prior
    n = np.bincount(rows, counts.data, counts.shape[0])[rows] + PRIOR
    c = c + prior
    with np.errstate(divide="ignore", invalid="ignore"):  # a sample of a single word
        delta = np.log(y / (n - y)) - np.log(c / (m + PRIOR - c))
        z = np.nan_to_num(delta / np.sqrt(1 / y + 1 / c), nan=0.0, posinf=0.0, neginf=0.0)
    order = np.lexsort((counts.indices, -z, rows))
    order = order[z[order] > 0]
    lengths = np.bincount(rows[order], minlength=counts.shape[0])
    return _rows(z[order], counts.indices[order], lengths, counts.shape)


def _log_odds(
    counts: sp.csr_array, sampled: Booleans, sample_words: Floats, all_words: Floats
) -> sp.csr_array:
    """Each concept against the text that it was looked for in: the sample, or all that was read."""
    found = [
        weighted_log_odds(counts[sampled], sample_words),
        weighted_log_odds(counts[~sampled], all_words),
    ]
    places = np.argsort(~sampled, kind="stable").argsort()
    return sp.csr_array(sp.vstack(found, format="csr"))[places]


def label_of(ranked: Sequence[tuple[str, float]], tokenizer: Tokenizer) -> str:
    """A label of up to three words from those that fire a concept, strongest first.

    Words of one stem, or that begin alike, stand there once. Stop words and punctuation only where
    no other word comes near them, and what may be accidents only where there is nothing else.
    Empty without words.
    """
    least = max([SIGNIFICANT, *(z * FAINT for _, z in ranked[:1])])
    stems = [(word, tokenizer(word)) for word, z in ranked if z >= least]
    found = [(word, stem) for word, stem in stems if stem] or [(w, [w]) for w, _ in stems]
    chosen: list[str] = []
    taken: list[str] = []
    for word, stem in found or [(word, [word]) for word, _ in ranked[:1]]:
        if len(chosen) < WORDS_PER_LABEL and not any(_alike(a, b) for a in stem for b in taken):
            chosen.append(word)
            taken += stem
    return " ".join(chosen)


def _alike(one: str, other: str) -> bool:
    short, long = sorted((one, other), key=len)
    return long.startswith(short) and (len(short) > 3 or short == long)


def directions(head: Head) -> torch.Tensor:
    """What each dimension stands for in the space of states [M, d]: a decoder's row, or the head's
    own."""
    return (head.sae.W_dec if isinstance(head, SAEHead) else head.rows).detach().float()


def nearest(rows: torch.Tensor, active: Booleans, progress: Progress = silent) -> sp.csr_array:
    """The cosines of each active row [M, d] with the ``NEAREST`` active ones next to it, largest
    first [M, M]; never all at once."""
    numbers = np.flatnonzero(active)
    count = min(NEAREST, max(0, numbers.size - 1))
    lengths = np.zeros(len(rows), np.int64)
    lengths[numbers] = count
    kept = F.normalize(rows[torch.from_numpy(numbers).to(rows.device)], dim=1)
    values: list[Floats] = []
    columns: list[Integers] = []
    step = max(1, COSINES // max(1, len(kept)))
    for start in range(0, len(kept) if count else 0, step):
        cosines = kept[start : start + step] @ kept.T
        cosines.diagonal(offset=start).fill_(-2.0)  # nobody is their own neighbour
        found = cosines.topk(count, dim=1)
        values.append(found.values.cpu().numpy().ravel())
        columns.append(numbers[found.indices.cpu().numpy().ravel()])
        progress("neighbours", min(start + step, len(kept)), len(kept))
    empty = np.zeros(0, np.int64)
    return _rows(
        np.concatenate([empty.astype(np.float32), *values]),
        np.concatenate([empty, *columns]),
        lengths,
        (len(rows), len(rows)),
    )


class _Reader:
    """Reads texts, and keeps where concepts fire most and the activations on every word.

    What two windows of a text share is read twice.
    """

    def __init__(self, encoder: SparseEncoder, texts: Sequence[str]) -> None:
        self._encoder = encoder
        self._texts = texts
        self._size = size = parts(encoder).head.size
        self.tokens = 0
        """Tokens of the texts that were read for all concepts."""
        self.firings = np.zeros(size, np.int64)
        """How many of them each concept fires on [M]."""
        self.has_example = np.zeros(size, bool)
        self.background: Floats = np.zeros(0)
        """Occurrences of every word."""
        self._words: dict[str, int] = {}
        self._best = _Best(size)
        self._sums = _Sums()
        self._counted = np.zeros(size, np.int64)

    @property
    def words(self) -> list[str]:
        """The words, in the order of their numbers."""
        return list(self._words)

    def read(
        self,
        numbers: Sequence[int],
        stage: str,
        progress: Progress,
        wanted: Booleans | None = None,
    ) -> None:
        """Read texts; of concepts that are not wanted [M], if only some are, nothing is kept."""
        for start in range(0, len(numbers), READ):
            some = numbers[start : start + READ]
            self._read(some, wanted)
            progress(stage, start + len(some), len(numbers))

    def _read(self, numbers: Sequence[int], wanted: Booleans | None) -> None:
        batch = [self._texts[number] for number in numbers]
        windows = parts(self._encoder).backbone.windows(batch)
        spans = [word_spans(window) for window in windows]
        for acts, concepts, tokens in token_activations(self._encoder, windows):
            fired = acts > 0
            if wanted is None:
                self.tokens += len(tokens)
                self.firings += np.bincount(concepts[fired].numpy(), minlength=self._size)
            else:
                fired &= torch.from_numpy(wanted)[concepts]
            token, place = (part.numpy() for part in fired.nonzero(as_tuple=True))
            concept, act = concepts.numpy()[token, place], acts.numpy()[token, place]
            # Where words were read: window, start and end. A word fires as its strongest token.
            places = [(window, *spans[window][place]) for window, place in tokens]
            table = np.array(places, np.int64).reshape(-1, 3)
            read, of_token = np.unique(table, axis=0, return_inverse=True)
            concept, word, act = _maxima(concept, of_token[token], act)
            text = np.array([windows[window].text for window in read[:, 0]], np.int64)
            self._best.add(concept, np.asarray(numbers)[text][word], act, read[word, 1:])
            self.has_example[concept] = True
            spelled = np.array(
                [
                    self._word(batch[row][start:end])
                    for row, (_, start, end) in zip(text, read, strict=True)
                ],
                np.int64,
            )
            self._count(spelled[spelled >= 0])
            self._add(concept, word, act, spelled)

    def _add(self, concept: Integers, word: Integers, act: Floats, spelled: Integers) -> None:
        order = np.lexsort((concept, -act, word))
        order = order[(_ranks(word[order]) < STRONGEST) & (spelled[word[order]] >= 0)]
        concept = concept[order]
        self._counted += np.bincount(concept, minlength=self._size)
        self._sums.add(concept << 32 | spelled[word[order]], act[order])

    def _word(self, text: str) -> int:
        """The number of a word as people write it in lower case; −1 for blanks."""
        word = one_line(text[:LONGEST_WORD]).lower()
        return self._words.setdefault(word, len(self._words)) if word else -1

    def _count(self, words: Integers) -> None:
        counts = np.bincount(words, minlength=len(self._words)).astype(float)
        counts[: self.background.size] += self.background
        self.background = counts

    def word_counts(self) -> sp.csr_array:
        """Activations on every word [M, W], scaled so that a concept's add up to the words that it
        fires on."""
        keys, sums = self._sums.result()
        concept = keys >> 32
        totals = np.bincount(concept, sums, self._size)
        scaled = sums * self._counted[concept] / totals[concept]
        lengths = np.bincount(concept, minlength=self._size)
        return _rows(scaled, keys & 0xFFFFFFFF, lengths, (self._size, len(self._words)))

    def examples(self) -> tuple[sp.csr_array, Integers]:
        """The largest activation of every concept in its best texts [M, N], largest first, and
        their spans."""
        concept, text, act, span = self._best.result()
        lengths = np.bincount(concept, minlength=self._size)
        return _rows(act, text, lengths, (self._size, len(self._texts))), span


class _Best:
    """The ``EXAMPLES`` largest activations of every concept, one of a text."""

    def __init__(self, size: int) -> None:
        self._floor = np.zeros(size, np.float32)
        """What an activation must reach to be among them."""
        self._parts: list[tuple[Integers, Integers, Floats, Integers]] = []
        self._buffered = 0

    def add(self, concept: Integers, text: Integers, act: Floats, span: Integers) -> None:
        """Concepts, texts and activations [n], and words' spans [n, 2]."""
        kept = act >= self._floor[concept]
        self._parts.append((concept[kept], text[kept], act[kept], span[kept]))
        self._buffered += int(kept.sum())
        if self._buffered > BUFFER:
            self.result()

    def result(self) -> tuple[Integers, Integers, Floats, Integers]:
        """The same, sorted by concept and then from the largest activation on."""
        if not self._parts:
            nothing = np.zeros(0, np.int64)
            return nothing, nothing, np.zeros(0), nothing.reshape(0, 2)
        concept, text, act, span = (np.concatenate(p) for p in zip(*self._parts, strict=True))
        order = np.lexsort((span[:, 0], -act, text, concept))
        order = order[_firsts(concept[order], text[order])]
        order = order[np.lexsort((text[order], -act[order], concept[order]))]
        rank = _ranks(concept[order])
        last = order[rank == EXAMPLES - 1]
        self._floor[concept[last]] = act[last]
        order = order[rank < EXAMPLES]
        self._parts = [(concept[order], text[order], act[order], span[order])]
        self._buffered = 0
        return self._parts[0]


class _Sums:
    """Sums of values by key."""

    def __init__(self) -> None:
        self._keys: list[Integers] = [np.zeros(0, np.int64)]
        self._values: list[Floats] = [np.zeros(0)]
        self._buffered = 0

    def add(self, keys: Integers, values: Floats) -> None:
        self._keys.append(keys)
        self._values.append(values)
        self._buffered += keys.size
        if self._buffered > BUFFER:
            self.result()

    def result(self) -> tuple[Integers, Floats]:
        """Different keys, in order, and their sums."""
        keys, inverse = np.unique(np.concatenate(self._keys), return_inverse=True)
        sums = np.zeros(keys.size)
        np.add.at(sums, inverse, np.concatenate(self._values))
        self._keys, self._values, self._buffered = [keys], [sums], 0
        return keys, sums


def _maxima(concept: Integers, word: Integers, act: Floats) -> tuple[Integers, Integers, Floats]:
    """The largest activation of every concept on every word."""
    order = np.lexsort((-act, word, concept))
    order = order[_firsts(concept[order], word[order])]
    return concept[order], word[order], act[order]


def _firsts(*groups: Integers) -> Booleans:
    """Whether an entry is the first of its group, where groups stand together."""
    new = np.ones(groups[0].size, bool)
    new[1:] = np.any([np.diff(group) != 0 for group in groups], axis=0)
    return new


def _ranks(groups: Integers) -> Integers:
    """The place of every entry in its group, from 0 on; the entries of a group stand together."""
    starts = np.flatnonzero(_firsts(groups))
    return np.arange(groups.size) - np.repeat(starts, np.diff(starts, append=groups.size))


def _rows(
    data: Floats, columns: Integers, lengths: Integers, shape: tuple[int, int]
) -> sp.csr_array:
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    return sp.csr_array((data, columns, indptr), shape=shape)


def first_of_rows(matrix: sp.csr_array, count: int) -> sp.csr_array:
    """The first stored entries of every row."""
    lengths = np.diff(matrix.indptr)
    kept = np.arange(matrix.nnz) - np.repeat(matrix.indptr[:-1], lengths) < count
    lengths = np.minimum(lengths, count)
    return _rows(matrix.data[kept], matrix.indices[kept], lengths, matrix.shape)


def _ranked(matrix: sp.csr_array, row: int, words: Sequence[str]) -> list[tuple[str, float]]:
    """A row's words and their z-scores, largest first."""
    part = slice(int(matrix.indptr[row]), int(matrix.indptr[row + 1]))
    return [
        (words[word], z)
        for word, z in zip(matrix.indices[part].tolist(), matrix.data[part].tolist(), strict=True)
    ]
