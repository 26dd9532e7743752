"""The command that searches an index: search."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from lexicept.cli.common import (
    IndexArgument,
    JsonOption,
    QueryEncoder,
    QueryEncoderOption,
    SearchEngineOption,
    SearchVocabularyOption,
    open_to_search,
    print_json,
    working,
)
from lexicept.cli.configuration import ConfigOption

if TYPE_CHECKING:
    from lexicept.index.stored import Hit

QueryArgument = Annotated[str, typer.Argument(help="Text to search for.")]


def search(
    index: IndexArgument,
    query: QueryArgument,
    top_k: Annotated[int, typer.Option(min=1, help="Number of results.")] = 10,
    vocabulary: SearchVocabularyOption = None,
    engine: SearchEngineOption = "exact",
    query_encoder: QueryEncoderOption = QueryEncoder.model,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show the words and concepts behind each score.")
    ] = False,
    filter_: Annotated[
        str | None,
        typer.Option(
            "--filter", help="Which documents may be results: year >= 2020 and tag in ['bio']."
        ),
    ] = None,
    facet: Annotated[
        list[str] | None,
        typer.Option(help="Field whose values to count among all results; may be repeated."),
    ] = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Search an index and show the best documents."""
    opened, name = open_to_search(
        index, vocabulary, engine=engine, query_encoder=query_encoder, one_query=not explain
    )
    with working("searching"):
        shared: Any = {"vocabulary": name, "query_encoder": query_encoder.value, "filter": filter_}
        hits = opened.search(query, top_k, explain=explain, **shared)
        counts = opened.facets(facet, query=query, **shared) if facet else {}
    if as_json:
        words = {"unmatched_words": hits.unmatched_words, "note": hits.note}
        facets = {field: [one._asdict() for one in found] for field, found in counts.items()}
        results = [_to_json(hit) for hit in hits]
        print_json({"query": query, **words, "facets": facets, "results": results})
        return
    from rich.console import Console
    from rich.text import Text

    from lexicept.cli.display import facets_table, results_table
    from lexicept.sanitize import safe

    those = "a document has" if filter_ is None else "a document has that passes the filter"
    nothing = f"no results: the query has no word or concept that {those}"
    if hits.note:
        Console(stderr=True).print(Text(safe(hits.note), style="yellow"))
    Console().print(results_table(query, hits) if hits else nothing)
    if counts:
        Console().print(facets_table(counts))


def _to_json(hit: Hit) -> dict[str, Any]:
    row: dict[str, Any] = {"rank": hit.rank, "id": hit.id, "score": hit.score}
    row |= {"title": hit.title, "text": hit.text, "fields": hit.fields}
    if hit.explanation is not None:
        described = hit.explanation.to_json()
        row |= {name: described[name] for name in ("prior", "contributions")}
    return row
