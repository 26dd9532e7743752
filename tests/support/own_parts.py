"""Parts that a training's user would write, for tests by path and by class."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import TrainerCallback

from lexicept.corpora import Document
from lexicept.encoding.head_settings import HeadSettings, read_settings
from lexicept.neural.heads.base import Head
from lexicept.storage.files import write_json
from lexicept.training.ranking.losses import Ranked


class Hinge(nn.Module):
    """A margin, learned, between the relevant document and each other candidate."""

    def __init__(self, margin: float = 1.0, *, powers: tuple[int, ...] = (1,)) -> None:
        super().__init__()
        self.margin = nn.Parameter(torch.tensor(margin))
        self.powers = powers

    def __call__(self, ranked: Ranked) -> Tensor:
        pairs = ranked.mask[:, 1:] & ranked.relevant[:, None]
        gaps = ranked.lists[:, :1] - ranked.lists[:, 1:]
        errors = (self.margin - gaps).clamp(min=0)[pairs]
        return sum((errors**power).sum() for power in self.powers) / max(int(pairs.sum()), 1)


@dataclass
class Largest:
    """The sum of each text's largest weights."""

    count: int

    def __call__(self, vectors: Tensor) -> Tensor:
        return vectors.topk(self.count, dim=1).values.sum()


class LinearHead(Head):
    """A linear map of states, without a transform."""

    def __init__(self, d_in: int, size: int, seed: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.weight = nn.Parameter(torch.randn(size, d_in, generator=generator) * 0.3)
        self.offset = nn.Parameter(torch.zeros(size))
        self.settings = HeadSettings()

    def transform(self, states: Tensor) -> Tensor:
        return states

    @property
    def rows(self) -> Tensor:
        return self.weight

    @property
    def bias(self) -> Tensor:
        return self.offset

    def save(self, output_path: str, *args: Any, **kwargs: Any) -> None:
        save_file(self.state_dict(), Path(output_path) / "model.safetensors")
        write_json(Path(output_path) / "config.json", self.get_config_dict())

    @classmethod
    def read(cls, folder: Path) -> "LinearHead":
        tensors = load_file(folder / "model.safetensors")
        size, d_in = tensors["weight"].shape
        head = cls(d_in, size)
        head.load_state_dict(tensors)
        head.settings, _ = read_settings(folder)
        return head


@dataclass(frozen=True)
class CommonLetters:
    """A teacher that counts the letters of a query in a document."""

    factor: float = 1.0

    def settings(self) -> dict[str, Any]:
        return {"name": "letters", "factor": self.factor}

    def prepare(self, queries: Any, documents: Any, folder: Path, progress: Any = None) -> Any:
        def score(query_ids: Any, document_ids: Any) -> Any:
            return [
                np.array([self.factor * self.common(queries[q], documents[d]) for d in ids])
                for q, ids in zip(query_ids, document_ids, strict=True)
            ]

        return score

    @staticmethod
    def common(query: str, document: str) -> int:
        return sum(letter in document for letter in query)


@dataclass
class Lines:
    """A reader: a document for each line of a file."""

    path: str

    def __iter__(self) -> Iterator[Document]:
        for number, line in enumerate(Path(self.path).read_text().splitlines()):
            yield Document(f"d{number}", line)


class Watcher(TrainerCallback):
    """Keeps the name of each optimiser and schedule that begins."""

    seen: ClassVar[list[tuple[str, str]]] = []

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        optimizer = kwargs["optimizer"].optimizer
        self.seen.append((type(optimizer).__name__, str(args.lr_scheduler_type)))


class NoPart:
    """A class that is none of them."""


class Failing:
    def __init__(self) -> None:
        raise RuntimeError("no such\nfile")


class PerQuery:
    """A loss for each query, in place of a single number."""

    def __call__(self, ranked: Ranked) -> Tensor:
        return ranked.scores.sum(1)


@dataclass
class Constant:
    """A teacher of the same scores for every query; None for no teacher."""

    scores: list[float] | None = None

    def settings(self) -> dict[str, Any]:
        return {}

    def prepare(self, *_: Any) -> Any:
        return self.scores and (lambda queries, _: [self.scores for _ in queries])
