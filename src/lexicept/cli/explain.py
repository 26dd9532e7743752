"""The command that explains a score, in an index or by a model alone: explain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lexicept.cli.common import (
    AttentionOption,
    BoostOption,
    JsonOption,
    QueryEncoder,
    QueryEncoderOption,
    SearchVocabularyOption,
    WidthOption,
    open_to_search,
    option_names,
    print_json,
    read_boosts,
    working,
)
from lexicept.errors import InputError

if TYPE_CHECKING:
    from lexicept.corpora import Document
    from lexicept.explanation.explanation import Explanation

TextsArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="[INDEX] QUERY DOCUMENT",
        help="An index, a query, and the id of a document, as search shows it. With --model a "
        "query and the text of a document.",
        show_default=False,
    ),
]
ModelOption = Annotated[
    str | None,
    typer.Option(
        help="Explain this model's score instead, without an index: a folder or Hugging Face name "
        "of a SPLADE model, a SparseEncoder of sentence-transformers, a model of OpenSearch's or "
        "lexicept's, or an SAE; or lexicept-mini."
    ),
]


def explain(
    texts: TextsArgument,
    model: ModelOption = None,
    vocabulary: SearchVocabularyOption = None,
    query_encoder: QueryEncoderOption = QueryEncoder.model,
    boost: BoostOption = None,
    backbone: Annotated[
        str | None,
        typer.Option(help="Model whose states an SAE reads.", show_default="all-MiniLM-L6-v2"),
    ] = None,
    layer: Annotated[
        int | None,
        typer.Option(min=1, help="Blocks of the backbone to run. Default: those before the SAE."),
    ] = None,
    bidirectional: AttentionOption = None,
    width: WidthOption = None,
    out: Annotated[
        Path | None, typer.Option(help="Write an HTML page to this file instead.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Explain a score: the share of every dimension, and the words that activate it."""
    if len(texts) != (3 if model is None else 2):
        form = "INDEX QUERY DOCUMENT_ID" if model is None else "QUERY DOCUMENT with --model"
        raise InputError(f"explain takes {form}, not {len(texts)} arguments")
    if model is None:
        given = {"--backbone": backbone, "--layer": layer, "--width": width}
        for name, value in (given | {"--bidirectional or --causal": bidirectional}).items():
            if value is not None:
                raise InputError(f"{name} requires --model")
        found = _of_index(texts, vocabulary, query_encoder, read_boosts(boost))
    else:
        if vocabulary or boost or query_encoder != QueryEncoder.model:
            options = "--vocabulary, --boost and --query-encoder"
            raise InputError(f"{options} are for an index, not for --model")
        from lexicept.corpora import Document
        from lexicept.pipelines.explain import explain as explain_by_model

        document = Document("document", texts[1])
        with working("explaining"), option_names():
            found = (
                explain_by_model(
                    texts[0],
                    document,
                    model,
                    backbone=backbone,
                    layer=layer,
                    width=width,
                    bidirectional=bidirectional,
                ),
                document,
            )
    _show(*found, out, as_json)


def _of_index(
    texts: Sequence[str],
    vocabulary: SearchVocabularyOption,
    query_encoder: QueryEncoder,
    boosts: Mapping[str, float] | None,
) -> tuple[Explanation, Document]:
    """Return the explanation of a document's score in an index, and the document."""
    path, query, document_id = texts
    opened, name = open_to_search(
        Path(path), vocabulary, query_encoder=query_encoder, one_query=False
    )
    with working("explaining"), opened:
        found = opened.explain(
            query,
            document_id,
            vocabulary=name,
            boosts=boosts,
            query_encoder=query_encoder.value,
        )
        return found, opened.document(found.passage or document_id)


def _show(explanation: Explanation, document: Document, out: Path | None, as_json: bool) -> None:
    """Print an explanation, or write it as an HTML page."""
    if out is not None:
        from lexicept.explanation.html import explanation_page
        from lexicept.storage.files import replace_file

        replace_file(out, explanation_page(explanation, document).encode())
    elif as_json:
        print_json(explanation.to_json())
    else:
        from rich.console import Console

        from lexicept.cli.display import explanation_view

        Console().print(explanation_view(explanation, document))
