"""The command that explains a score, in an index or by a model alone: explain."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from lexicept.cli.common import SearchVocabulary, open_to_search, print_json, show, working
from lexicept.cli.declarations import takes
from lexicept.errors import InputError

if TYPE_CHECKING:
    from lexicept.corpora import Document
    from lexicept.explanation.explanation import Explanation


@takes("lexicept.pipelines.explain:explain", without=("query", "document"))
def explain(
    texts: list[str],
    *,
    model: str | None = None,
    vocabulary: SearchVocabulary | None = None,
    boost: str | None = None,
    rescore: bool = True,
    out: Path | None = None,
    as_json: bool = False,
    **sae_options: Any,
) -> None:
    """Explain a score: the share of every dimension, and the words that activate it.

    Args:
        texts: INDEX QUERY DOCUMENT: an index, a query, and the id of a document, as search shows
            it. With --model QUERY DOCUMENT: a query and the text of a document.
        model: explain this model's score instead, without an index: a folder or Hugging Face name
            of a SPLADE model, a SparseEncoder of sentence-transformers, a lexicept model, or an
            SAE; or lexicept-mini.
        vocabulary: vocabulary to search. By default all that the index has.
        boost: factors on the weights of whole vocabularies: words=1,concepts=.5.
        rescore: whether a search of all vocabularies counts whole documents and the similarity
            of texts; False for the sparse ranking by the best passage.
        out: write an HTML page to this file instead.
    """
    if len(texts) != (3 if model is None else 2):
        form = "INDEX QUERY DOCUMENT_ID" if model is None else "QUERY DOCUMENT with --model"
        raise InputError(f"explain takes {form}, not {len(texts)} arguments")
    if model is not None:
        if vocabulary or boost or not rescore:
            options = "--vocabulary, --boost and --no-rescore"
            raise InputError(f"{options} are for an index, not for --model")
        from lexicept.corpora import Document
        from lexicept.pipelines.explain import explain

        query, text = texts
        document = Document("document", text)
        with working("explaining"):
            explanation = explain(query, document, model, **sae_options)
    else:
        for parameter in sae_options:
            option = parameter if parameter != "bidirectional" else "bidirectional or --causal"
            raise InputError(f"--{option} requires --model")
        path, query, document_id = texts
        opened, searched = open_to_search(Path(path), vocabulary, boost)
        with working("explaining"), opened:
            explanation = opened.explain(query, document_id, rescore=rescore, **searched)
            document = opened.document(explanation.passage or document_id)
    _print(explanation, document, out, as_json)


def _print(explanation: Explanation, document: Document, out: Path | None, as_json: bool) -> None:
    """Print an explanation, or write it as an HTML page."""
    if out is not None:
        from lexicept.explanation.html import explanation_page
        from lexicept.storage.files import replace_file

        replace_file(out, explanation_page(explanation, document).encode())
    elif as_json:
        print_json(explanation.to_json())
    else:
        from lexicept.cli.display import explanation_view

        show(explanation_view(explanation, document))
