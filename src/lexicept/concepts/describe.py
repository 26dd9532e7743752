"""Describing concepts by texts and words with large activations, without given labels.

A sample of the collection is read once: frequencies, words and strongest passages of concepts.
Concepts that the sample misses are looked for in the documents with the largest activations, and
their words are compared with all words read; words of other concepts with the sample.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import scipy.sparse as sp

from lexicept.concepts.activations import FiringReader
from lexicept.concepts.word_labels import SIGNIFICANT, Firings, Name, Namer
from lexicept.encoding.pooled import TokenReader
from lexicept.encoding.words import Tokenizer
from lexicept.explanation.contributions import unnamed
from lexicept.index.atlas import SOURCES, Findings, unique_labels
from lexicept.progress import Progress, silent
from lexicept.segments import Booleans, csr_of_rows, first_of_rows
from lexicept.vectors import Floats, Integers, row_numbers, run_starts, unit_rows

SAMPLE_TOKENS = 100_000
"""Number of tokens of the evenly spread sample of a collection."""

MISSED_TOKENS = 100_000
"""Number of tokens, or a few more, that are read for concepts that the sample missed."""

READ_TOGETHER = 64
"""Documents that are read for missed concepts at once."""

WORDS = 10
"""Number of words of a concept."""

TEXTS = 2
"""Texts that a concept fires in, below which the sample missed it: a name's words are of two."""

ROUNDS = 4
"""Largest number of documents that are read in turn for a missed concept."""

NEAREST = 8
"""Number of neighbours of a concept."""

COSINES = 2**22
"""Number of cosines in memory at once: 16 MB."""

SAME_LATENT = 0.8
"""Smallest cosine of the encoder rows of one latent, before and after further training."""

LITTLE_KNOWN = ("none", "one text", "various words")
"""Sources of labels that an earlier name is better than."""

PRIOR = 500.0
"""Weight of the log-odds' prior in words, distributed as in the background."""


def describe(
    encoder: TokenReader,
    texts: Sequence[str],
    tf: sp.csr_array,
    *,
    language: str = "en",
    explanations: Mapping[int, str] | None = None,
    among: Sequence[int] | None = None,
    sample_tokens: int | None = None,
    progress: Progress = silent,
) -> Findings:
    """Describe the dimensions of an encoder by encoded documents.

    The cost is the encoding of about ``SAMPLE_TOKENS`` tokens, and of about ``MISSED_TOKENS`` more
    for concepts that fire in the collection but not in the sample. Documents with the largest
    activations of many missed concepts come first; with too many concepts, some get no words and no
    example. Raises InputError for no such language.

    Args:
        texts: the documents [N].
        tf: the encoder's term frequencies [N, M].
        explanations: labels of some concepts that came with a pretrained SAE.
        among: the numbers of the documents to read, such as documents with cached states; all by
            default.
        sample_tokens: tokens of the sample, and of what is read for missed concepts;
            ``SAMPLE_TOKENS`` and ``MISSED_TOKENS`` by default.
    """
    missed_tokens = MISSED_TOKENS if sample_tokens is None else sample_tokens
    sample_tokens = SAMPLE_TOKENS if sample_tokens is None else sample_tokens
    tokenizer = Tokenizer(language)
    head = encoder.head
    active = np.zeros(head.size, bool)
    active[tf.indices] = True
    reader = FiringReader(encoder, texts)
    readable = range(len(texts)) if among is None else sorted(among)
    # About four characters to a token: enough texts for the sample, from the whole collection.
    reader.read(spread(texts, readable, 4 * sample_tokens), "naming", progress)
    sampled, sample_words = reader.texts_fired >= TEXTS, len(reader.words)
    in_sample = reader.background.of(sample_words)
    _read_missed(reader, tf, active & ~sampled, readable, missed_tokens, progress)
    words, counts = reader.words, reader.word_counts()
    in_sample = np.pad(in_sample, (0, len(words) - sample_words))
    log_odds = _log_odds(counts, sampled, in_sample, reader.background.of(len(words)))
    if head.terms is None:
        firings = Firings(
            words,
            reader.tallies(),
            reader.text_counts.of(len(words)),
            len(reader.texts_read),
            reader.held_out_words.of(len(words)),
        )
        names = Namer(firings, head.size, tokenizer).names()
        labels, sources, detection = _labels(names, explanations or {})
    else:
        labels, sources = list(head.terms), np.full(head.size, SOURCES.index("vocabulary"))
        detection = np.full(head.size, np.nan)
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
        detection=detection,
        histogram=reader.histogram,
        octave=reader.octave or 0,
        nearest=nearest(head.directions, active, progress),
    )


def spread(texts: Sequence[str], among: Sequence[int], characters: int) -> Sequence[int]:
    """Return evenly spread document numbers of about ``characters``, less than twice, or all."""
    lengths = [len(texts[i]) for i in among[:: max(1, len(among) // 100)]]
    total = float(np.mean(lengths)) * len(among) if lengths else 0.0
    return among[:: max(1, int(total / characters))]


def strongest_documents(
    tf: sp.csr_array, dimensions: Booleans, among: Booleans
) -> tuple[Integers, Integers]:
    """Return the document with the largest frequency of each dimension: dimensions and document
    numbers, both [n]. Dimensions without a document are left out.

    Args:
        tf: term frequencies [N, M].
        dimensions: a mask of dimensions [M].
        among: a mask of documents [N].
    """
    nonzeros = np.flatnonzero(dimensions[tf.indices])
    documents = np.searchsorted(tf.indptr, nonzeros, side="right") - 1
    nonzeros, documents = nonzeros[among[documents]], documents[among[documents]]
    columns = tf.indices[nonzeros]
    order = np.lexsort((documents, -tf.data[nonzeros], columns))
    order = order[run_starts(columns[order])]
    return columns[order], documents[order]


def _read_missed(
    reader: FiringReader,
    tf: sp.csr_array,
    missed: Booleans,
    among: Sequence[int],
    tokens: int,
    progress: Progress,
) -> None:
    """Read unread documents with the largest activations of concepts that the sample missed."""
    left, unread = tokens, np.zeros(tf.shape[0], bool)
    unread[np.asarray(among, np.int64)] = True
    for _ in range(ROUNDS):
        unread[list(reader.texts_read)] = False
        concepts, documents = strongest_documents(tf, missed & (reader.texts_fired < TEXTS), unread)
        # Documents of many missed concepts first: few tokens describe many concepts.
        while left > 0 and documents.size:
            distinct, counts = np.unique(documents, return_counts=True)
            read = distinct[np.argsort(-counts, kind="stable")[:READ_TOGETHER]]
            left -= reader.read(read.tolist(), "", silent, missed)
            progress("examples", tokens - max(left, 0), tokens)
            still = (reader.texts_fired[concepts] < TEXTS) & ~np.isin(documents, read)
            concepts, documents = concepts[still], documents[still]


def _log_odds(
    counts: sp.csr_array, sampled: Booleans, sample_words: Floats, all_words: Floats
) -> sp.csr_array:
    """Compare each concept with the sample or, for missed concepts, with all texts read."""
    blocks = [
        weighted_log_odds(counts[sampled], sample_words),
        weighted_log_odds(counts[~sampled], all_words),
    ]
    order = np.argsort(~sampled, kind="stable").argsort()
    return sp.csr_array(sp.vstack(blocks, format="csr"))[order]


def _labels(
    names: Sequence[Name], explanations: Mapping[int, str]
) -> tuple[list[str], Integers, Floats]:
    """Return distinct labels, of explanations or else names, their sources and detection scores."""
    labels = [name.label for name in names]
    sources = np.array([SOURCES.index(name.source) for name in names], np.int64)
    detection = np.array([name.detection for name in names])
    for concept, text in explanations.items():
        labels[concept], sources[concept] = text, SOURCES.index("explanations")
        detection[concept] = np.nan
    return unique_labels(labels), sources, detection


def weighted_log_odds(counts: sp.csr_array, background: Floats) -> sp.csr_array:
    """Compare the use of words by each concept and in the background, in standard deviations.

    The z-scores of log-odds ratios have an informative Dirichlet prior (Monroe, Colaresi & Quinn
    2008, "Fightin' Words", equations 16, 20 and 22). With counts y of a concept and c of the
    background, the sums n and m of both, and a prior α = ``PRIOR`` · c / m::

        δ = log((y + α) / (n + PRIOR − y − α)) − log((c + α) / (m + PRIOR − c − α))
        z = δ / √(1 / (y + α) + 1 / (c + α))

    Args:
        counts: y [M, W].
        background: c [W], above 0 wherever a concept has a count.

    Returns:
        CSR [M, W] of the positive z alone, largest first for every concept.
    """
    concepts = row_numbers(counts)
    c = background[counts.indices]
    m = background.sum()
    prior = PRIOR * c / m
    y = counts.data + prior
    n = np.bincount(concepts, counts.data, counts.shape[0])[concepts] + PRIOR
    c = c + prior
    with np.errstate(divide="ignore", invalid="ignore"):  # a sample of a single word
        delta = np.log(y / (n - y)) - np.log(c / (m + PRIOR - c))
        z = np.nan_to_num(delta / np.sqrt(1 / y + 1 / c), nan=0.0, posinf=0.0, neginf=0.0)
    order = np.lexsort((counts.indices, -z, concepts))
    order = order[z[order] > 0]
    lengths = np.bincount(concepts[order], minlength=counts.shape[0])
    return csr_of_rows(z[order], counts.indices[order], lengths, counts.shape)


def nearest(vectors: Floats, active: Booleans, progress: Progress = silent) -> sp.csr_array:
    """Return the cosines of active vectors [M, d] with ``NEAREST`` active neighbours each, largest
    first [M, M]."""
    concepts = np.flatnonzero(active)
    count = min(NEAREST, max(0, concepts.size - 1))
    lengths = np.zeros(len(vectors), np.int64)
    lengths[concepts] = count
    unit = unit_rows(vectors[concepts])
    values = np.empty((len(unit), count), np.float32)
    columns = np.empty((len(unit), count), np.int64)
    step = max(1, COSINES // max(1, len(unit)))
    for start in range(0, len(unit) if count else 0, step):
        cosines = unit[start : start + step] @ unit.T
        np.fill_diagonal(cosines[:, start:], -2.0)  # no concept is its own neighbour
        block_rows = np.arange(len(cosines))
        for rank in range(count):  # faster than a sort of all for few
            best = cosines.argmax(axis=1)
            values[start + block_rows, rank] = cosines[block_rows, best]
            columns[start + block_rows, rank] = best
            cosines[block_rows, best] = -2.0
        progress("neighbours", min(start + step, len(unit)), len(unit))
    shape = (len(vectors), len(vectors))
    return csr_of_rows(values.ravel(), concepts[columns.ravel()], lengths, shape)


def names_for(findings: Findings, names: Sequence[str], before: Floats, after: Floats) -> Findings:
    """Return findings with earlier names of latents that did not change, or changed little and
    can't be described.

    A latent without a name that fires on no word more than by chance keeps the earlier name if
    the cosine of the encoder rows ``before`` and ``after`` further training, both [latents, d], is
    at least ``SAME_LATENT``. Without training, where both are the same array, every latent does.
    """
    size = min(len(before), len(after))
    cosines = np.sum(unit_rows(before[:size]) * unit_rows(after[:size]), axis=1)
    described = np.zeros(len(findings.labels), bool)
    log_odds = findings.log_odds
    described[row_numbers(log_odds)[log_odds.data >= SIGNIFICANT]] = True
    renamed = {}
    for latent in np.flatnonzero(cosines >= SAME_LATENT).tolist():
        nameless = SOURCES[findings.sources[latent]] in LITTLE_KNOWN and not described[latent]
        if (before is after or nameless) and names[latent] != unnamed(latent):
            kind, colon, _ = names[latent].replace(" and punctuation:", ":").partition(":")
            renamed[latent] = names[latent], kind if colon and kind in SOURCES else "words"
    return findings.renamed(renamed)
