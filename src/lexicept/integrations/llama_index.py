"""LlamaIndex: an index as a retriever."""

from __future__ import annotations

from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from lexicept.fields.filters import Filter
from lexicept.index.hits import Hit
from lexicept.pipelines.index import Index
from lexicept.queries.syntax import ParsedQuery


class LlamaIndexRetriever(BaseRetriever):
    """Documents as text nodes with scores, best first; a node has the id of the document.

    A document in passages has the text of the best passage, and the id of the passage as
    ``passage`` in the metadata. ``retrieve`` raises the InputErrors of ``Index.search``.

    Args:
        index: an opened index.
        top_k: nodes per query, at least 1.
        vocabulary: search in one vocabulary only; None searches all vocabularies at once.
        filter: a condition on the fields of documents; see ``Index.search``.
        syntax: read phrases in quotes, -words and field:value in queries; False, for questions by a
            language model, searches for the plain text.
    """

    def __init__(
        self,
        index: Index,
        top_k: int = 10,
        vocabulary: str | None = None,
        filter: Filter | None = None,  # noqa: A002
        syntax: bool = False,
    ) -> None:
        super().__init__()
        self.index, self.top_k, self.vocabulary = index, top_k, vocabulary
        self.filter, self.syntax = filter, syntax

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        query = query_bundle.query_str
        parsed = query if self.syntax else ParsedQuery(query)
        hits = self.index.search(parsed, self.top_k, vocabulary=self.vocabulary, filter=self.filter)
        return [_node(hit) for hit in hits]


def _node(hit: Hit) -> NodeWithScore:
    # Prompts show all metadata, and would show an empty title.
    metadata = {**hit.fields, **({"title": hit.title} if hit.title else {})}
    metadata |= {"passage": hit.passage} if hit.passage else {}
    node = TextNode(id_=hit.id, text=hit.text, metadata=metadata)
    return NodeWithScore(node=node, score=hit.score)
