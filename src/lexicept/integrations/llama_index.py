"""LlamaIndex: an index as a retriever."""

from __future__ import annotations

from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from lexicept.fields.filters import Filter
from lexicept.index.hits import Hit
from lexicept.pipelines.index import Index
from lexicept.queries.syntax import ParsedQuery


class LexiceptRetriever(BaseRetriever):
    """Documents as text nodes with scores, best first; the documents' ids are the nodes'.

    A document in passages has the text of its best one, and that one's id as ``passage`` in its
    metadata.

    ``retrieve`` raises InputError for what ``Index.search`` refuses. Changes that others make to
    the index on disk are found after ``index.refresh()``.

    Args:
        index: an opened index.
        top_k: nodes per query, at least 1.
        vocabulary: search in one vocabulary only; None searches all of them at once.
        filter: which documents may be results, by their fields; see ``Index.search``.
        syntax: read phrases in quotes, -words and field:value in queries; by default they are text,
            as fits questions that a language model writes.
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
        self.index = index
        self.top_k = top_k
        self.vocabulary = vocabulary
        self.filter = filter
        self.syntax = syntax

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        query = query_bundle.query_str
        asked = query if self.syntax else ParsedQuery(query)
        hits = self.index.search(asked, self.top_k, vocabulary=self.vocabulary, filter=self.filter)
        return [_node(hit) for hit in hits]


def _node(hit: Hit) -> NodeWithScore:
    # Prompts show all metadata, and would show an empty title.
    metadata = {**hit.fields, **({"title": hit.title} if hit.title else {})}
    metadata |= {"passage": hit.passage} if hit.passage else {}
    node = TextNode(id_=hit.id, text=hit.text, metadata=metadata)
    return NodeWithScore(node=node, score=hit.score)
