"""``python -m benchmarks.claims``: the papers' claims on vocabularies, k and λ, at small scale.

Every run trains one head on the same frozen, cached states for the same steps; what is done is in
``OUT/rows.jsonl``, and the same command goes on where a killed one stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import torch
from sentence_transformers import SparseEncoder
from torch import Tensor

from lexicept.corpora import Qrel, read_documents, read_qrels, read_queries
from lexicept.corpora.pseudo_queries import write_judged
from lexicept.engines import ExactEngine
from lexicept.evaluation import effectiveness
from lexicept.measures import mean_length, qd_flops
from lexicept.models.backbone import Backbone
from lexicept.models.cached_states import CachedStates
from lexicept.models.encoder import Encoder
from lexicept.models.heads.base import Head
from lexicept.models.heads.sae import SAEHead
from lexicept.models.language_heads import language_head
from lexicept.models.sources import DEFAULT_BACKBONE
from lexicept.models.word_vocabulary import expanded_words
from lexicept.progress import ProgressBars
from lexicept.storage.files import replace_file
from lexicept.training.config import TrainingConfig, ValidationSettings
from lexicept.training.pretraining.settings import PretrainingSettings
from lexicept.training.pretraining.trainer import pretrain
from lexicept.training.run import train
from lexicept.training.sae.settings import SAESettings
from lexicept.training.sae.trainer import train_sae
from lexicept.training.settings import from_mapping
from lexicept.training.validation import RetrievalEvaluator
from lexicept.vectors import largest_weights, prune_rows

PARAGRAPHS, QUESTIONS = 4000, 12000
TEST_PARAGRAPHS, TEST_QUESTIONS = 1000, 1000
SAE_TOKENS = 600_000
PRETRAINING_STEPS = 150
STEPS = 60
SIZE, LARGE, K, WEIGHT = 4096, 8192, 8, 0.02
SEEDS = (0, 1, 2)
PRUNING = ((4, 16), (8, 32), (16, 64), (24, 128))
"""Pairs of query and document dimensions after pruning."""

SHARED = (
    *("words", "validation-words", "teacher", "lists.jsonl"),
    *(f"states/{name}" for name in ("documents", "queries")),
    *(f"states/validation-{name}" for name in ("documents", "queries")),
)
"""Files of a run's work folder that do not depend on the head."""


@dataclass(frozen=True)
class Row:
    """A training run; k = 0 means no constraint."""

    vocabulary: str
    size: int = SIZE
    k: int = K
    weight: float = WEIGHT
    seed: int = 0

    @property
    def name(self) -> str:
        """Name of the run's folder."""
        return f"{self.vocabulary}-{self.size}-k{self.k}-l{self.weight:g}-s{self.seed}"


HEADLINE = [Row(v, k=k, seed=s) for s in SEEDS for v in ("sae", "words", "random") for k in (K, 0)]
BY_K = [Row("sae", k=k) for k in (2, 8, 32, 128)]
BY_WEIGHT = [Row("sae", k=k, weight=w) for k in (K, 0) for w in (WEIGHT, 0.1, 0.5, 2.5)]
BY_SIZE = [Row(v, size, k=0) for size in (SIZE, LARGE) for v in ("sae", "words", "random")]


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.claims", description=__doc__)
    parser.add_argument("--train", type=Path, required=True, help="BEIR folder with labels.")
    parser.add_argument("--test", type=Path, required=True, help="BEIR folder to report on.")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    out: Path = arguments.out
    subset(arguments.train, "train", out / "train", PARAGRAPHS, QUESTIONS)
    subset(arguments.test, "test", out / "test", TEST_PARAGRAPHS, TEST_QUESTIONS)
    done = out / "rows.jsonl"
    for row in dict.fromkeys([*HEADLINE, *BY_K, *BY_WEIGHT, *BY_SIZE]):
        if row.name not in measured(done):
            values = {"name": row.name, **run(row, out)}
            with done.open("a") as file:
                file.write(json.dumps(values) + "\n")
            print(json.dumps(values), flush=True)
    print(report(measured(done)))
    plot(measured(done), Path(__file__).with_name("claims.png"))


def measured(path: Path) -> dict[str, dict[str, Any]]:
    """Return name → values of the finished runs."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {value["name"]: value for value in map(json.loads, lines)}


def subset(source: Path, split: str, folder: Path, paragraphs: int, questions: int) -> None:
    """Write a random part of the paragraphs and of their questions as a BEIR folder."""
    if (folder / "qrels" / f"{split}.tsv").exists():
        return
    random = np.random.default_rng(0)
    documents = list(read_documents(source))
    chosen = random.permutation(len(documents))[:paragraphs]
    kept = {documents[i].id: documents[i] for i in sorted(chosen)}
    judged = [q for q in read_qrels(source, split) if q.document_id in kept]
    names = sorted({qrel.query_id for qrel in judged})
    asked = {names[i] for i in random.permutation(len(names))[:questions]}
    queries = [query for query in read_queries(source, split) if query.id in asked]
    lines = [json.dumps({"_id": d.id, "text": d.content}) + "\n" for d in kept.values()]
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / "corpus.jsonl", "".join(lines).encode())
    of_query: dict[str, list[Qrel]] = {}
    for qrel in judged:
        of_query.setdefault(qrel.query_id, []).append(qrel)
    write_judged(folder, split, ((query, of_query[query.id]) for query in queries))


def run(row: Row, out: Path) -> dict[str, Any]:
    """Train one head and evaluate it; CPU seconds include what the run is the first to need."""
    before = cpu_seconds()
    start = starting_point(row, out)
    after_start = cpu_seconds()
    folder, shared = out / "runs" / row.name, out / "shared"
    (folder / "work").mkdir(parents=True, exist_ok=True)
    for name in SHARED:
        if (shared / name).exists() and not (folder / "work" / name).exists():
            link(shared / name, folder / "work" / name)
    config = configuration(row, start, out)
    if not (folder / "model").exists():
        with ProgressBars() as progress:
            train(config, folder, progress)
    for name in SHARED:
        if not (shared / name).exists():
            link(folder / "work" / name, shared / name)
    points = evaluate(folder, out / "test")
    cpu = {"pretraining": after_start - before, "training": cpu_seconds() - after_start}
    shutil.rmtree(folder / "work")
    return {"pruning": points, "cpu_seconds": cpu}


def starting_point(row: Row, out: Path) -> Path:
    """Return the head before training, made once for each vocabulary, size and seed."""
    calibrated = "" if row.k else "-calibrated"
    path = out / "starts" / f"{row.vocabulary}-{row.size}-s{row.seed}{calibrated}"
    if path.exists():
        return path
    if calibrated:
        encoder = Encoder.load(starting_point(replace(row, k=K), out))
        texts = [document.content for document in read_documents(out / "train")]
        encoder.head.calibrate(sample(encoder.backbone, texts[:50]), K)
        return save(encoder, path)
    texts = [document.content for document in read_documents(out / "train")]
    backbone = Backbone.from_pretrained(DEFAULT_BACKBONE)
    work = out / "starts" / f"{path.name}.work"
    work.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(row.seed)
    with ProgressBars() as progress:
        head: Head
        if row.vocabulary == "sae":
            settings = SAESettings(row.size, K, SAE_TOKENS, seed=row.seed)
            head = SAEHead(train_sae(backbone, texts, settings, work, progress))
        else:
            own = language_head(DEFAULT_BACKBONE)
            if row.vocabulary == "words":
                words, pieces = expanded_words(texts, backbone.tokenizer, row.size)
                head = own.expanded(pieces, words)
                steps = PretrainingSettings(steps=PRETRAINING_STEPS, bf16=True, seed=row.seed)
                pretrain(backbone, head, texts, steps, work, progress)
            else:
                head = own.random(row.size, row.seed)
    shutil.rmtree(work)
    return save(Encoder.of(backbone, head), path)


def save(encoder: SparseEncoder, path: Path) -> Path:
    """Write an encoder atomically."""
    unfinished = path.with_name(f"{path.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    encoder.save(str(unfinished), create_model_card=False)
    return unfinished.rename(path)


def sample(backbone: Backbone, texts: Sequence[str]) -> Tensor:
    """Return the states of all tokens [n, d]."""
    return torch.cat([states for _, states in backbone.token_states(backbone.windows(texts))])


def configuration(row: Row, start: Path, out: Path) -> TrainingConfig:
    """Return the training configuration of a row."""
    regularizer = {"kind": "flops", "weight": row.weight, "schedule": "quadratic", "steps": 30}
    values = {
        "data": {
            "corpus": str(out / "train"),
            "queries": str(out / "train"),
            "negatives": 1,
            "mining_depth": 30,
        },
        "model": {"start": str(start), "query_k": row.k, "document_k": row.k},
        "teacher": {"dense": DEFAULT_BACKBONE, "dense_weight": 20, "bm25_weight": 0.5},
        "loss": {"kl": 1.0, "in_batch": 1.0, "scale": 0.3},
        "query_regularizer": regularizer,
        "document_regularizer": regularizer,
        "optimizer": {"steps": STEPS, "bf16": True, "seed": row.seed},
        "validation": {
            **{"queries": str(out / "test"), "corpus": str(out / "test"), "split": "test"},
            **{"count": TEST_QUESTIONS, "every": STEPS},
        },
    }
    config: TrainingConfig = from_mapping(TrainingConfig, values)
    return config


def evaluate(folder: Path, test: Path) -> list[dict[str, float]]:
    """Evaluate the trained model on the test questions, unpruned and pruned."""
    states = folder / "work" / "states"
    names = sorted(query.id for query in read_queries(test, "test"))
    ids = [document.id for document in read_documents(test)]
    qrels = list(read_qrels(test, "test"))
    query_states = CachedStates(states / "validation-queries", len(names))
    document_states = CachedStates(states / "validation-documents", len(ids))
    evaluator = RetrievalEvaluator(
        names, query_states, ids, document_states, qrels, ValidationSettings(), bf16=True
    )
    model = Encoder.load(folder / "model")
    whole = evaluator.encode(model, document_states, "document")
    asked = evaluator.encode(model, query_states, "query")
    points = []
    for limits in (None, *PRUNING):
        queries, documents = asked, whole
        if limits is not None:
            documents = prune_rows(whole, limits[1])
            queries = prune_rows(asked, limits[0], largest_weights(documents))
        rankings = ExactEngine.build(documents).search(queries, 10)
        run = {
            name: {ids[int(d)]: float(s) for d, s in zip(*hits, strict=True)}
            for name, hits in zip(names, rankings, strict=True)
        }
        ndcg = effectiveness.evaluate(qrels, run, ["nDCG@10"])["nDCG@10"]
        cost, length = qd_flops(queries, documents), mean_length(documents)
        points.append({"ndcg": ndcg, "qd_flops": cost, "document_length": length})
    return points


def cpu_seconds() -> float:
    """Return the CPU seconds of this process so far, summed over threads."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def link(source: Path, target: Path) -> None:
    """Give a file or a folder a second name, without copying."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, copy_function=os.link)
    else:
        os.link(source, target)


def report(rows: dict[str, dict[str, Any]]) -> str:
    """Return a Markdown table for each claim."""
    lines = ["| vocabulary | k | nDCG@10 | QD-FLOPs | document length | seeds |"]
    lines.append("| --- " * 6 + "|")
    for vocabulary in ("sae", "words", "random"):
        for k in (K, 0):
            names = [r.name for r in HEADLINE if (r.vocabulary, r.k) == (vocabulary, k)]
            points = [rows[name]["pruning"][0] for name in names]
            cells = [_spread([p[name] for p in points]) for name in POINT]
            lines.append(f"| {vocabulary} | {k or 'all'} | {' | '.join(cells)} | {len(points)} |")
    for sweep in (BY_K, BY_WEIGHT):
        lines += ["", "| k | λ | nDCG@10 | QD-FLOPs | document length |", "| --- " * 5 + "|"]
        for row in sweep:
            cells = [_number(rows[row.name]["pruning"][0][name]) for name in POINT]
            lines.append(f"| {row.k or 'all'} | {row.weight:g} | {' | '.join(cells)} |")
    heads = " | ".join(["all", *(f"{q} / {d}" for q, d in PRUNING)])
    lines += ["", f"| vocabulary | size | {heads} |", "| --- " * (3 + len(PRUNING)) + "|"]
    for row in BY_SIZE:
        points = rows[row.name]["pruning"]
        cells = [f"{_number(p['ndcg'])} ({_number(p['qd_flops'])})" for p in points]
        lines.append(f"| {row.vocabulary} | {row.size} | {' | '.join(cells)} |")
    minutes = {
        part: sum(row["cpu_seconds"][part] for row in rows.values()) / 60
        for part in ("pretraining", "training")
    }
    lines += ["", ", ".join(f"{part}: {value:.0f} CPU minutes" for part, value in minutes.items())]
    return "\n".join(lines)


POINT = ("ndcg", "qd_flops", "document_length")


def _number(value: float) -> str:
    return f"{value:.3f}" if value < 1 else f"{value:.1f}"


def _spread(values: Sequence[float]) -> str:
    return f"{_number(mean(values))} ± {_number(stdev(values))}"


def plot(rows: dict[str, dict[str, Any]], path: Path) -> None:
    """Plot effectiveness against cost: vocabularies, k against λ, and sizes under pruning."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 4), layout="constrained")
    vocabularies, control, sizes = figure.subplots(1, 3)
    for vocabulary, marker in (("sae", "o"), ("words", "s"), ("random", "^")):
        for k, fill in ((K, "full"), (0, "none")):
            names = [r.name for r in HEADLINE if (r.vocabulary, r.k) == (vocabulary, k)]
            points = [rows[name]["pruning"][0] for name in names]
            label = f"{vocabulary}, k {k or 'all'}"
            _line(vocabularies, points, label, marker=marker, fillstyle=fill, linestyle="")
    for label, chosen in (
        (f"k, λ {WEIGHT}", BY_K),
        (f"λ, k {K}", [row for row in BY_WEIGHT if row.k]),
        ("λ, all", [row for row in BY_WEIGHT if not row.k]),
    ):
        points = [rows[row.name]["pruning"][0] for row in chosen]
        _line(control, points, label, marker="o")
    for row in BY_SIZE:
        style = "-" if row.size == LARGE else "--"
        label = f"{row.vocabulary} {row.size}"
        _line(sizes, rows[row.name]["pruning"], label, marker="o", linestyle=style)
    for axes, title in (
        (vocabularies, "vocabularies"),
        (control, "concepts: k or λ"),
        (sizes, "pruned texts"),
    ):
        axes.set(title=title, xlabel="QD-FLOPs", ylabel="nDCG@10", xscale="log")
        axes.legend(fontsize=7)
    figure.savefig(path, dpi=80)


def _line(axes: Any, points: Sequence[dict[str, float]], label: str, **style: Any) -> None:
    points = sorted(points, key=lambda point: point["qd_flops"])
    axes.plot([p["qd_flops"] for p in points], [p["ndcg"] for p in points], label=label, **style)


if __name__ == "__main__":
    main()
