"""``python -m benchmarks.languages DATA/xquad --out OUT``: lexicept-mini in other languages.

Each language's paragraphs are searched with its own questions and with the English ones, by words
(its own stop words and stems where they are known), by the dense model, by lexicept-mini's
concepts, and by words and concepts. Titles are left out: XQuAD has not translated them. Intervals
are 95 %: paired bootstrap over questions. Indexes are kept in OUT.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from benchmarks.common import Table
from benchmarks.judged import Collection, System, ahead, built, decimal
from benchmarks.mini import searched
from benchmarks.rerankers import dense
from lexicept.corpora import Qrel, Query, read_documents, read_qrels, read_queries
from lexicept.evaluation import effectiveness
from lexicept.vectorizers.words import BIGRAM_LANGUAGES, STEMMERS

ENGLISH = "en"


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.languages", description=__doc__)
    parser.add_argument("data", type=Path, help="a folder with a BEIR folder for each language")
    parser.add_argument("--split", default="test")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    data, out = arguments.data, arguments.out
    languages = sorted(folder.name for folder in data.iterdir() if folder.is_dir())
    asked = {
        language: sorted(read_queries(str(data / language), arguments.split))
        for language in languages
    }
    qrels = list(read_qrels(str(data / ENGLISH), arguments.split))
    tables: dict[str, list[list[str]]] = {"its own questions": [], "English questions": []}
    for language in languages:
        corpus = untitled(data / language, out / language)
        for name, questions in zip(tables, (asked[language], asked[ENGLISH]), strict=True):
            systems = measured(language, corpus, questions, qrels, out / language)
            tables[name].append([language, *cells(systems)])
    for name, rows in tables.items():
        columns = [name, "words", "dense", "concepts", "both", "both ahead of words", "of dense"]
        print(Table(name, [*columns, "QD-FLOPs"], rows).markdown(), flush=True)


def untitled(folder: Path, out: Path) -> Path:
    """Write the collection's documents without their titles."""
    path = out / "corpus.jsonl"
    if not path.exists():
        out.mkdir(parents=True, exist_ok=True)
        documents = read_documents(str(folder))
        lines = [json.dumps({"_id": one.id, "title": "", "text": one.text}) for one in documents]
        path.write_text("\n".join(lines))
    return path


def measured(
    language: str, corpus: Path, questions: Sequence[Query], qrels: Sequence[Qrel], out: Path
) -> list[System]:
    """Measure words, the dense model, concepts, and words and concepts."""
    known = language in STEMMERS or language in BIGRAM_LANGUAGES
    options = ["--language", language if known else ENGLISH]
    index = built(str(corpus), out / "index", options)
    run = effectiveness.evaluate_index(
        index, effectiveness.JudgedQueries(questions, qrels), "words"
    ).run
    words = System.of_run("words", qrels, run)
    collection = Collection(language, index, [*questions], [*qrels])
    return [words, dense(collection, out), *searched(collection)]


def cells(systems: Sequence[System]) -> list[str]:
    """Return each nDCG@10, the last one's gain over the first two, and its QD-FLOPs."""
    ours = systems[-1]
    means = [decimal(system.mean, 3) for system in systems]
    differences = [ahead(ours, system) for system in systems[:2]]
    return [*means, *differences, f"{ours.qd_flops:.2f}"]


if __name__ == "__main__":
    main()
