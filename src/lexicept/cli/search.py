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
    """Effectiveness and cost on judged queries."""
    from lexicept.corpora import read_qrels, read_queries
    from lexicept.evaluation import effectiveness, runs, significance
    from lexicept.index.reader import IndexReader

    opened = IndexReader.open(index, engine=engine)
    name = single_vocabulary(opened, vocabulary)
    queries, qrels = list(read_queries(dataset, split)), list(read_qrels(dataset, split))
    found = effectiveness.evaluate_index(opened, queries, qrels, name, measure or [])
    report: dict[str, Any] = dict(found.values)
    if run is not None:
        runs.write_run(run, found.run)
    if compare is not None:
        ours = effectiveness.evaluate_queries(qrels, found.run, ["nDCG@10"])["nDCG@10"]
        other_run = runs.read_run(compare)
        other = effectiveness.evaluate_queries(qrels, other_run, ["nDCG@10"])["nDCG@10"]
        report["t_test"] = significance.paired_t_test(ours, other)._asdict()
    if as_json:
        print_json(report)
    else:
        rows = [(key, f"{value:.4f}") for key, value in found.values.items()]
        if compare is not None:
            rows += [(f"t-test {key}", f"{v:.4f}") for key, v in report["t_test"].items()]
        print_table(f"{dataset}, {split}: {len(found.run)} queries", rows)


def _to_json(hit: Hit) -> dict[str, Any]:
    row: dict[str, Any] = {"rank": hit.rank, "id": hit.id, "score": hit.score}
    row |= {"title": hit.title, "text": hit.text}
    if hit.explanation is not None:
        described = hit.explanation.to_json()
        row |= {name: described[name] for name in ("prior", "contributions")}
    return row
