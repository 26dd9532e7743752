"""``python -m benchmarks.overlap DATA/xquad [INDEX]``: what translations of a document share.

SAE-SPLADE's table 7 on XQuAD's paragraphs: active dimensions of a document, and how many of them
are active in all of its languages. Words are each language's own stems over one vocabulary, so that
they share what is spelled alike: numbers mostly, and names. With an index, its concepts too. Titles
are left out: XQuAD has not translated them.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks.common import Table
from lexicept.corpora import Document, read_documents
from lexicept.encoding.words import BIGRAM_LANGUAGES, STEMMERS, WordVectorizer
from lexicept.index.reader import IndexReader
from lexicept.vectors import SparseVectors, Vocabulary
from reproduction.overlap import Overlap, overlap


def word_vectors(collections: dict[str, Sequence[Document]]) -> list[SparseVectors]:
    """Count terms; a language without a stemmer is read as English."""
    vectors = []
    terms: list[str] = []
    for language, documents in collections.items():
        known = language in STEMMERS or language in BIGRAM_LANGUAGES
        vectorizer = WordVectorizer(language if known else "en", terms)
        counts = vectorizer.documents([document.text for document in documents])
        terms = vectorizer.terms
        vectors.append(vectors_of(documents, counts))
    return vectors


def vectors_of(documents: Sequence[Document], weights: object) -> SparseVectors:
    """Return one language's documents as sparse vectors [N, V]."""
    size = weights.shape[1]  # type: ignore[attr-defined]
    return SparseVectors(weights, [document.id for document in documents], [Vocabulary("", size)])


def row(name: str, size: int, shared: Overlap) -> list[str]:
    """Return a row of table 7."""
    mean, std = shared.shared.mean(), shared.shared.std()
    mean_length, std_length = shared.lengths.mean(), shared.lengths.std()
    length = f"{mean_length:.0f} ± {std_length:.0f}"
    share = mean / mean_length if mean_length else 0.0
    return [name, f"{size:,}", length, f"{mean:.1f} ± {std:.1f}", f"{share:.1%}"]


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.overlap", description=__doc__)
    parser.add_argument("data", type=Path, help="a folder with a BEIR folder for each language")
    parser.add_argument("index", type=Path, nargs="?", help="whose concepts to look at")
    parser.add_argument("--documents", type=int, help="the first ones; all by default")
    arguments = parser.parse_args()
    languages = sorted(folder.name for folder in arguments.data.iterdir() if folder.is_dir())
    collections: dict[str, Sequence[Document]] = {
        language: list(read_documents(arguments.data / language))[: arguments.documents]
        for language in languages
    }
    words = word_vectors(collections)
    rows = [row("words", words[-1].weights.shape[1], overlap(words))]
    if arguments.index is not None:
        vectorizer = IndexReader.open(arguments.index).vectorizer("concepts")
        concepts = [
            vectors_of(some, vectorizer.documents([document.text for document in some]))
            for some in collections.values()
        ]
        rows.append(row("concepts", vectorizer.size, overlap(concepts)))
    print(f"{len(words[0]):,} documents in {len(languages)} languages: {', '.join(languages)}\n")
    columns = ["", "dimensions", "active in a document", "in all languages", "of the active"]
    print(Table("overlap", columns, rows).markdown())


if __name__ == "__main__":
    main()
