"""LangChain: an index as a retriever."""

from __future__ import annotations

from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever

from lexicept.index.stored import Hit
from lexicept.pipelines.index import Index


class LexiceptRetriever(BaseRetriever):
    """Documents with ``id``, ``title`` and ``score`` in their metadata, best first.

    ``invoke`` raises InputError for what ``Index.search`` refuses. Changes of the index show once
    it has made or refreshed them.
    """

    index: Index
    """An opened index."""
    top_k: int = 10
    """Documents per query, at least 1."""
    vocabulary: str | None = None
    """Search in one vocabulary only; None searches all of them at once."""

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun
    ) -> list[Document]:
        hits = self.index.search(query, self.top_k, vocabulary=self.vocabulary)
        return [_document(hit) for hit in hits]


def _document(hit: Hit) -> Document:
    metadata = {"id": hit.id, "title": hit.title, "score": hit.score}
    return Document(hit.text, id=hit.id, metadata=metadata)
