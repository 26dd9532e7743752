"""Commands that ask an index: search, explain, evaluate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lexicept.cli.common import (
    DatasetArgument,
    IndexArgument,
    JsonOption,
    SearchEngineOption,
    SearchVocabularyOption,
    print_json,
    print_table,
    single_vocabulary,
    working,
)

if TYPE_CHECKING:
    from lexicept.index.stored import Hit


def search(
    index: IndexArgument,
    query: str,
    top_k: Annotated[int, typer.Option(min=1, help="Results.")] = 10,
    vocabulary: SearchVocabularyOption = None,
    engine: SearchEngineOption = "exact",
    explain: Annotated[bool, typer.Option(help="Show what each score is made of.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Search an index."""
    from lexicept.index.reader import IndexReader

    opened = IndexReader.open(index, engine=engine)
    name = single_vocabulary(opened, vocabulary)
    hits = opened.search(query, top_k, name, explain=explain)
    if as_json:
        print_json({"query": query, "results": [_to_json(hit) for hit in hits]})
        return
    from rich.console import Console

    from lexicept.cli.display import results_table

    nothing = "no results: the query has no word or concept that a document has"
    Console().print(results_table(query, hits) if hits else nothing)


def explain(
    index: IndexArgument,
    query: str,
    document_id: str,
    vocabulary: SearchVocabularyOption = None,
    html: Annotated[Path | None, typer.Option(help="Write a page to this file instead.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show what the score of one document is made of, and what fired it."""
    from lexicept.index.reader import IndexReader

    opened = IndexReader.open(index)
    explanation = opened.explain(query, document_id, single_vocabulary(opened, vocabulary))
    document = opened.document(document_id)
    if html is not None:
        from lexicept.explanation.html import explanation_page
        from lexicept.storage.files import replace_file

        replace_file(html, explanation_page(explanation, document).encode())
    elif as_json:
        print_json(explanation.to_json())
    else:
        from rich.console import Console

        from lexicept.cli.display import explanation_view

        Console().print(explanation_view(explanation, document))


def evaluate(
    index: IndexArgument,
    dataset: DatasetArgument,
    split: Annotated[str, typer.Option(help="Which judgements.")] = "test",
    vocabulary: SearchVocabularyOption = None,
    engine: SearchEngineOption = "exact",
    measure: Annotated[
        list[str] | None, typer.Option(help="More measures, in ir_measures' notation.")
    ] = None,
    run: Annotated[Path | None, typer.Option(help="Write the TREC run here.")] = None,
    compare: Annotated[
        Path | None, typer.Option(help="Test nDCG@10 against this TREC run (paired t-test).")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure effectiveness and cost on judged queries."""
    from lexicept.pipelines.evaluate import evaluate
    from lexicept.pipelines.index import open as open_index

    with working("searching"), open_index(index, engine=engine) as opened:
        found = evaluate(
            opened,
            dataset,
            split,
            vocabulary=single_vocabulary(opened.reader, vocabulary),
            measures=measure or (),
            run=run,
            compare=compare,
        )
    test = {} if found.t_test is None else found.t_test._asdict()
    if as_json:
        print_json(found.values | ({"t_test": test} if test else {}))
    else:
        rows = [(key, f"{value:.4f}") for key, value in found.values.items()]
        rows += [(f"t-test {key}", f"{value:.4f}") for key, value in test.items()]
        print_table(f"{dataset}, {split}: {len(found.run)} queries", rows)


def _to_json(hit: Hit) -> dict[str, Any]:
    row: dict[str, Any] = {"rank": hit.rank, "id": hit.id, "score": hit.score}
    row |= {"title": hit.title, "text": hit.text}
    if hit.explanation is not None:
        described = hit.explanation.to_json()
        row |= {name: described[name] for name in ("prior", "contributions")}
    return row
