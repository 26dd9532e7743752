"""Batches of training: samples of candidate lists, read from disk when they are drawn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from lexicept.errors import InputError
from lexicept.models.backbone import Backbone
from lexicept.models.cached_states import CachedStates
from lexicept.models.lookup import Lookup
from lexicept.storage.sequences import NumberOf
from lexicept.training.candidates.late_interaction import LateInteraction
from lexicept.training.candidates.lists import CandidateList
from lexicept.vectors import Floats

CHECKED_LISTS = 1000
"""Lists whose queries and documents are looked up before a training begins."""


@dataclass(frozen=True)
class TeacherScores:
    """Teacher that scores any query with any document, from what is on disk."""

    queries: Floats | None = None
    """Embeddings [queries, d], compared by dot product: of unit length for a cosine."""
    documents: Floats | None = None
    """Embeddings [documents, d]."""
    dense_weight: float = 0.0
    """Weight of the embeddings' dot product."""
    bm25_weight: float = 0.0
    """Weight of BM25."""
    max_sim_weight: float = 0.0
    """Weight of MaxSim."""
    late_interaction: LateInteraction | None = None
    """Token states that MaxSim compares; None leaves it out."""


class TrainingData:
    """Queries, documents and candidate lists.

    Args:
        query_ids, queries: ids and texts.
        document_ids, documents: ids and texts.
        lists: of queries and documents among these.
        word_queries, word_documents: BM25 weights of their words, CSR [n, V], where a teacher or
            the score needs them.

    Raises:
        InputError: no lists. Unknown queries and documents raise it when their list is drawn; see
            ``check_lists``.
    """

    def __init__(
        self,
        query_ids: Sequence[str],
        queries: Sequence[str],
        document_ids: Sequence[str],
        documents: Sequence[str],
        lists: Sequence[CandidateList],
        word_queries: sp.csr_array | None = None,
        word_documents: sp.csr_array | None = None,
        teacher: TeacherScores | None = None,
    ) -> None:
        if not len(lists):
            raise InputError("there are no candidate lists to train on")
        self.query_ids, self.queries = query_ids, queries
        self.document_ids, self.documents = document_ids, documents
        self.lists = lists
        self.word_queries, self.word_documents = word_queries, word_documents
        self.teacher = teacher
        self._query_rows = NumberOf(query_ids)
        self._document_rows = NumberOf(document_ids)

    def query_row(self, query_id: str) -> int:
        """Return a query's row. Raises InputError for an unknown id."""
        return _row(self._query_rows, query_id, "query")

    def document_rows(self, document_ids: Sequence[str]) -> list[int]:
        """Return documents' rows. Raises InputError for an unknown id."""
        return [_row(self._document_rows, name, "document") for name in document_ids]

    def check_lists(self, count: int = CHECKED_LISTS) -> None:
        """Look up the queries and documents of lists that are spread evenly over all.

        Raises:
            InputError: an unknown one, which training would meet when it draws the list.
        """
        step = max(1, len(self.lists) // count)
        for number in range(0, len(self.lists), step):
            one = self.lists[number]
            self.query_row(one.query_id)
            self.document_rows(one.documents)

    def words(self, queries: Sequence[int], documents: Sequence[int]) -> Tensor:
        """Return BM25's score of every pair [queries, documents]. Raises InputError without BM25
        weights."""
        if self.word_queries is None or self.word_documents is None:
            raise InputError("these training data have no BM25 weights")
        scores = self.word_queries[queries] @ self.word_documents[documents].T
        return torch.from_numpy(scores.toarray()).float()

    def teach(self, queries: Sequence[int], documents: Sequence[int]) -> Tensor | None:
        """Return the teacher's score of every pair [queries, documents]; None without a teacher."""
        if self.teacher is None:
            return None
        scores = torch.zeros(len(queries), len(documents))
        if self.teacher.bm25_weight:
            scores += self.teacher.bm25_weight * self.words(queries, documents)
        if self.teacher.queries is not None and self.teacher.documents is not None:
            q = torch.from_numpy(np.asarray(self.teacher.queries[queries], np.float32))
            d = torch.from_numpy(np.asarray(self.teacher.documents[documents], np.float32))
            scores += self.teacher.dense_weight * (q @ d.T)
        if self.teacher.late_interaction is not None:
            late = self.teacher.late_interaction.scores(queries, documents)
            scores += self.teacher.max_sim_weight * late
        return scores


def _row(rows: NumberOf, name: str, kind: str) -> int:
    row = rows.find(name)
    if row is None:
        raise InputError(f"a candidate list names the {kind} {name!r}, which is unknown")
    return row


class Sample(NamedTuple):
    """A query of a step, with its candidates."""

    query: int
    documents: list[int]
    """Rows of its candidates; the first is a relevant one where ``relevant`` is true."""
    relevant: bool
    scores: list[float] | None
    """Scores of the candidates, where the list has scores."""
    known: list[int]
    """Rows of all documents that are known to be relevant."""


class Sampler:
    """Samples by number, a function of the seed, so that a resumed run sees the same.

    Every pass goes over all lists in a new order and draws new candidates.
    """

    def __init__(self, data: TrainingData, negatives: int, positive_share: float, seed: int):
        self._data = data
        self._negatives = negatives
        self._positive_share = positive_share
        self._seed = seed
        self._order: tuple[int, np.ndarray] = (-1, np.empty(0))

    def __getitem__(self, number: int) -> Sample:
        epoch, place = divmod(number, len(self._data.lists))
        if self._order[0] != epoch:
            random = np.random.default_rng((self._seed, epoch))
            self._order = (epoch, random.permutation(len(self._data.lists)))
        candidates = self._data.lists[int(self._order[1][place])]
        random = np.random.default_rng((self._seed, 1, number))
        chosen: list[int] = []
        share = self._positive_share if len(candidates.documents) - candidates.relevant else 1.0
        relevant = bool(candidates.relevant) and random.random() < share
        if relevant:
            chosen.append(int(random.integers(candidates.relevant)))
        rest = len(candidates.documents) - candidates.relevant
        wanted = min(rest, self._negatives + (not relevant))
        if wanted:
            drawn = random.choice(rest, wanted, replace=False) + candidates.relevant
            chosen.extend(int(n) for n in drawn)
        return Sample(
            self._data.query_row(candidates.query_id),
            self._data.document_rows([candidates.documents[n] for n in chosen]),
            relevant,
            None if candidates.scores is None else [candidates.scores[n] for n in chosen],
            self._data.document_rows(candidates.documents[: candidates.relevant]),
        )


class Collator:
    """Sample numbers → one batch: features of queries and of distinct documents, and targets.

    ``targets`` hold, for B queries, D distinct documents and lists of n: ``columns`` [B, n], the
    place of each candidate among the documents, ``mask`` [B, n], real candidates, ``relevant``
    [B], whether column 0 is a relevant one, ``known`` [B, D], known relevant documents,
    ``queries`` [B], rows, and where they are needed ``scores`` [B, n], ``teacher`` [B, D] and
    ``words`` [B, D].

    Args:
        sampler: gives a sample for a number.
        data: texts and teachers.
        source: a backbone, which then runs in the model, or caches for queries and documents.
        lookup: what encodes queries without either.
        max_tokens: of a query and a document; the rest is cut.
        mini_batch: texts that go through the model at once; None for all.
        words: whether the score needs BM25.
    """

    def __init__(
        self,
        sampler: Sampler,
        data: TrainingData,
        source: Backbone | tuple[CachedStates | None, CachedStates],
        max_tokens: tuple[int, int] = (64, 256),
        mini_batch: int | None = None,
        words: bool = False,
        lookup: Lookup | None = None,
    ) -> None:
        self._lookup = lookup
        self._sampler, self._data, self._source = sampler, data, source
        self._max_tokens, self.mini_batch, self._words = max_tokens, mini_batch, words

    def __call__(self, numbers: Sequence[dict[str, int]]) -> dict[str, Any]:
        """Return a batch; ``numbers`` are rows of a ``datasets.Dataset``."""
        samples = [self._sampler[row["number"]] for row in numbers]
        queries = [sample.query for sample in samples]
        documents = sorted({row for sample in samples for row in sample.documents})
        return {
            "query": self._features(0, queries),
            "document": self._features(1, documents),
            "targets": self._targets(samples, queries, documents),
        }

    def sample(
        self, side: int, count: int, size: int, share: tuple[int, int], seed: int
    ) -> Iterator[tuple[dict[str, Any], int]]:
        """Yield parts of a sample of all queries (side 0) or documents (1): features, and the
        number of texts that count, which are the first ones.

        All shares have equally many parts and texts; those with fewer of their own repeat one.

        Args:
            count: texts of the sample, which the seed draws.
            size: texts of a part.
            share: a number and a total; only every such text of the sample is yielded.
        """
        texts = self._data.documents if side else self._data.queries
        random = np.random.default_rng((seed, 2, side))
        chosen = random.choice(len(texts), min(count, len(texts)), replace=False)
        rows = sorted(chosen.tolist())
        own = rows[share[0] :: share[1]]
        more = -(-len(rows) // share[1]) - len(own)
        for start in range(0, len(own) + more, size):
            part = [*own, *rows[:more]][start : start + size]
            yield self._part(side, part), min(len(part), len(own) - start)

    def _targets(
        self, samples: Sequence[Sample], queries: list[int], documents: list[int]
    ) -> dict[str, Tensor]:
        place = {row: column for column, row in enumerate(documents)}
        longest = max(len(sample.documents) for sample in samples)
        columns = torch.zeros(len(samples), longest, dtype=torch.long)
        mask = torch.zeros(len(samples), longest, dtype=torch.bool)
        scores = torch.zeros(len(samples), longest)
        known = torch.zeros(len(samples), len(documents), dtype=torch.bool)
        for number, sample in enumerate(samples):
            size = len(sample.documents)
            columns[number, :size] = torch.tensor([place[row] for row in sample.documents])
            mask[number, :size] = True
            if sample.scores is not None:
                scores[number, :size] = torch.tensor(sample.scores)
            known[number, [place[row] for row in sample.known if row in place]] = True
        targets = {
            "columns": columns,
            "mask": mask,
            "known": known,
            "relevant": torch.tensor([sample.relevant for sample in samples]),
            "queries": torch.tensor(queries),
        }
        if all(sample.scores is not None for sample in samples):
            targets["scores"] = scores
        teacher = self._data.teach(queries, documents)
        if teacher is not None:
            targets["teacher"] = teacher
        if self._words:
            targets["words"] = self._data.words(queries, documents)
        return targets

    def _features(self, side: int, rows: list[int]) -> list[dict[str, Any]]:
        step = self.mini_batch or len(rows)
        return [self._part(side, rows[start : start + step]) for start in range(0, len(rows), step)]

    def _part(self, side: int, rows: list[int]) -> dict[str, Any]:
        limit = self._max_tokens[side]
        if self._lookup is not None and not side:
            tokens = self._lookup.preprocess([self._data.queries[row] for row in rows])
            return {name: tokens[name][:, :limit] for name in ("input_ids", "attention_mask")}
        if isinstance(self._source, tuple):
            states = self._source[side]
            assert states is not None
            return states.features(rows, limit)
        texts = self._data.documents if side else self._data.queries
        return self._source.preprocess([texts[row] for row in rows], max_length=limit)
