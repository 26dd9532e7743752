"""``python -m mini.collection DATA OUT``: the texts and queries that lexicept-mini learns from.

DATA holds the BEIR folders ``squad_train``, ``vaswani_npl`` and ``cacm``; the documentation of the
Python that runs this comes to them. OUT becomes one BEIR folder with the splits ``train`` and
``dev``. SQuAD's questions keep their labels; pseudo-queries are judged 0, as only a teacher says
what is relevant to them. The judged queries of Vaswani and CACM are not among them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from lexicept.corpora import Document, Qrel, Query, read_documents, read_qrels, read_queries
from lexicept.corpora.pseudo_queries import generate, named, write_judged
from lexicept.storage.files import replacing_text

QUESTIONS = 8000
"""Number of SQuAD's questions to train on."""

HELD_OUT = 88
"""Every so many of SQuAD's questions is never trained on."""

PSEUDO_QUERIES = {"vaswani_npl": 4000, "cacm": 2000, "python-docs": 2000, "squad_train": 2000}

SHORTEST = 15
"""Words of a Python document: shorter ones are names."""


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m mini.collection", description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    folders = {name: str(arguments.data / name) for name in ("squad_train", "vaswani_npl", "cacm")}
    folders["python-docs"] = "python-docs"
    with replacing_text(arguments.out / "corpus.jsonl") as out:
        for name, folder in folders.items():
            for document in documents(name, folder):
                fields = {"_id": document.id, "title": document.title, "text": document.text}
                out.write(json.dumps(fields, ensure_ascii=False) + "\n")
    questions = sorted(squad(folders["squad_train"]), key=lambda question: question[0].id)
    held_out = questions[::HELD_OUT]
    trainable = [question for number, question in enumerate(questions) if number % HELD_OUT]
    train = trainable[:: len(trainable) // QUESTIONS][:QUESTIONS]
    pseudo = [judged for name in folders for judged in taught(name, folders[name])]
    for split, judged in (("dev", held_out), ("train", [*train, *pseudo])):
        print(split, write_judged(arguments.out, split, judged))
    # Each split was written with its own queries alone.
    with replacing_text(arguments.out / "queries.jsonl") as out:
        for query, _ in (*held_out, *train, *pseudo):
            out.write(json.dumps({"_id": query.id, "text": query.text}, ensure_ascii=False) + "\n")


def documents(name: str, folder: str) -> Iterator[Document]:
    """A collection's documents that have words, their ids with its name before them."""
    least = SHORTEST if name == "python-docs" else 1
    for document in read_documents(folder):
        if len(document.content.split()) >= least:
            yield Document(f"{name}/{document.id}", document.text, document.title)


def squad(folder: str) -> Iterator[tuple[Query, list[Qrel]]]:
    """All questions with the paragraphs that answer them."""
    answers: dict[str, list[Qrel]] = {}
    for qrel in read_qrels(folder, "train"):
        named = Qrel(qrel.query_id, f"squad_train/{qrel.document_id}", qrel.relevance)
        answers.setdefault(qrel.query_id, []).append(named)
    for query in read_queries(folder, "train"):
        yield query, answers[query.id]


def taught(name: str, folder: str) -> Iterable[tuple[Query, list[Qrel]]]:
    """Pseudo-queries of documents that lie evenly in a collection."""
    candidates, count = list(documents(name, folder)), PSEUDO_QUERIES[name]
    sample = candidates[:: max(1, len(candidates) // count)][:count]
    for query, document, text in named(generate(sample)):
        yield Query(query, text), [Qrel(query, document, 0)]


if __name__ == "__main__":
    main()
