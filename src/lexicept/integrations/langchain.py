"""LangChain: an index as a retriever."""

from __future__ import annotations

from typing import Any

from langchain_core.callbacks import (
    AsyncCallbackManagerForRetrieverRun,
    CallbackManagerForRetrieverRun,
)
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables.config import run_in_executor

from lexicept.index.hits import Hit
from lexicept.pipelines.index import Index
from lexicept.queries.syntax import ParsedQuery


class LangChainRetriever(BaseRetriever):
    """Documents with ``id``, ``title``, ``score`` and fields in the metadata, best first.

    A document in passages has the text of the best passage, and the id of the passage as
    ``passage``. ``invoke`` raises the InputErrors of ``Index.search``; the arguments ``k`` (as in
    LangChain's own retrievers) and ``filter`` replace ``top_k`` and ``filter`` for one call. A
    pickled retriever opens the index again by path.
    """

    index: Index
    """An opened index."""
    top_k: int = 10
    """Documents per query, at least 1."""
    vocabulary: str | None = None
    """Search in one vocabulary only; None searches all vocabularies at once."""
    filter: str | dict[str, Any] | None = None
    """A condition on the fields of documents; see ``Index.search``."""
    syntax: bool = False
    """Read phrases in quotes, -words and field:value in queries; False, for questions by a language
    model, searches for the plain text."""

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun,
        k: int | None = None,
        filter: str | dict[str, Any] | None = None,  # noqa: A002
    ) -> list[Document]:
        top_k = self.top_k if k is None else k
        condition = self.filter if filter is None else filter
        parsed = query if self.syntax else ParsedQuery(query)
        hits = self.index.search(parsed, top_k, vocabulary=self.vocabulary, filter=condition)
        return [_document(hit) for hit in hits]

    async def _aget_relevant_documents(
        self,
        query: str,
        *,
        run_manager: AsyncCallbackManagerForRetrieverRun,
        k: int | None = None,
        filter: str | dict[str, Any] | None = None,  # noqa: A002
    ) -> list[Document]:
        # LangChain's own does the same, but drops k and filter.
        manager = run_manager.get_sync()
        documents: list[Document] = await run_in_executor(
            None, self._get_relevant_documents, query, run_manager=manager, k=k, filter=filter
        )
        return documents


def _document(hit: Hit) -> Document:
    metadata = {**hit.fields, "id": hit.id, "title": hit.title, "score": hit.score}
    metadata |= {"passage": hit.passage} if hit.passage else {}
    return Document(hit.text, id=hit.id, metadata=metadata)
