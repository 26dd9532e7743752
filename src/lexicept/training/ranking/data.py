"""Batches of training: samples of candidate lists, read from disk when drawn."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from lexicept.candidates.lists import CandidateList
from lexicept.candidates.teachers import Scorer
from lexicept.errors import InputError
from lexicept.neural.backbones.backbone import Backbone
from lexicept.neural.sae.cached_states import CachedStates
from lexicept.training.ranking.config import TeacherSettings
from lexicept.vectors import Floats

CHECKED_LISTS = 1000
"""Lists with a look-up of queries and documents before training."""

TAUGHT = 2**16
"""Documents scored at once by a teacher that mines."""


@dataclass(frozen=True)
class TeacherScores:
    """Teacher for any query and any document, from embeddings on disk."""

    settings: TeacherSettings
    queries: Floats | None = None
    """Embeddings [queries, d], compared by dot product: of unit length for a cosine."""
    documents: Floats | None = None
    """Embeddings [documents, d]."""
    own: Scorer | None = None
    """Scorer of an own teacher."""


class WordWeights(NamedTuple):
    """BM25 weights of words, CSR [n, V]."""

    queries: sp.csr_array
    documents: sp.csr_array


@dataclass(eq=False)
class TrainingData:
    """Queries, documents and candidate lists. Raises InputError for no lists. Unknown queries and
    documents are errors when a list is drawn; see ``check_lists``."""

    query_ids: Sequence[str]
    queries: Sequence[str]
    document_ids: Sequence[str]
    documents: Sequence[str]
    lists: Sequence[CandidateList]
    word_weights: WordWeights | None = None
    """BM25 weights, for a teacher or a score with words."""
    teacher: TeacherScores | None = None

    def __post_init__(self) -> None:
        if not len(self.lists):
            raise InputError("there are no candidate lists to train on")
        self._query_indices = {name: index for index, name in enumerate(self.query_ids)}
        self._document_indices = {name: index for index, name in enumerate(self.document_ids)}

    def query_index(self, query_id: str) -> int:
        """Return a query's index. Raises InputError for an unknown id."""
        return _index_of(self._query_indices, query_id, "query")

    def document_indices(self, document_ids: Sequence[str]) -> list[int]:
        """Return documents' indices. Raises InputError for an unknown id."""
        return [_index_of(self._document_indices, name, "document") for name in document_ids]

    def check_lists(self, *, scored: bool = False) -> None:
        """Look up the queries and documents of ``CHECKED_LISTS`` evenly spaced lists, so that an
        unknown id, or a list without scores that has to be ``scored``, is an InputError before
        minutes of training."""
        step = max(1, len(self.lists) // CHECKED_LISTS)
        for index in range(0, len(self.lists), step):
            candidates = self.lists[index]
            self.query_index(candidates.query_id)
            self.document_indices(candidates.documents)
            if scored and candidates.scores is None:
                raise InputError(f"the list of the query {candidates.query_id!r} has no scores")

    def words(self, queries: Sequence[int], documents: Sequence[int]) -> Tensor:
        """Return BM25's scores [queries, documents]. Raises InputError without BM25 weights."""
        if self.word_weights is None:
            raise InputError("these training data have no BM25 weights")
        scores = self.word_weights.queries[queries] @ self.word_weights.documents[documents].T
        return torch.from_numpy(scores.toarray()).float()

    def teach(self, queries: Sequence[int], documents: Sequence[int]) -> Tensor | None:
        """Return the teacher's score of every pair [queries, documents]; None without a teacher."""
        if self.teacher is None:
            return None
        settings, scores = self.teacher.settings, torch.zeros(len(queries), len(documents))
        if settings.bm25_weight:
            scores += settings.bm25_weight * self.words(queries, documents)
        if self.teacher.queries is not None and self.teacher.documents is not None:
            q = torch.from_numpy(np.asarray(self.teacher.queries[queries], np.float32))
            d = torch.from_numpy(np.asarray(self.teacher.documents[documents], np.float32))
            scores += settings.dense_weight * (q @ d.T)
        if self.teacher.own is not None:
            ids = [self.document_ids[index] for index in documents]
            scored = self.teacher.own([self.query_ids[q] for q in queries], [ids] * len(queries))
            try:
                given = [torch.as_tensor(of_query).detach().float().cpu() for of_query in scored]
            except (RuntimeError, TypeError, ValueError):
                given = []
            if [each.shape for each in given] != [(len(documents),)] * len(queries):
                expected = f"{len(documents)} scores of each of {len(queries)} queries"
                raise InputError(f"teacher.own: {expected} expected, not {scored!r:.80}")
            scores += settings.own_weight * torch.stack(given)
        return scores

    def best(self, queries: range, count: int) -> list[list[int]]:
        """Return the indices of each query's ``count`` best documents by teacher, best first."""
        scores = torch.empty(len(queries), 0)
        documents = torch.empty(len(queries), 0, dtype=torch.long)
        # The best so far compete with each block of documents, so that memory stays bounded.
        for start in range(0, len(self.document_ids), TAUGHT):
            block = range(start, min(start + TAUGHT, len(self.document_ids)))
            taught = self.teach(queries, block)
            assert taught is not None
            scores = torch.cat([scores, taught], dim=1)
            documents = torch.cat([documents, torch.tensor(block).expand(len(queries), -1)], dim=1)
            scores, best = scores.topk(min(count, scores.shape[1]), dim=1)
            documents = documents.gather(1, best)
        return documents.tolist()


def _index_of(indices: Mapping[str, int], name: str, role: str) -> int:
    index = indices.get(name)
    if index is None:
        raise InputError(f"a candidate list names the {role} {name!r}, which is unknown")
    return index


class Sample(NamedTuple):
    """A query of a step, with candidates."""

    query: int
    documents: list[int]
    """Numbers of candidates; the first is relevant if ``relevant`` is true."""
    relevant: bool
    scores: list[float] | None
    """Scores of the candidates; None for a list without scores."""
    all_relevant: list[int]
    """Numbers of all known relevant documents."""


@dataclass
class Sampler:
    """Samples by number: a function of the seed, for resumed runs.

    Every pass goes over all lists in a new order and draws new candidates.
    """

    data: TrainingData
    negatives: int
    positive_share: float
    seed: int
    _order: tuple[int, np.ndarray] = (-1, np.empty(0))
    """An epoch, and the order of the lists in the epoch."""

    def __getitem__(self, index: int) -> Sample:
        epoch, position = divmod(index, len(self.data.lists))
        # The order of an epoch is drawn once, and again after a resume.
        if self._order[0] != epoch:
            random = np.random.default_rng((self.seed, epoch))
            self._order = (epoch, random.permutation(len(self.data.lists)))
        candidates = self.data.lists[int(self._order[1][position])]
        random = np.random.default_rng((self.seed, 1, index))
        # Places in the list: at most one relevant document, then other candidates.
        positions: list[int] = []
        negatives = len(candidates.documents) - candidates.relevant
        share = self.positive_share if negatives else 1.0
        relevant = bool(candidates.relevant) and random.random() < share
        if relevant:
            positions.append(int(random.integers(candidates.relevant)))
        count = min(negatives, self.negatives + (not relevant))
        if count:
            drawn = random.choice(negatives, count, replace=False) + candidates.relevant
            positions.extend(int(n) for n in drawn)
        return Sample(
            self.data.query_index(candidates.query_id),
            self.data.document_indices([candidates.documents[n] for n in positions]),
            relevant,
            None if candidates.scores is None else [candidates.scores[n] for n in positions],
            self.data.document_indices(candidates.documents[: candidates.relevant]),
        )


@dataclass(frozen=True)
class Collator:
    """Sample numbers → one batch: features of queries and of distinct documents, and targets.

    ``targets`` for B queries, D distinct documents and lists of n:

    - ``columns`` [B, n]: position of each candidate among the documents;
    - ``mask`` [B, n]: True for candidates, False for padding;
    - ``relevant`` [B]: True if column 0 is a relevant document;
    - ``known`` [B, D]: known relevant documents;
    - ``query_ids``: ids of the queries, for errors;
    - optionally ``scores`` [B, n], ``teacher`` [B, D] and ``words`` [B, D].
    """

    sampler: Sampler
    data: TrainingData
    source: Backbone | tuple[CachedStates, CachedStates]
    """A backbone, to run in the model, or cached states of queries and documents."""
    max_tokens: tuple[int, int] = (64, 256)
    """Limits of a query and a document, where texts are cut."""
    mini_batch: int | None = None
    """Texts through the model at once; None for all."""
    words: bool = False
    """True if the score needs BM25."""
    prompts: tuple[str, str] = ("", "")
    """Prompts before queries and documents; cached states include them."""

    def __call__(self, examples: Sequence[dict[str, int]]) -> dict[str, Any]:
        """Return a batch for the items ``{"number": n}`` of a ``datasets.Dataset``."""
        samples = [self.sampler[item["number"]] for item in examples]
        queries = [sample.query for sample in samples]
        documents = sorted({document for sample in samples for document in sample.documents})
        return {
            "query": self._features(0, queries),
            "document": self._features(1, documents),
            "targets": self._targets(samples, queries, documents),
        }

    def sample(
        self, side: int, count: int, size: int, share: tuple[int, int], seed: int
    ) -> Iterator[dict[str, Any]]:
        """Yield the features of a sample of ``count`` queries (side 0) or documents (1), drawn by
        the seed, in batches of ``size``. A process's ``share`` is its index and the number of
        processes."""
        texts = self.data.documents if side else self.data.queries
        random = np.random.default_rng((seed, 2, side))
        sample = sorted(random.choice(len(texts), min(count, len(texts)), replace=False).tolist())
        process, processes = share
        process_sample = sample[process::processes]
        for start in range(0, len(process_sample), size):
            yield self._texts(side, process_sample[start : start + size])

    def _targets(
        self, samples: Sequence[Sample], queries: list[int], documents: list[int]
    ) -> dict[str, Any]:
        column_of = {document: column for column, document in enumerate(documents)}
        longest = max(len(sample.documents) for sample in samples)
        columns = torch.zeros(len(samples), longest, dtype=torch.long)
        mask = torch.zeros(len(samples), longest, dtype=torch.bool)
        scores = torch.zeros(len(samples), longest)
        relevant = torch.zeros(len(samples), len(documents), dtype=torch.bool)
        for index, sample in enumerate(samples):
            size = len(sample.documents)
            columns[index, :size] = torch.tensor([column_of[n] for n in sample.documents])
            mask[index, :size] = True
            if sample.scores is not None:
                scores[index, :size] = torch.tensor(sample.scores)
            relevant[index, [column_of[n] for n in sample.all_relevant if n in column_of]] = True
        # Scores of a list hold for its query alone; the teacher scores all pairs of the batch.
        targets: dict[str, Any] = {
            "columns": columns,
            "mask": mask,
            "known": relevant,
            "relevant": torch.tensor([sample.relevant for sample in samples]),
            "query_ids": [self.data.query_ids[query] for query in queries],
        }
        if all(sample.scores is not None for sample in samples):
            targets["scores"] = scores
        teacher = self.data.teach(queries, documents)
        if teacher is not None:
            targets["teacher"] = teacher
        if self.words:
            targets["words"] = self.data.words(queries, documents)
        return targets

    def _features(self, side: int, indices: list[int]) -> list[dict[str, Any]]:
        step = self.mini_batch or len(indices)
        return [
            self._texts(side, indices[start : start + step])
            for start in range(0, len(indices), step)
        ]

    def _texts(self, side: int, indices: list[int]) -> dict[str, Any]:
        """Return the features of texts by number."""
        limit = self.max_tokens[side]
        if isinstance(self.source, tuple):
            return self.source[side].features(indices, limit)
        texts = self.data.documents if side else self.data.queries
        selected = [texts[index] for index in indices]
        return self.source.preprocess(selected, prompt=self.prompts[side], max_length=limit)


class Mixture:
    """``count`` batches of ``size`` samples over several collections. A batch is of one collection,
    drawn by ``weights``, and goes on where the collection's last batch ended.
    """

    def __init__(
        self, collators: list[Collator], weights: list[float], size: int, count: int, seed: int
    ) -> None:
        self._collators, self._size = collators, size
        self._shares = np.array(weights) / sum(weights)
        random = np.random.default_rng((seed, 3))
        self._drawn = random.choice(len(collators), count, p=self._shares)
        """The collection of each batch [count]."""
        self._earlier = np.zeros(count, np.int64)
        """The number of earlier batches of the same collection [count]."""
        for collection in range(len(collators)):
            of_collection = self._drawn == collection
            self._earlier[of_collection] = np.arange(of_collection.sum())

    def __call__(self, examples: Sequence[dict[str, int]]) -> dict[str, Any]:
        """Return a batch for the ``size`` items ``{"number": n}`` of a batch."""
        batch = examples[0]["number"] // self._size
        moved = int(self._earlier[batch] - batch) * self._size
        items = [{"number": item["number"] + moved} for item in examples]
        return self._collators[int(self._drawn[batch])](items)

    def sample(
        self, side: int, count: int, size: int, share: tuple[int, int], seed: int
    ) -> Iterator[dict[str, Any]]:
        """Yield the features of a sample of all collections, by weight; see ``Collator.sample``."""
        for collator, weight in zip(self._collators, self._shares, strict=True):
            yield from collator.sample(side, math.ceil(count * weight), size, share, seed)
