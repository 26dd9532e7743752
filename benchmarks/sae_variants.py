"""``python -m benchmarks.sae_variants DATA/scifact --out FOLDER``: SAE architectures, compared.

All read the same states of all-MiniLM-L6-v2, as many tokens in as many steps. None is trained or
tuned for ranking: their latents are weighed as words are, by BM25. An architecture that is done
is kept in ``OUT/rows.jsonl``, and the same command goes on where a killed one stopped.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from torch import Tensor

from lexicept.corpora import read_documents, read_qrels, read_queries
from lexicept.encoding.head_settings import HeadSettings
from lexicept.neural.backbones.backbone import Backbone
from lexicept.neural.encoders.encoder import Encoder
from lexicept.neural.heads.sae import SAEHead
from lexicept.neural.sae.cached_states import CachedStates
from lexicept.neural.sae.model import SAE
from lexicept.neural.sae.quality import read_all, report_states
from lexicept.progress import Progress, ProgressLine
from lexicept.training.ranking.config import ValidationSettings
from lexicept.training.ranking.validation import NamedTexts, RetrievalEvaluator
from lexicept.training.sae.settings import Architecture, SAESettings
from lexicept.training.sae.trainer import train_on_states


class Collection:
    """Cached states of a collection's documents and test queries.

    Args:
        data: a BEIR folder.
        folder: where the states are or will be.
    """

    def __init__(self, data: Path, folder: Path, progress: Progress) -> None:
        documents = list(read_documents(data))
        queries = list(read_queries(data, "test"))
        backbone = Backbone.from_pretrained()

        def cache(name: str, texts: Sequence[str]) -> CachedStates:
            return CachedStates.build(folder / name, backbone, texts, progress, bf16=True)

        self.documents = cache("documents", [document.content for document in documents])
        encoded_queries = cache("queries", [query.text for query in queries])
        self.evaluator = RetrievalEvaluator(
            NamedTexts([query.id for query in queries], encoded_queries),
            NamedTexts([document.id for document in documents], self.documents),
            list(read_qrels(data, "test")),
            ValidationSettings(),
            bf16=True,
        )

    def read(self, numbers: Sequence[int]) -> Tensor:
        """Return the states [n, d] of some documents."""
        return self.documents.read(numbers)[0]

    def measure(self, sae: SAE) -> dict[str, float]:
        """Measure reconstruction of all documents' states, and retrieval by concepts alone."""
        report = report_states(read_all(self.read, len(self.documents)), sae)
        own = HeadSettings(query_k=sae.k, document_k=sae.k)
        validation = self.evaluator(Encoder.of(None, SAEHead(sae, own)))
        values = {"fvu": report.fvu, "l0": report.l0, "dead": report.dead}
        return values | {name: validation[name] for name in ("ndcg", "qd_flops", "document_length")}


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sae_variants", description=__doc__)
    parser.add_argument("data", type=Path, help="BEIR folder with a test split.")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--num-latents", type=int, default=8192)
    parser.add_argument("--k", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=1_000_000)
    arguments = parser.parse_args()
    out, done = arguments.out, arguments.out / "rows.jsonl"
    with ProgressLine() as progress:
        collection = Collection(arguments.data, out / "states", progress)
        for architecture in get_args(Architecture):
            sizes = (arguments.num_latents, arguments.k, arguments.tokens)
            settings = SAESettings(*sizes, architecture)
            if architecture not in measured(done):
                work = out / architecture
                sae = train_on_states(
                    collection.read, len(collection.documents), settings, work, progress
                )
                sae.save(work)
                values = {"architecture": architecture, **collection.measure(sae)}
                with done.open("a") as file:
                    file.write(json.dumps(values) + "\n")
    print(table(measured(done)))


def measured(path: Path) -> dict[str, dict[str, Any]]:
    """Return architecture → values of those that are finished."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {value["architecture"]: value for value in map(json.loads, lines)}


def table(rows: dict[str, dict[str, Any]]) -> str:
    """Return a Markdown table."""
    columns = ("SAE", "FVU", "ℓ0", "dead", "nDCG@10", "QD-FLOPs", "document length")
    lines = ["| " + " | ".join(columns) + " |", "| --- " * len(columns) + "|"]
    for name, line in rows.items():
        cells = (
            name,
            f"{line['fvu']:.3f}",
            f"{line['l0']:.2f}",
            f"{line['dead']:.1%}",
            f"{line['ndcg']:.3f}",
            f"{line['qd_flops']:.1f}",
            f"{line['document_length']:.0f}",
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
