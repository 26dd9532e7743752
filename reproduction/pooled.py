"""CL-SR (Park et al. 2025): an SAE over a dense retriever's pooled vectors, searched by BM25.

Passages, their vectors and their latents stay on disk and are read in blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from lexicept.evaluation.runs import run_of_rows
from lexicept.models.sae.model import SAE
from lexicept.progress import Progress
from lexicept.storage.files import fingerprint
from lexicept.training.candidates.neural_teachers import embeddings
from lexicept.training.sae.trainer import train_on_states
from lexicept.vectors import Floats, Integers
from lexicept.weighting import BM25
from reproduction.data import Data, fetching, judged
from reproduction.jobs import PooledJob
from reproduction.measuring import DEPTH, Collection, Measurements, measure, measure_run
from reproduction.stored import documents_of, encoded_rows
from reproduction.trained import key

CLSR = BM25(k1=0.6, b=0.0, k3=1.5)
"""CL-SR's weighting, without its code's b of 2, on numbers of latents that k makes equal, and its
idf, which is below 0 for latents of more than half of the documents."""

BLOCK = 8192
"""Vectors that are read at once."""


def run_pooled(job: PooledJob, data: Data) -> Measurements:
    """Train an SAE to rebuild documents' pooled vectors, and search its latents by BM25.

    ``FVU`` is that of the documents that the SAE learned from, ``unseen FVU`` that of others.

    Raises:
        MissingDataError: a dataset or model that is not here.
    """
    measurements = Measurements()
    for dataset in job.datasets:
        with fetching(dataset.name, data):
            source = data.find(dataset.name)
            corpus = documents_of(source, data.work)
            queries, qrels = judged(source, dataset.split, dataset.queries)
        asked = [query.text for query in queries]
        name = data.place(job.model)
        Q, D = embeddings(name, asked, corpus.contents, data.work / "embeddings", data.progress)
        ids = (corpus.ids, [query.id for query in queries])
        ignored = data.ignores_identical_ids(dataset.name)
        if job.dense:
            scored = nearest(Q, D, min(DEPTH + ignored, len(D)))
            run = run_of_rows(ids[1], scored, ids[0])
            measure_run(dataset.title, run, qrels, measurements, ignored)
            continue
        parts = Parts.of(len(D), job.unseen)
        identity = [asdict(job.sae), name, fingerprint(corpus.contents), job.unseen]
        place = data.work / "pooled" / key(identity)
        sae = _trained(job, D, parts, place, data.progress)
        k = job.document_k or sae.k
        encode = partial(latents_of, sae, k=k)
        indexed = encoded_rows(place / f"latents-{k}", D, sae.num_latents, encode, data.progress)
        weights = CLSR.queries(latents_of(sae, Q, job.query_k or sae.k))
        collection = Collection(
            dataset.title,
            ids[0],
            indexed,
            ids[1],
            weights,
            qrels,
            ignore_identical_ids=ignored,
            weighting=CLSR,
            folder=data.work / "postings",
        )
        measure(collection, measurements)
        measurements.values[f"{dataset.title} FVU"] = unexplained(sae, D, parts.learned)
        if len(parts.unseen):
            measurements.values[f"{dataset.title} unseen FVU"] = unexplained(sae, D, parts.unseen)
    return measurements


class Parts(NamedTuple):
    """Rows of the documents that an SAE learns from, and of the others."""

    learned: Integers
    unseen: Integers

    @classmethod
    def of(cls, count: int, unseen: float) -> Parts:
        """Draw a share of unseen rows below a count."""
        order = np.random.default_rng(0).permutation(count)
        size = round(unseen * count)
        return cls(np.sort(order[size:]), np.sort(order[:size]))


def _trained(job: PooledJob, D: Floats, parts: Parts, place: Path, progress: Progress) -> SAE:
    place.mkdir(parents=True, exist_ok=True)

    def read(numbers: Sequence[int]) -> Tensor:
        return _single(D[parts.learned[np.asarray(numbers)]])

    return train_on_states(read, len(parts.learned), job.sae, place, progress)


def _single(vectors: Floats) -> Tensor:
    """Return vectors of a file as a tensor of their own in single precision."""
    return torch.from_numpy(np.array(vectors, np.float32))


def _blocks(vectors: Floats, rows: Integers | None = None) -> Iterator[Tensor]:
    count = len(vectors) if rows is None else len(rows)
    for start in range(0, count, BLOCK):
        some: Any = slice(start, start + BLOCK)
        yield _single(vectors[some if rows is None else rows[some]])


def nearest(Q: Floats, D: Floats, depth: int) -> Iterator[tuple[Integers, Floats]]:
    """Yield the rows and products of the ``depth`` documents [N, d] with the largest inner products
    with each query [n, d], the largest first."""
    asked = _single(Q)
    scores, rows = asked.new_zeros(len(Q), 0), torch.zeros(len(Q), 0, dtype=torch.long)
    for number, block in enumerate(_blocks(D)):
        own = torch.arange(len(block)) + number * BLOCK
        both = torch.cat([scores, asked @ block.T], dim=1)
        places = torch.cat([rows, own.expand(len(Q), -1)], dim=1)
        scores, kept = both.topk(min(depth, both.shape[1]), dim=1)
        rows = places.gather(1, kept)
    return zip(rows.numpy(), scores.numpy(), strict=True)


def latents_of(sae: SAE, vectors: Floats, k: int | None) -> sp.csr_array:
    """Return the k largest activations of each vector [n, d], all where k is None: CSR f32
    [n, M]."""
    parts = [sp.csr_array((0, sae.num_latents), dtype=np.float32)]
    for block in _blocks(vectors):
        with torch.inference_mode():
            values, columns = sae.encode(block, k)
        rows = np.repeat(np.arange(len(block)), values.shape[1])
        places = (rows, columns.numpy().ravel())
        matrix = sp.csr_array((values.numpy().ravel(), places), (len(block), sae.num_latents))
        matrix.eliminate_zeros()
        parts.append(matrix)
    return sp.csr_array(sp.vstack(parts, format="csr"))


def unexplained(sae: SAE, vectors: Floats, rows: Integers) -> float:
    """Return the fraction of variance of some rows of vectors [n, d] that an SAE leaves
    unexplained."""
    error, squares, total = 0.0, 0.0, np.zeros(vectors.shape[1])
    for block in _blocks(vectors, rows):
        with torch.inference_mode():
            error += float((sae(block) - block).double().square().sum())
        squares += float(block.double().square().sum())
        total += block.double().sum(dim=0).numpy()
    variance = squares - float(total @ total) / len(rows)
    return error / variance if variance > 0 else 0.0
