"""Neural teachers: embeddings and cross-encoders of sentence-transformers."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import CrossEncoder, SentenceTransformer

from lexicept.candidates.teachers import ById, Scorer
from lexicept.encoding.sources import Dtype, fetch, resolve
from lexicept.errors import InputError, first_line_of
from lexicept.neural.backbones.blocks import autocast, has_bfloat16
from lexicept.neural.backbones.loading import quiet_transformers
from lexicept.progress import Progress, silent
from lexicept.storage.arrays import load_array
from lexicept.storage.cached import cached
from lexicept.storage.files import fingerprint
from lexicept.storage.manifest import describe_files
from lexicept.storage.workspace import Workspace
from lexicept.vectors import Floats

SHARD = 1024
"""Texts of a unit of work; interrupted embedding resumes between units."""


@dataclass(frozen=True)
class CrossEncoderTeacher:
    """The logit of a CrossEncoder, which reads query and document together."""

    name: str
    """A hub name or a folder."""
    dtype: Dtype | None = None
    """Type of the model's weights; None for the saved type."""
    batch_size: int = 32
    """Pairs that go through the model at once."""

    def settings(self) -> dict[str, Any]:
        return {"model": model_identity(self.name), "dtype": self.dtype}

    def prepare(
        self, queries: ById, documents: ById, folder: Path, progress: Progress = silent
    ) -> Scorer:
        """Load the model. Raises InputError for an unreadable model or several scores."""
        model = _load(CrossEncoder, self.name, self.dtype)
        if model.num_labels != 1:
            raise InputError(f"{self.name} gives {model.num_labels} scores for a pair, not one")

        def score(query_ids: Sequence[str], document_ids: Sequence[Sequence[str]]) -> list[Floats]:
            pairs = [
                (queries[query], documents[document])
                for query, ids in zip(query_ids, document_ids, strict=True)
                for document in ids
            ]
            # The library sorts the pairs by length; a sigmoid would flatten the teacher's margins.
            logits = model.predict(
                pairs,
                batch_size=self.batch_size,
                activation_fn=torch.nn.Identity(),
                show_progress_bar=False,
            )
            return np.split(logits, np.cumsum([len(ids) for ids in document_ids])[:-1])

        return score


def embeddings(
    name: str,
    queries: Sequence[str],
    documents: Sequence[str],
    folder: Path,
    progress: Progress = silent,
    *,
    bf16: bool = False,
) -> tuple[Floats, Floats]:
    """Return embeddings f16 [n, d] of queries and documents, memory-mapped from ``folder``: written
    once for a model and texts, resumed if interrupted, of unit length if the model's similarity is
    the cosine. With ``bf16`` the model runs in bfloat16 if the device supports it. Raises
    InputError if the model can't be loaded."""
    model = _load(SentenceTransformer, name)
    bf16 = bf16 and has_bfloat16(model.device)
    identity = [model_identity(name), "bf16"] if bf16 else model_identity(name)
    parameters = json.dumps(identity, sort_keys=True)
    size = model.get_embedding_dimension()
    cosine = model.similarity_fn_name == "cosine"
    arrays = []
    for side, encode, texts in (
        ("queries", model.encode_query, queries),
        ("documents", model.encode_document, documents),
    ):
        path = folder / f"{fingerprint(chain([parameters, side], texts))}.npy"
        quiet = partial(encode, show_progress_bar=False, normalize_embeddings=cosine)
        make = partial(_embed, quiet, texts, size, path, partial(progress, f"embed {side}"))
        with autocast(model.device, bf16):
            arrays.append(cached(path, make, partial(load_array, dtype=np.float16, ndim=2)))
    return arrays[0], arrays[1]


def _embed(
    encode: Callable[[Sequence[str]], Floats],
    texts: Sequence[str],
    size: int,
    path: Path,
    progress: Callable[[int, int], None],
) -> None:
    """Write embeddings f16 [n, size], shard by shard; an interrupted run is resumed."""
    with Workspace(path, "embed", {"embeddings": path.stem}) as work:
        array = work.growing(path.name)
        # A .npy header first, then rows appended shard by shard.
        if not array.size:
            header = io.BytesIO()
            described = {"descr": "<f2", "fortran_order": False, "shape": (len(texts), size)}
            np.lib.format.write_array_header_1_0(header, described)
            array.append(header.getvalue(), 0)
        for start in range(array.done, len(texts), SHARD):
            shard = texts[start : start + SHARD]
            with np.errstate(over="ignore"):  # infinity is refused as a score
                vectors = np.asarray(encode(shard)).astype("<f2")
            array.append(vectors.tobytes(), start + len(shard))
            progress(start + len(shard), len(texts))
        work.publish(array.path)


def check_dense(name: str) -> None:
    """Load a dense teacher and drop it. Raises InputError for an unreadable model."""
    _load(SentenceTransformer, name)


def _load(model_type: Callable[..., Any], name: str, dtype: Dtype | None = None) -> Any:
    try:
        with quiet_transformers():
            return model_type(fetch(name), model_kwargs={} if dtype is None else {"dtype": dtype})
    except (OSError, ValueError) as error:
        raise InputError(f"teacher {name!r} can't be loaded: {first_line_of(error)}") from None


def model_identity(name: str) -> Any:
    """Return a JSON value that identifies a model: a folder's checksums, or a hub name."""
    path = Path(resolve(name))
    return describe_files(path, path) if path.is_dir() else name
