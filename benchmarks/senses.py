"""``python -m benchmarks.senses INDEX WORD...``: the senses of words, by the concepts on them.

Prints the groups of each word's occurrences, with the concepts that tell a group from the others
and its most typical contexts, from different documents.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from lexicept.analysis.senses import Occurrence, Sense, find_senses
from lexicept.corpora import Document, read_documents
from lexicept.index.reader import IndexReader
from lexicept.interpretation.occurrences import word_occurrences
from lexicept.sanitize import safe
from lexicept.vectorizers.concepts import ConceptVectorizer

AROUND = 45
"""Number of characters shown on either side of a word."""

CONTEXTS, CONCEPTS = 3, 3


def context(occurrence: Occurrence, documents: Mapping[str, Document]) -> str:
    """Return the word in bold and its context."""
    content = documents[occurrence.document_id].content
    before = content[max(0, occurrence.start - AROUND) : occurrence.start]
    after = content[occurrence.end : occurrence.end + AROUND]
    word = content[occurrence.start : occurrence.end]
    return safe(" ".join(f"…{before}**{word}**{after}…".split()))


def print_sense(sense: Sense, terms: list[str], documents: Mapping[str, Document]) -> None:
    """Print a sense as an item of a Markdown list."""
    concepts = ", ".join(
        f"{terms[part.latent]} ({part.share:.0%} against {part.elsewhere:.0%})"
        for part in sense.latents[:CONCEPTS]
    )
    print(f"- {len(sense.occurrences)} (silhouette {sense.silhouette:.2f}): {concepts}")
    typical = {o.document_id: o for o in reversed(sense.occurrences)}
    for occurrence in list(reversed(typical.values()))[:CONTEXTS]:
        print(f"  - {context(occurrence, documents)}")


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.senses", description=__doc__)
    parser.add_argument("index", type=Path, help="with concepts")
    parser.add_argument("words", nargs="+", metavar="WORD")
    parser.add_argument("--corpus", help="where to look for the words; the index by default")
    parser.add_argument("--num-senses", type=int, default=4)
    arguments = parser.parse_args()
    index = IndexReader.open(arguments.index)
    source = read_documents(arguments.corpus) if arguments.corpus else index.documents()
    documents = {document.id: document for document in source}
    vectorizer = cast(ConceptVectorizer, index.vectorizer("concepts"))
    for word in arguments.words:
        occurrences = list(word_occurrences(vectorizer.encoder, documents.values(), word))
        print(f"\n**{word}**, {len(occurrences)} occurrences\n")
        for sense in find_senses(occurrences, arguments.num_senses):
            print_sense(sense, list(vectorizer.terms), documents)


if __name__ == "__main__":
    main()
