"""``python -m benchmarks.languages DATA/xquad --out OUT``: XQuAD in and across twelve languages.

Each language's paragraphs are searched with their own questions; then those of one language with
the questions of another. Systems: BM25 (with the language's stop words and stems where they are
known), the dense model, their sum, concepts, and all of the index. ``--backbone`` names the model
of dense vectors and index; by default lexicept-mini and its own. Titles are left out: XQuAD has not
translated them. Intervals are 95 %: paired bootstrap over questions. Indexes and vectors are kept
in OUT, and an interrupted run goes on from there.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.common import Table
from benchmarks.judged import Collection, System, ahead, built, decimal
from benchmarks.mini import ALL, searched
from benchmarks.rerankers import COSINE, best, scored
from lexicept.corpora import read_documents, read_qrels, read_queries
from lexicept.encoding.sources import DEFAULT_BACKBONE
from lexicept.encoding.words import BIGRAM_LANGUAGES, STEMMERS

ENGLISH = "en"
PAIRS = ("en-de", "de-en", "en-ru", "ru-de", "zh-en", "en-hi")
FUSION = f"BM25 + {COSINE:g} cos"


@dataclass(frozen=True)
class Settings:
    """Places of data and results, and the backbone."""

    data: Path
    split: str
    out: Path
    backbone: str | None


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.languages", description=__doc__)
    parser.add_argument("data", type=Path, help="a folder with a BEIR folder for each language")
    parser.add_argument("--split", default="test")
    parser.add_argument("--backbone", help="a hub name or a folder")
    parser.add_argument(
        "--pairs", nargs="*", default=PAIRS, help="languages of questions and paragraphs"
    )
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    settings = Settings(options.data, options.split, options.out, options.backbone)
    languages = sorted(folder.name for folder in options.data.iterdir() if folder.is_dir())
    measurements = {language: measured(settings, language, language) for language in languages}
    print(own_table(measurements).markdown(), flush=True)
    across = {}
    for pair in options.pairs:
        query_language, language = pair.split("-")
        across[f"{query_language} → {language}"] = measured(settings, query_language, language)
    print(across_table(across).markdown(), flush=True)


def measured(settings: Settings, query_language: str, language: str) -> dict[str, System]:
    """Measure all systems with the questions of one language on the paragraphs of another."""
    out, qrels = settings.out / language, [*read_qrels(settings.data / ENGLISH, settings.split)]
    queries = sorted(read_queries(settings.data / query_language, settings.split))
    corpus = untitled(settings.data / language, out)
    known = language in STEMMERS or language in BIGRAM_LANGUAGES
    options = ["--language", language if known else ENGLISH]
    options += ["--backbone", settings.backbone] if settings.backbone else []
    index = built(str(corpus), out / "index", options)
    collection = Collection(language, index, queries, qrels)
    model = settings.backbone or DEFAULT_BACKBONE
    runs: dict[str, dict[str, dict[str, float]]] = {"BM25": {}, "dense": {}, FUSION: {}}
    everything = np.arange(len(index))
    for query, words, cosines in scored(collection, settings.out, model):
        matched = np.flatnonzero(words > 0)
        runs["BM25"][query.id] = best(index, matched, words[matched])
        runs["dense"][query.id] = best(index, everything, cosines)
        runs[FUSION][query.id] = best(index, everything, words + COSINE * cosines)
    systems = [System.of_run(name, qrels, run) for name, run in runs.items()]
    systems += searched(collection)
    return {system.name: system for system in systems}


def own_table(measured: dict[str, dict[str, System]]) -> Table:
    """Return each language's nDCG@10, and how far all vocabularies are ahead."""
    lines = []
    for language, systems in measured.items():
        ours = systems[ALL]
        systems_shown = [systems[name] for name in ("BM25", "dense", FUSION, "concepts")]
        differences = [ahead(ours, systems[name]) for name in ("BM25", FUSION)]
        cost = f"{ours.qd_flops:.2f}"
        lines.append(
            [language, *(decimal(s.mean, 3) for s in (*systems_shown, ours)), *differences, cost]
        )
    means = [
        decimal(float(np.mean([systems[name].mean for systems in measured.values()])), 3)
        for name in ("BM25", "dense", FUSION, "concepts", ALL)
    ]
    lines.append(["mean", *means, "", "", ""])
    columns = ["language", "BM25", "dense", FUSION, "concepts", "all"]
    columns += ["all ahead of BM25", f"of {FUSION}", "QD-FLOPs"]
    return Table("its own questions", columns, lines)


def across_table(measured: dict[str, dict[str, System]]) -> Table:
    """Return each pair's nDCG@10, and what concepts find of the dense model's."""
    lines = []
    for pair, systems in measured.items():
        concepts, dense = systems["concepts"], systems["dense"]
        systems_shown = (systems["BM25"], dense, concepts, systems[ALL])
        ratio = f"{concepts.mean / dense.mean:.2f}"
        lines.append(
            [pair, *(decimal(s.mean, 3) for s in systems_shown), ratio, ahead(concepts, dense)]
        )
    columns = ["questions → paragraphs", "BM25", "dense", "concepts", "all"]
    return Table(
        "across languages", [*columns, "concepts / dense", "concepts ahead of dense"], lines
    )


def untitled(folder: Path, out: Path) -> Path:
    """Write the collection's documents without their titles."""
    path = out / "corpus.jsonl"
    if not path.exists():
        out.mkdir(parents=True, exist_ok=True)
        documents = read_documents(str(folder))
        lines = [json.dumps({"_id": d.id, "title": "", "text": d.text}) for d in documents]
        path.write_text("\n".join(lines))
    return path


if __name__ == "__main__":
    main()
