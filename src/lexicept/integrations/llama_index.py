"""LlamaIndex: an index as a retriever."""

from __future__ import annotations

from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from lexicept.index.reader import Hit, IndexReader


class LexiceptRetriever(BaseRetriever):
    """Documents as text nodes with scores, best first; the documents' ids are the nodes'.

    ``retrieve`` raises InputError for what ``IndexReader.search`` refuses. Updates of the
    index are not followed.

    Args:
        index: an opened index.
        top_k: nodes per query, at least 1.
        vocabulary: search in one vocabulary only; None searches all of them at once.
    """

    def __init__(self, index: IndexReader, top_k: int = 10, vocabulary: str | None = None) -> None:
        super().__init__()
        self.index = index
        self.top_k = top_k
        self.vocabulary = vocabulary

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        hits = self.index.search(query_bundle.query_str, self.top_k, self.vocabulary)
        return [self._node(hit) for hit in hits]

    def _node(self, hit: Hit) -> NodeWithScore:
        stored = self.index.document(hit.document_id)
        # Prompts show all metadata, and would show an empty title.
        metadata = {"title": stored.title} if stored.title else {}
        node = TextNode(id_=hit.document_id, text=stored.text, metadata=metadata)
        return NodeWithScore(node=node, score=hit.score)
