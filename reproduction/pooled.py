"""CL-SR (Park et al. 2025): an SAE over a dense retriever's pooled vectors, searched by BM25.

Passages, vectors and latents stay on disk and are read in blocks.
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

from lexicept.evaluation.runs import run_of_rows, without_identical_ids
from lexicept.neural.sae.model import SAE
from lexicept.progress import Progress
from lexicept.storage.files import fingerprint
from lexicept.training.ranking.neural_teachers import embeddings
from lexicept.training.sae.trainer import train_on_states
from lexicept.vectors import Floats, Integers
from lexicept.weighting import BM25
from reproduction.data import Data, fetching, judged
from reproduction.jobs import PooledJob
from reproduction.measuring import DEPTH, Collection, Measurements, measure, measure_run
from reproduction.stored import documents_of, encoded_vectors
from reproduction.trained import key

CLSR = BM25(k1=0.6, b=0.0, k3=1.5)
"""CL-SR's weighting, without its code's b of 2, on numbers of latents that k makes equal, and its
idf, which is below 0 for latents of more than half of the documents."""

BLOCK = 8192
"""Vectors in memory at once."""


def run_pooled(job: PooledJob, data: Data) -> Measurements:
    """Train an SAE to rebuild documents' pooled vectors, and search the latents by BM25.

    ``FVU`` is of the documents that the SAE learned from, ``unseen FVU`` of the other documents.

    Raises:
        MissingDataError: a dataset or model that is missing.
    """
    measurements = Measurements()
    for dataset in job.datasets:
        with fetching(dataset.name, data):
            source = data.find(dataset.name)
            corpus = documents_of(source, data.work)
            queries = judged(source, dataset.split, dataset.queries)
        name, title = data.place(job.model), dataset.title
        folder = data.work / "embeddings"
        Q, D = embeddings(name, queries.texts, corpus.contents, folder, data.progress)
        ignored = data.ignores_identical_ids(dataset.name)
        if job.dense:
            run = run_of_rows(queries.ids, nearest(Q, D, min(DEPTH + ignored, len(D))), corpus.ids)
            run = without_identical_ids(run, DEPTH) if ignored else run
            measure_run(title, run, queries.qrels, measurements, ignored)
            continue
        sample = Sample.of(len(D), job.unseen)
        identity = [asdict(job.sae), name, fingerprint(corpus.contents), job.unseen]
        place = data.work / "pooled" / key(identity)
        sae = _trained(job, D, sample, place, data.progress)
        latents = encoded_vectors(
            place / f"latents-{sae.k}", D, sae.num_latents, partial(latents_of, sae), data.progress
        )
        collection = Collection(
            title,
            corpus.ids,
            latents,
            queries.ids,
            CLSR.queries(latents_of(sae, Q)),
            queries.qrels,
            ignore_identical_ids=ignored,
            weighting=CLSR,
            folder=data.work / "postings",
        )
        measure(collection, measurements)
        measurements.values[f"{title} FVU"] = unexplained(sae, D, sample.learned)
        if len(sample.unseen):
            measurements.values[f"{title} unseen FVU"] = unexplained(sae, D, sample.unseen)
    return measurements


class Sample(NamedTuple):
    """Numbers of the documents that an SAE learns from, and of the other documents."""

    learned: Integers
    unseen: Integers

    @classmethod
    def of(cls, count: int, unseen: float) -> Sample:
        """Draw a share of unseen numbers below a count."""
        order = np.random.default_rng(0).permutation(count)
        size = round(unseen * count)
        return cls(np.sort(order[size:]), np.sort(order[:size]))


def _trained(job: PooledJob, D: Floats, sample: Sample, place: Path, progress: Progress) -> SAE:
    place.mkdir(parents=True, exist_ok=True)

    def read(numbers: Sequence[int]) -> Tensor:
        return _single(D[sample.learned[np.asarray(numbers)]])

    return train_on_states(read, len(sample.learned), job.sae, place, progress)


def _single(vectors: Floats) -> Tensor:
    """Return a copy of vectors in single precision."""
    return torch.from_numpy(np.array(vectors, np.float32))


def _blocks(vectors: Floats, numbers: Integers | None = None) -> Iterator[Tensor]:
    for start in range(0, len(vectors if numbers is None else numbers), BLOCK):
        block: Any = slice(start, start + BLOCK)
        yield _single(vectors[block if numbers is None else numbers[block]])


def nearest(Q: Floats, D: Floats, depth: int) -> Iterator[tuple[Integers, Floats]]:
    """Yield the numbers and scores of the ``depth`` documents [N, d] with the largest inner
    products with each query [n, d], the largest first."""
    queries = _single(Q)
    scores, numbers = queries.new_zeros(len(Q), 0), torch.zeros(len(Q), 0, dtype=torch.long)
    for count, block in enumerate(_blocks(D)):
        block_numbers = torch.arange(len(block)) + count * BLOCK
        candidates = torch.cat([numbers, block_numbers.expand(len(Q), -1)], dim=1)
        products = torch.cat([scores, queries @ block.T], dim=1)
        scores, places = products.topk(min(depth, products.shape[1]), dim=1)
        numbers = candidates.gather(1, places)
    return zip(numbers.numpy(), scores.numpy(), strict=True)


@torch.inference_mode()
def latents_of(sae: SAE, vectors: Floats) -> sp.csr_array:
    """Return the k largest activations of each vector [n, d]: CSR f32 [n, M]."""
    blocks = [sp.csr_array((0, sae.num_latents), dtype=np.float32)]
    for block in _blocks(vectors):
        values, columns = sae.encode(block)
        numbers = np.repeat(np.arange(len(block)), values.shape[1])
        entries = (values.numpy().ravel(), (numbers, columns.numpy().ravel()))
        matrix = sp.csr_array(entries, (len(block), sae.num_latents))
        matrix.eliminate_zeros()
        blocks.append(matrix)
    return sp.csr_array(sp.vstack(blocks, format="csr"))


@torch.inference_mode()
def unexplained(sae: SAE, vectors: Floats, numbers: Integers) -> float:
    """Return the fraction of variance of some vectors [n, d] that an SAE leaves unexplained."""
    error, squares, total = 0.0, 0.0, np.zeros(vectors.shape[1])
    for block in _blocks(vectors, numbers):
        error += float((sae(block) - block).double().square().sum())
        squares += float(block.double().square().sum())
        total += block.double().sum(dim=0).numpy()
    variance = squares - float(total @ total) / len(numbers)
    return error / variance if variance > 0 else 0.0
