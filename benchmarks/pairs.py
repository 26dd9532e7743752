"""``python -m benchmarks.pairs INDEX --seed 0``: pairs of words and concepts, drawn to be judged.

Prints how many pairs of each relation the index has, and a table of some drawn at random, as many
of each relation as ``DRAWN`` says. Judgements: ``reproduction/words_and_concepts.md``.
"""

from __future__ import annotations

import argparse
import random
import time
from pathlib import Path

from lexicept.index.reader import IndexReader
from reproduction.pairs import Pair, Pairs, Relation, dimension_pairs

DRAWN: dict[Relation, int] = {"synonymy": 20, "polysemy": 15, "identity": 15}


def draw(pairs: Pairs, seed: int) -> list[Pair]:
    """Draw pairs of each relation without replacement; all where there are too few."""
    selected = random.Random(seed)
    drawn = []
    for relation, count in DRAWN.items():
        having = [pair for pair in pairs if pair.relation == relation]
        drawn += selected.sample(having, min(count, len(having)))
    return drawn


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pairs", description=__doc__)
    parser.add_argument("index", type=Path, help="with words and concepts")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    index = IndexReader.open(arguments.index)
    vectors = index.document_vectors()
    words, concepts = vectors.select("words"), vectors.select("concepts")
    start = time.perf_counter()
    pairs = dimension_pairs(words, concepts)
    seconds = time.perf_counter() - start
    limit = index.settings["concepts"].document_max_active_dims
    counts = ", ".join(f"{count:,} {relation}" for relation, count in pairs.counts.items())
    print(
        f"{len(index):,} documents, {words.weights.shape[1]:,} words, "
        f"{concepts.weights.shape[1]:,} concepts ({limit or 'all'} in a document); "
        f"{pairs.associated:,} pairs pass the tests: {counts} ({seconds:.1f} s)"
    )
    stems, labels = (system.vocabularies[0].terms or () for system in (words, concepts))
    often = sum(pair.lift >= 3 for pair in pairs)
    print(f"{often:,} of them are together at least 3 times as often as by chance\n")
    print(
        "| relation | word | concept | P(l given t) | P(t given l) | documents: t, l, both | lift |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for pair in draw(pairs, arguments.seed):
        print(
            f"| {pair.relation} | {stems[pair.token]} | {labels[pair.latent]} "
            f"| {pair.latent_given_token:.2f} | {pair.token_given_latent:.2f} "
            f"| {pair.token_count}, {pair.latent_count}, {pair.both} | {pair.lift:.1f} |"
        )


if __name__ == "__main__":
    main()
