"""Describing concepts by the texts and words that they fire on, without given labels.

A sample of the collection is read once: how often concepts fire, on which words, and where most.
Concepts that the sample misses are looked for in the documents that have most of them. The words
that these fire on are compared with all words that were read, as they do not fire in the sample;
the words of the other concepts are compared with the sample. A concept is named by the words that
its strongest documents share, preferably words that it fires on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import scipy.sparse as sp

from lexicept.index.atlas import SOURCES, Findings, unique_labels
from lexicept.interpretation.activations import FiringReader, Read
from lexicept.interpretation.document_terms import document_terms
from lexicept.interpretation.neighbours import directions, nearest
from lexicept.interpretation.word_labels import Firing, Namer
from lexicept.models.encoder import Encoder
from lexicept.progress import Progress, silent
from lexicept.segments import Booleans, csr_of_rows, first_of_rows, ranks
from lexicept.vectorizers.words import Tokenizer
from lexicept.vectors import Floats, Integers, row_numbers

SAMPLE_TOKENS = 100_000
"""Number of tokens of the evenly spread sample of a collection."""

MISSED_TOKENS = 100_000
"""Number of tokens, or a few more, that are read for concepts that the sample missed."""

STEP = 64
"""Documents that are read for them at once."""

CHARACTERS = 2**23
"""Number of characters of the evenly spread documents whose terms name concepts."""

WORDS = 10
"""Number of words of a concept."""

ROUNDS = 3
"""Largest number of documents that are read in turn for a concept without an example."""

PRIOR = 500.0
"""Weight of the log-odds' prior in words, distributed as in the background."""


def describe(
    encoder: Encoder,
    texts: Sequence[str],
    tf: sp.csr_array,
    *,
    language: str = "en",
    explanations: Mapping[int, str] | None = None,
    among: Sequence[int] | None = None,
    read: Read | None = None,
    progress: Progress = silent,
) -> Findings:
    """Describe an encoder's dimensions by the documents that it encoded.

    It costs the encoding of about ``SAMPLE_TOKENS`` tokens, and of about ``MISSED_TOKENS`` more for
    concepts that fire in the collection but not in the sample. The documents that are the strongest
    of most of them come first; if they are too many, the rest has no words and no example.
    Names cost reading the terms of about ``CHARACTERS`` of the texts, less than twice as many.

    Args:
        texts: the documents [N].
        tf: what the encoder found in them [N, M].
        language: whose stop words are left out of labels, and whose stems tell words apart.
        explanations: labels of some concepts that came with a pretrained SAE.
        among: the numbers of the documents to read, such as those whose states are known; all by
            default.
        read: reads them through the encoder, see ``reading_on``; on this machine by default.

    Raises:
        InputError: no such language.
    """
    tokenizer = Tokenizer(language)
    head = encoder.head
    active = np.zeros(head.size, bool)
    active[tf.indices] = True
    reader = FiringReader(encoder, texts, read)
    readable = range(len(texts)) if among is None else sorted(among)
    reader.read(sample(texts, readable), "naming", progress)
    sampled, sample_words = reader.has_example.copy(), reader.background
    _read_missed(reader, tf, active, readable, progress)
    counts = reader.word_counts()
    every = _log_odds(counts, sampled, sample_words, reader.background)
    log_odds = first_of_rows(every, WORDS)
    words = reader.words
    if head.terms is None:
        names = _names(reader, texts, tf, counts, every, tokenizer)
        labels, sources = _labels(names, explanations or {})
    else:
        labels, sources = list(head.terms), np.full(head.size, SOURCES.index("vocabulary"))
    examples, spans = reader.examples()
    return Findings(
        labels=labels,
        sources=sources,
        tokens=reader.tokens,
        firings=reader.firings,
        words=words,
        log_odds=log_odds,
        examples=examples,
        spans=spans,
        nearest=nearest(directions(head), active, progress),
    )


def sample(texts: Sequence[str], among: Sequence[int]) -> Sequence[int]:
    """Return evenly spread numbers of ``among`` whose texts have about ``SAMPLE_TOKENS`` tokens
    together, or all if they have fewer."""
    # About four characters to a token: enough texts for the sample, from the whole collection.
    return spread(texts, among, 4 * SAMPLE_TOKENS)


def spread(texts: Sequence[str], among: Sequence[int], characters: int) -> Sequence[int]:
    """Return evenly spread numbers of ``among`` whose texts have about ``characters``, and less
    than twice as many, or all if they have fewer."""
    lengths = [len(texts[i]) for i in among[:: max(1, len(among) // 100)]]
    total = float(np.mean(lengths)) * len(among) if lengths else 0.0
    return among[:: max(1, int(total / characters))]


def strongest_documents(
    tf: sp.csr_array, wanted: Booleans, rank: int, among: Sequence[int]
) -> tuple[Integers, Integers]:
    """Return the document with the largest frequency of each wanted dimension, or another rank.

    Args:
        tf: [N, M].
        wanted: [M].
        rank: 0 for the largest, 1 for the second; a dimension of fewer documents has none.
        among: the numbers of the documents that count.

    Returns:
        Dimensions and their documents, both [n].
    """
    counting = np.zeros(tf.shape[0], bool)
    counting[np.asarray(among, np.int64)] = True
    entries = np.flatnonzero(wanted[tf.indices])
    rows = np.searchsorted(tf.indptr, entries, side="right") - 1
    entries, rows = entries[counting[rows]], rows[counting[rows]]
    columns = tf.indices[entries]
    order = np.lexsort((rows, -tf.data[entries], columns))
    chosen = order[ranks(columns[order]) == rank]
    return columns[chosen], rows[chosen]


def _read_missed(
    reader: FiringReader,
    tf: sp.csr_array,
    active: Booleans,
    among: Sequence[int],
    progress: Progress,
) -> None:
    """Read the strongest documents of active concepts that do not fire in the sample."""
    wanted = active & ~reader.has_example
    left = MISSED_TOKENS
    for rank in range(ROUNDS):
        missed = active & ~reader.has_example
        concepts, documents = strongest_documents(tf, missed, rank, among)
        while left > 0 and documents.size:
            numbers, counts = np.unique(documents, return_counts=True)
            read = numbers[np.argsort(-counts, kind="stable")[:STEP]]
            left -= reader.read(read.tolist(), "", silent, wanted)
            progress("examples", MISSED_TOKENS - max(left, 0), MISSED_TOKENS)
            still = ~(reader.has_example[concepts] | np.isin(documents, read))
            concepts, documents = concepts[still], documents[still]


def _log_odds(
    counts: sp.csr_array, sampled: Booleans, sample_words: Floats, all_words: Floats
) -> sp.csr_array:
    """Compare each concept with the text it was read from: the sample, or all that was read."""
    rows = [
        weighted_log_odds(counts[sampled], sample_words),
        weighted_log_odds(counts[~sampled], all_words),
    ]
    places = np.argsort(~sampled, kind="stable").argsort()
    return sp.csr_array(sp.vstack(rows, format="csr"))[places]


def _names(
    reader: FiringReader,
    texts: Sequence[str],
    tf: sp.csr_array,
    counts: sp.csr_array,
    log_odds: sp.csr_array,
    tokenizer: Tokenizer,
) -> list[str]:
    """Return the name of every concept; an empty text for one that has none."""
    numbers = sorted({*spread(texts, range(len(texts)), CHARACTERS), *reader.numbers})
    terms = document_terms((texts[number] for number in numbers), tokenizer)
    stem_of = np.array([terms.stem(word, tokenizer) for word in reader.words], np.int64)
    to = (reader.word_vectors(), stem_of, len(terms.stems))
    return Namer(tf[numbers], terms, Firing.of(counts, log_odds, reader.words, *to)).labels()


def _labels(names: Sequence[str], explanations: Mapping[int, str]) -> tuple[list[str], Integers]:
    """Return distinct labels, of explanations or else names, and their sources."""
    labels = list(names)
    sources = np.array([SOURCES.index("words" if name else "none") for name in names], np.int64)
    for concept, text in explanations.items():
        labels[concept], sources[concept] = text, SOURCES.index("explanations")
    return unique_labels(labels), sources


def weighted_log_odds(counts: sp.csr_array, background: Floats) -> sp.csr_array:
    """Compare how often each row and its background use a word, in standard deviations.

    Returns the z-scores of log-odds ratios with an informative Dirichlet prior (Monroe, Colaresi &
    Quinn 2008, "Fightin' Words", equations 16, 20 and 22). With counts y of a row and c of all
    text that they were counted in, their sums n and m, and a prior α = ``PRIOR`` · c / m::

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
    return csr_of_rows(z[order], counts.indices[order], lengths, counts.shape)
