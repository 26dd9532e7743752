"""The section on related words and concepts."""

from __future__ import annotations

import numpy as np

from lexicept.analysis.pairs import MIN_OCCURRENCES, RELATIONS, Pairs, Relation, dimension_pairs
from lexicept.reports.material import Subject
from lexicept.reports.page import Block, Column, Note, Number, Numbers, Section, Table, text_column
from lexicept.reports.wording import count, one, two

DOCUMENTS = 20_000
"""Most documents in which pairs are counted."""

SHOWN = 12
"""Pairs shown of each relation."""

MEANINGS: dict[Relation, tuple[str, str]] = {
    "synonymy": (
        "the concept covers more than the word",
        "Synonymy: the concept is in most documents with the word, the word in few with the "
        "concept, which then has other words too.",
    ),
    "polysemy": (
        "one of several concepts of the word",
        "Polysemy: the word is in most documents with the concept, the concept in few with the "
        "word, which then has other meanings or uses too.",
    ),
    "identity": (
        "word and concept are in the same documents",
        "Identity: each is in most documents with the other.",
    ),
}


def related(subject: Subject) -> Section:
    """Write the section with pairs of a word and a concept, some of each relation."""
    rows = subject.sample(DOCUMENTS)
    pairs = dimension_pairs(subject.vectors("words", rows), subject.vectors("concepts", rows))
    blocks: list[Block] = []
    if rows.size < len(subject):
        text = f"Counted in {rows.size:,} of {len(subject):,} documents, drawn at random."
        blocks.append(Note(text))
    blocks.append(
        Numbers(
            [
                Number(name.capitalize(), count(total), f"pairs: {MEANINGS[name][0]}")
                for name, total in pairs.counts.items()
            ]
        )
    )
    random = np.random.default_rng(0)
    for number, name in enumerate(RELATIONS):
        chosen = np.flatnonzero(pairs.relation == number)
        chosen = np.sort(random.choice(chosen, min(SHOWN, chosen.size), replace=False))
        if chosen.size:
            blocks.append(_table(subject, pairs, name, chosen.tolist()))
    return Section(
        "pairs",
        "Words and concepts",
        "Relations between concepts and words, counted in documents: the probability that a "
        "document with the word has the concept, P(concept | word), and the reverse, "
        f"P(word | concept). Both are in at least {MIN_OCCURRENCES} documents, and occur together "
        "more often than by chance (binomial tests, 95 %, without correction for their number). "
        "The examples are drawn at random, mistakes included. Lift is the ratio of joint "
        "occurrences to those expected by chance: near 1 a pair means little.",
        blocks,
    )


def _table(subject: Subject, pairs: Pairs, name: Relation, chosen: list[int]) -> Table:
    words, concepts = subject.terms("words"), subject.terms("concepts")
    rows = []
    for pair in sorted((pairs[place] for place in chosen), key=lambda pair: -pair.lift):
        counts = (pair.token_count, pair.latent_count, pair.both)
        given = (pair.latent_given_token, pair.token_given_latent)
        rows.append((words[pair.token], concepts[pair.latent], pair.lift, *counts, *given))
    return Table(
        MEANINGS[name][1],
        [
            text_column("Word"),
            text_column("Concept"),
            Column("Lift", one),
            Column("With the word", count),
            Column("With the concept", count),
            Column("With both", count),
            Column("P(concept | word)", two),
            Column("P(word | concept)", two),
        ],
        rows,
        "Documents with each. Words are stems.",
    )
