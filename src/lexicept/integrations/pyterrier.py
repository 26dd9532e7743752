"""PyTerrier: an index as a transformer of pipelines and ``pt.Experiment``. It needs no Java."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyterrier as pt

from lexicept.evaluation.runs import RUN_DEPTH
from lexicept.fields.filters import Filter
from lexicept.pipelines.index import Index
from lexicept.queries.syntax import ParsedQuery


class PyTerrierRetriever(pt.Transformer):
    """Retrieval: from a frame of topics (qid, query) to documents (docno, score, rank).

    Args:
        index: an opened index.
        top_k: documents per topic, at least 1.
        vocabulary: search in one vocabulary only; None searches all vocabularies at once.
        filter: a condition on the fields of documents; see ``Index.search``.
    """

    def __init__(
        self,
        index: Index,
        top_k: int = RUN_DEPTH,
        vocabulary: str | None = None,
        filter: Filter | None = None,  # noqa: A002
    ) -> None:
        self.index, self.top_k = index, top_k
        self.vocabulary, self.filter = vocabulary, filter

    def __repr__(self) -> str:
        # The name of a system in the tables of pt.Experiment: the folder, and settings.
        arguments = [self.index.path.name]
        arguments += [] if self.vocabulary is None else [self.vocabulary]
        arguments += [] if self.top_k == RUN_DEPTH else [f"top_k={self.top_k}"]
        arguments += [] if self.filter is None else [f"filter={self.filter!r}"]
        return f"PyTerrierRetriever({', '.join(arguments)})"

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Return the documents of each topic, best first, ranks from 0; a topic may have none.

        Args:
            inp: topics; the columns are repeated for every document.

        Raises:
            pyterrier.validate.InputValidationError: not a frame of topics.
            InputError: a query that is no text, or an error of ``Index.search_many``.
        """
        pt.validate.query_frame(inp, extra_columns=["query"], context=self)
        queries = [ParsedQuery(text) for text in inp["query"].tolist()]
        rankings = self.index.search_many(
            queries, self.top_k, vocabulary=self.vocabulary, filter=self.filter
        )
        lengths = [len(hits) for hits in rankings]
        ranks = [np.arange(length) for length in [0, *lengths]]
        hits = [hit for ranking in rankings for hit in ranking]
        return (
            inp.iloc[np.repeat(np.arange(len(inp)), lengths)]
            .assign(
                docno=np.array([hit.id for hit in hits], object),
                score=np.array([hit.score for hit in hits], np.float64),
                rank=np.concatenate(ranks),
            )
            .reset_index(drop=True)
        )
