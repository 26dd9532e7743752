"""``python -m benchmarks.splare``: SPLARE from a small decoder, its ablations and its figures.

Everything reads the decoder that ``benchmarks.splare_backbone`` made. Untrained heads are compared
by layer and by width (SPLARE, Figure 2); trained models by what their documents are pruned to and
by their posting lists (Figure 3): SPLARE, the same on the causal decoder, which never saw masked
next-token prediction, and its twin over the language head's vocabulary. What is done is in
``OUT/rows.jsonl``, and the same command goes on where a killed one stopped; two processes may share
the work, one with ``--part figures`` and one with ``--part models``.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
import yaml
from sentence_transformers import SparseEncoder

from benchmarks.claims import link, save, subset
from lexicept import evaluation
from lexicept.backbone import Backbone
from lexicept.corpora import read_documents, read_qrels, read_queries
from lexicept.display import ProgressBars
from lexicept.encoder import load_encoder, make_encoder, with_lookup
from lexicept.engines import ExactEngine
from lexicept.heads import Head, HeadSettings, SAEHead
from lexicept.language_heads import language_head
from lexicept.measures import mean_length, qd_flops
from lexicept.progress import Progress
from lexicept.sae import SAE, SAESettings
from lexicept.sae.training import train_on_states
from lexicept.soup import soup
from lexicept.training.config import ValidationSettings, load_config
from lexicept.training.run import train
from lexicept.training.states import CachedStates
from lexicept.training.tuning import tune
from lexicept.training.validation import RetrievalEvaluator, Texts
from lexicept.vectors import largest_weights, prune_rows

PARAGRAPHS, QUESTIONS = 3000, 9000
TEST_PARAGRAPHS, TEST_QUESTIONS = 1000, 1000
LAYER, LAYERS = 4, (1, 2, 3, 4, 5, 6)
WIDTH, WIDTHS = 8192, (2048, 4096, 8192, 16384)
K, SAE_TOKENS = 16, 500_000
QUERY, DOCUMENT = 40, 400
PRUNED = (10, 25, 50, 100, 200, 400, 800)
"""Dimensions left in a document."""
TEMPERATURES = "1,5,20,50"
TRIAL_STEPS = 30
CONFIG = Path(__file__).parent.parent / "configs" / "splare_small.yaml"


@dataclass(frozen=True)
class Model:
    """What is trained."""

    name: str
    decoder: str = "mntp"
    head: str = "sae"
    layer: int = LAYER
    seed: int = 0


SPLARE = Model("SPLARE")
SECOND = Model("SPLARE, another seed", seed=1)
CAUSAL = Model("SPLARE, causal", decoder="causal")
TWIN = Model("SPLADE twin", head="mlm", layer=6)
MODELS = (SPLARE, CAUSAL, TWIN, SECOND)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.splare", description=__doc__)
    parser.add_argument("--decoder", type=Path, required=True, help="Of splare_backbone.")
    parser.add_argument("--train", type=Path, required=True, help="BEIR folder with labels.")
    parser.add_argument("--test", type=Path, required=True, help="BEIR folder to report on.")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--part", choices=("figures", "models", "all"), default="all")
    arguments = parser.parse_args()
    out: Path = arguments.out
    subset(arguments.train, "train", out / "train", PARAGRAPHS, QUESTIONS)
    subset(arguments.test, "test", out / "test", TEST_PARAGRAPHS, TEST_QUESTIONS)
    with ProgressBars() as progress:
        bench = Bench(arguments.decoder, out, progress)
        if arguments.part != "models":
            bench.figures()
        if arguments.part != "figures":
            bench.models()
    print(report(measured(out)))
    plot(measured(out), out, Path(__file__).with_name("splare.png"))


def measured(out: Path) -> dict[str, Any]:
    """Name → values of what is done."""
    path = out / "rows.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return {value["name"]: value for value in map(json.loads, lines)}


class Bench:
    """The work, each part of it only where it is not done yet."""

    def __init__(self, decoder: Path, out: Path, progress: Progress) -> None:
        self.decoder, self.out, self.progress = decoder, out, progress
        self.texts = [document.content for document in read_documents(out / "train")]
        documents = list(read_documents(out / "test"))
        queries = list(read_queries(out / "test", "test"))
        self.query_texts = [query.text for query in queries]
        self.document_texts = [document.content for document in documents]
        self.query_ids = [query.id for query in queries]
        self.document_ids = [document.id for document in documents]
        self.qrels = list(read_qrels(out / "test", "test"))

    def figures(self) -> None:
        """Untrained heads, by layer and by width."""
        for layer, width in dict.fromkeys(
            [*((layer, WIDTH) for layer in LAYERS), *((LAYER, width) for width in WIDTHS)]
        ):
            name = f"untrained, layer {layer}, {width} latents"
            if name not in measured(self.out):
                head = SAEHead(self.sae("mntp", layer, width), settings())
                self.add(name, self.curve(*self.cached(head, "mntp", layer), [DOCUMENT]))
        for layer in (LAYER, 6):
            name = f"untrained vocabulary, layer {layer}"
            if name not in measured(self.out):
                head = self.head(Model("", head="mlm", layer=layer))
                self.add(name, self.curve(*self.cached(head, "mntp", layer), [DOCUMENT]))

    def models(self) -> None:
        """Trained models, each beside its untrained self, and the mean of two."""
        for model in MODELS:
            start = self.start(model)
            untrained = f"untrained {model.name}"
            if model.seed == 0 and untrained not in measured(self.out):
                self.add(untrained, self.encoded(start))
            folder = self.out / "runs" / slug(model.name)
            changes = self.changes(model, start)
            if not (folder / "model").exists():
                prepared = self.prepared(model.seed)
                train(load_config(CONFIG, changes), folder, self.progress, prepared)
            if model.name not in measured(self.out):
                self.add(model.name, self.encoded(folder / "model"))
        mean = self.out / "runs" / "soup"
        if not mean.exists():
            soup([self.out / "runs" / slug(m.name) / "model" for m in (SPLARE, SECOND)], mean)
        if "soup of both" not in measured(self.out):
            self.add("soup of both", self.encoded(mean))

    def prepared(self, seed: int) -> Path:
        """Where runs of one seed, which hold out the same questions, keep their data."""
        folder, known = self.out / f"prepared-{seed}", self.out / "tuning" / slug(SPLARE.name)
        if not folder.exists():
            names = ("teacher",) if seed else ("teacher", "words", "lists.jsonl")
            for name in names:
                link(known / "work" / name, folder / name)
        return folder

    def changes(self, model: Model, start: Path) -> list[str]:
        """Of the configuration; the temperature is chosen on held-out training questions."""
        own = [
            f"data.corpus={self.out / 'train'}",
            f"data.queries={self.out / 'train'}",
            f"model.start={start}",
        ]
        chooser = TWIN if model.head == "mlm" else SPLARE
        folder = self.out / "tuning" / slug(chooser.name)
        if not (folder / "best.yaml").exists():
            if chooser is not SPLARE and not (folder / "work").exists():
                link(self.out / "tuning" / slug(SPLARE.name) / "work", folder / "work")
            vary = [f"loss.temperature={TEMPERATURES}"]
            tune(CONFIG, vary, TRIAL_STEPS, folder, own, self.progress)
        best = yaml.safe_load((folder / "best.yaml").read_text())["loss"]["temperature"]
        return [*own, f"loss.temperature={best}", f"optimizer.seed={model.seed}"]

    def start(self, model: Model) -> Path:
        """The encoder that a training begins with."""
        path = self.out / "starts" / f"{model.decoder}-{model.head}-{model.layer}"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            save(make_encoder(self.backbone(model.decoder, model.layer), self.head(model)), path)
        return path

    def head(self, model: Model) -> Head:
        if model.head == "sae":
            return SAEHead(self.sae(model.decoder, model.layer, WIDTH), settings())
        head = language_head(str(self.decoder / model.decoder))
        head.configure(query_max_active_dims=QUERY, document_max_active_dims=DOCUMENT)
        return head

    def sae(self, decoder: str, layer: int, width: int) -> SAE:
        """An SAE of the training paragraphs' states."""
        folder = self.out / "saes" / f"{decoder}-{layer}-{width}"
        if not (folder / "sae.json").exists():
            folder.mkdir(parents=True, exist_ok=True)
            states = self.states(decoder, layer, "train", self.texts)
            own = SAESettings(width, K, SAE_TOKENS)
            sae = train_on_states(
                lambda numbers: states.read(numbers)[0], len(states), own, folder, self.progress
            )
            sae.save(folder)
        return SAE.load(folder)

    def backbone(self, decoder: str, layer: int) -> Backbone:
        return Backbone.from_pretrained(
            str(self.decoder / decoder), layer, bidirectional=decoder == "mntp"
        )

    def states(self, decoder: str, layer: int, name: str, texts: Sequence[str]) -> CachedStates:
        folder = self.out / "states" / f"{decoder}-{layer}-{name}"
        backbone = self.backbone(decoder, layer)
        return CachedStates.build(folder, backbone, texts, self.progress, bf16=True)

    def cached(self, head: Head, decoder: str, layer: int) -> tuple[sp.csr_array, sp.csr_array]:
        """Query and document weights, unpruned, of an untrained head."""
        queries = self.states(decoder, layer, "queries", self.query_texts)
        documents = self.states(decoder, layer, "documents", self.document_texts)
        return self.weights(with_lookup([head], None), queries, documents)

    def encoded(self, path: Path) -> dict[str, Any]:
        encoder = load_encoder(path)
        weights = self.weights(encoder, self.query_texts, self.document_texts)
        np.save(self.out / f"{slug(path.parent.name + path.name)}.npy", lengths(weights[1]))
        return self.curve(*weights, PRUNED) | {"folder": slug(path.parent.name + path.name)}

    def weights(
        self, model: SparseEncoder, queries: Texts, documents: Texts
    ) -> tuple[sp.csr_array, sp.csr_array]:
        evaluator = RetrievalEvaluator(
            *(self.query_ids, queries, self.document_ids, documents, self.qrels),
            ValidationSettings(),
            bf16=True,
        )
        with torch.inference_mode():
            found = [
                evaluator.encode(model, texts, task)
                for texts, task in ((queries, "query"), (documents, "document"))
            ]
        return found[0], found[1]

    def curve(
        self, queries: sp.csr_array, documents: sp.csr_array, limits: Sequence[int]
    ) -> dict[str, Any]:
        """Effectiveness and cost where documents are pruned to so many dimensions."""
        points = [self.point(queries, documents, limit) for limit in limits]
        return {"points": dict(zip(map(str, limits), points, strict=True))}

    def point(self, queries: sp.csr_array, documents: sp.csr_array, limit: int) -> dict[str, float]:
        documents = prune_rows(documents, limit)
        queries = prune_rows(queries, QUERY, largest_weights(documents))
        found = ExactEngine.build(documents).search(queries, 10)
        run = {
            name: {self.document_ids[int(d)]: float(s) for d, s in zip(*hits, strict=True)}
            for name, hits in zip(self.query_ids, found, strict=True)
        }
        ndcg = evaluation.evaluate(self.qrels, run, ["nDCG@10"])["nDCG@10"]
        cost = {"qd_flops": qd_flops(queries, documents), "length": mean_length(documents)}
        return {"ndcg": ndcg, **cost}

    def add(self, name: str, values: dict[str, Any]) -> None:
        with (self.out / "rows.jsonl").open("a") as file:
            file.write(json.dumps({"name": name, **values}) + "\n")
        print(name, values["points"].get(str(DOCUMENT)), flush=True)


def settings() -> HeadSettings:
    """As many active latents as the SAE was trained with, and Top-K (40, 400)."""
    return HeadSettings(
        query_k=K,
        document_k=K,
        query_max_active_dims=QUERY,
        document_max_active_dims=DOCUMENT,
        weighting="splade",
    )


def lengths(documents: sp.csr_array) -> np.ndarray:
    """Of the posting lists of documents pruned as an index has them, longest first."""
    columns = prune_rows(documents, DOCUMENT).indices
    return np.sort(np.bincount(columns, minlength=documents.shape[1]))[::-1]


def slug(name: str) -> str:
    """A name of a folder."""
    return name.lower().replace(",", "").replace(" ", "-")


def report(rows: dict[str, Any]) -> str:
    """A Markdown table of all models at Top-K (40, 400)."""
    lines = ["| model | nDCG@10 | QD-FLOPs | document length |", "| --- " * 4 + "|"]
    for name, row in rows.items():
        if (point := row["points"].get(str(DOCUMENT))) is not None:
            cells = (f"{point['ndcg']:.3f}", f"{point['qd_flops']:.1f}", f"{point['length']:.0f}")
            lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def plot(rows: dict[str, Any], out: Path, path: Path) -> None:
    """Layers, widths, pruning and posting lists, as in SPLARE's Figures 2 and 3."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 3.6), layout="constrained")
    layers, widths, pruning, postings = figure.subplots(1, 4)
    for axes, title, points in (
        (layers, "layer (untrained)", [(n, rows.get(untrained(n, WIDTH))) for n in LAYERS]),
        (widths, "latents (untrained)", [(n, rows.get(untrained(LAYER, n))) for n in WIDTHS]),
    ):
        found = [(n, row["points"][str(DOCUMENT)]["ndcg"]) for n, row in points if row]
        axes.plot(*zip(*found, strict=True), marker="o") if found else None
        axes.set(xlabel=title, ylabel="nDCG@10")
    widths.set_xscale("log", base=2)
    for name in (SPLARE.name, f"untrained {SPLARE.name}", CAUSAL.name, TWIN.name):
        if name in rows:
            values = rows[name]["points"]
            pruning.plot([int(n) for n in values], [p["ndcg"] for p in values.values()], label=name)
            if not name.startswith("untrained"):
                found = np.load(out / f"{rows[name]['folder']}.npy")
                postings.plot(np.arange(len(found)) / len(found), found, label=name)
    pruning.set(xlabel="dimensions left in a document", ylabel="nDCG@10", xscale="log")
    postings.set(xlabel="share of posting lists", ylabel="documents", yscale="symlog")
    for axes in (pruning, postings):
        axes.legend(fontsize=7)
    figure.savefig(path, dpi=80)


def untrained(layer: int, width: int) -> str:
    """Name of a row."""
    return f"untrained, layer {layer}, {width} latents"


if __name__ == "__main__":
    main()
