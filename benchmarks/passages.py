"""Effectiveness by the most words of a passage, on long documents (``python -m benchmarks.passages
DATA``): articles of SQuAD's training paragraphs, ten in each, and long answers of MedQuAD."""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import lexicept
from benchmarks.common import Table
from lexicept.corpora import Qrel
from lexicept.corpora.passages import num_words, pieces
from lexicept.corpora.records import Document, Passage
from lexicept.evaluation.effectiveness import evaluate_queries
from lexicept.queries.syntax import ParsedQuery

LENGTHS = (50, 100, 150, 200, 300, 400, 800, 10**9)
"""Most words of a passage; the last one cuts nothing."""

DEFAULT = 200


class Collection(NamedTuple):
    """Long texts, and queries for some of them."""

    name: str
    texts: dict[str, str]
    queries: dict[str, str]
    qrels: dict[str, dict[str, int]]


def read(path: Path) -> tuple[list[Any], dict[str, str], Iterator[tuple[str, str]]]:
    """Return the documents, the queries and the pairs of both that are relevant."""
    documents = [json.loads(line) for line in (path / "corpus.jsonl").open()]
    queries = {
        query["_id"]: query["text"] for query in map(json.loads, (path / "queries.jsonl").open())
    }
    judged = (line.split("\t") for line in (path / "qrels" / "train.tsv").open())
    next(judged)
    return documents, queries, ((query, document) for query, document, _ in judged)


def articles(data: Path, count: int, paragraphs: int, every: int) -> Collection:
    """Return the first paragraphs of some articles, joined by ten, and a part of the questions.

    Args:
        every: 1 for all questions, 2 for every second one, ...
    """
    documents, queries, judged = read(data / "squad_train")
    titles: dict[str, list[Any]] = {}
    for document in documents:
        titles.setdefault(document["title"], []).append(document)
    names = sorted(titles)
    random.Random(0).shuffle(names)
    texts: dict[str, str] = {}
    article_of: dict[str, str] = {}
    for name in names[:count]:
        own = titles[name][:paragraphs]
        for first in range(0, len(own), 10):
            fragment, number = own[first : first + 10], str(len(texts))
            texts[number] = "\n\n".join(paragraph["text"] for paragraph in fragment)
            article_of |= {paragraph["_id"]: number for paragraph in fragment}
    judged_queries = [(query, article_of[d]) for query, d in judged if d in article_of]
    held_out = dict(judged_queries[every - 1 :: every])
    return Collection(
        "SQuAD train",
        texts,
        {query: queries[query] for query in held_out},
        {query: {document: 1} for query, document in held_out.items()},
    )


def answers(data: Path, num_long: int, num_short: int) -> Collection:
    """Return answers of 400 words and more, shorter ones, and the questions of the former."""
    documents, queries, judged = read(data / "medquad")
    texts = {document["_id"]: document["text"] for document in documents}
    names = sorted(texts)
    random.Random(0).shuffle(names)
    long = [name for name in names if num_words(texts[name]) >= 400][:num_long]
    short = [name for name in names if num_words(texts[name]) < 400][:num_short]
    to_cut = set(long)
    qrels = {query: {document: 1} for query, document in judged if document in to_cut}
    return Collection(
        "MedQuAD",
        {name: texts[name] for name in long + short},
        {query: queries[query] for query in qrels},
        qrels,
    )


def cut(texts: dict[str, str], most: int) -> list[Document]:
    """Return documents in passages of at most so many words."""
    results = []
    for name, text in texts.items():
        segments = [Passage(f, "", str(n)) for n, f in enumerate(pieces(text, most), 1)]
        results.append(Document(name, text, "", {}, tuple(segments) if len(segments) > 1 else ()))
    return results


def rows(collection: Collection, concepts: bool) -> list[list[str]]:
    """Return a row for each length: nDCG@10 of documents, and the difference from the default."""
    values: dict[tuple[int, str | None], Any] = {}
    counts = {}
    judged = collection.qrels.items()
    qrels = [Qrel(q, d, grade) for q, grades in judged for d, grade in grades.items()]
    searched = (None, "words", "concepts") if concepts else ("words",)
    for most in (100, 200, 400) if concepts else LENGTHS:
        documents = cut(collection.texts, most)
        counts[most] = sum(max(1, len(document.passages)) for document in documents)
        with tempfile.TemporaryDirectory() as folder:
            fixed = lexicept.ConceptSettings(adapt=False)
            settings: Any = {"concepts": fixed} if concepts else {"vocabulary": "words"}
            index = lexicept.build(documents, Path(folder) / "index", **settings)
            plain = [ParsedQuery(text) for text in collection.queries.values()]
            for vocabulary in searched:
                hits = index.search_many(plain, 10, vocabulary=vocabulary)
                run = {
                    query: {hit.id: hit.score for hit in hits_of_query}
                    for query, hits_of_query in zip(collection.queries, hits, strict=True)
                }
                by_query = evaluate_queries(qrels, run, ["nDCG@10"])["nDCG@10"]
                of_all = [by_query.get(query, 0.0) for query in collection.queries]
                values[most, vocabulary] = np.array(of_all)
    table = []
    for (most, vocabulary), scores in values.items():
        difference = scores - values[DEFAULT, vocabulary]
        interval = 1.96 * difference.std() / np.sqrt(difference.size)
        changed = "–" if most == DEFAULT else f"{difference.mean():+.4f} ± {interval:.4f}"
        length = "whole" if most == LENGTHS[-1] else str(most)
        record = [collection.name, vocabulary or "both", length, f"{counts[most]:,}"]
        table.append([*record, f"{scores.mean():.4f}", changed])
    return table


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="folder of squad_train and medquad")
    parser.add_argument("--concepts", action="store_true", help="concepts too, of fewer documents")
    arguments = parser.parse_args()
    data, concepts = arguments.data, arguments.concepts
    collections = (
        [articles(data, 50, 20, 4), answers(data, 150, 250)]
        if concepts
        else [articles(data, 442, 60, 20), answers(data, 5000, 9000)]
    )
    heading = ["collection", "vocabulary", "most words", "passages", "nDCG@10", "difference"]
    for collection in collections:
        print(Table("passages", heading, rows(collection, concepts)).markdown(), flush=True)


if __name__ == "__main__":
    main()
