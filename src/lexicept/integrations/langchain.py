"""LangChain: an index as a retriever."""

from __future__ import annotations

from threading import Lock

from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever

from lexicept.index.reader import Hit, IndexReader

SEARCHING = Lock()
"""LangChain searches in threads, and two retrievers may share an index: tokenizers can't be."""


class LexiceptRetriever(BaseRetriever):
    """Documents with ``id``, ``title`` and ``score`` in their metadata, best first.

    ``invoke`` raises InputError for what ``IndexReader.search`` refuses. Updates of the
    index are not followed.
    """

    index: IndexReader
    """An opened index."""
    top_k: int = 10
    """Documents per query, at least 1."""
    vocabulary: str | None = None
    """Search in one vocabulary only; None searches all of them at once."""

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun
    ) -> list[Document]:
        with SEARCHING:
            hits = self.index.search(query, self.top_k, self.vocabulary)
        return [self._document(hit) for hit in hits]

    def _document(self, hit: Hit) -> Document:
        stored = self.index.document(hit.document_id)
        metadata = {"id": hit.document_id, "title": stored.title, "score": hit.score}
        return Document(stored.text, id=hit.document_id, metadata=metadata)
