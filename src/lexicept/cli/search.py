"""The command that searches an index: search."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lexicept.cli.common import (
    SearchVocabulary,
    open_to_search,
    print_json,
    read_factors,
    show,
    working,
)
from lexicept.cli.declarations import takes
from lexicept.errors import InputError

if TYPE_CHECKING:
    from lexicept.explanation.contributions import QueryTerm
    from lexicept.fields.columns import ValueCount
    from lexicept.index.hits import Hit
    from lexicept.index.results import Hits
    from lexicept.pipelines.index import Index

BATCH = 256
"""Queries of a file that are encoded together."""

SHOWN = 8
"""Dimensions that are shown of those that are added to a query; --json has all."""


@takes("lexicept.pipelines.searchable:OpenedIndex.search", without=("steering", "boosts"))
def search(
    index: Path,
    query: str | None = None,
    /,
    *,
    vocabulary: SearchVocabulary | None = None,
    boost: str | None = None,
    steer: Sequence[str] = (),
    feedback: int | None = None,
    relevant: Sequence[str] = (),
    like: str | None = None,
    queries: Path | None = None,
    facet: Sequence[str] = (),
    as_json: bool = False,
    **options: Any,
) -> None:
    """Search an index and show the best documents.

    Args:
        query: text to search for. Syntax: "exact phrase", -word, field:value.
        vocabulary: vocabulary to search. By default all that the index has.
        boost: factors on the weights of whole vocabularies: words=1,concepts=.5.
        steer: factor on a concept or word of the query, by name or number: "heart attack=2",
            812=0, word:spring=0; may be repeated.
        feedback: add what this many first results have in common to the query.
        relevant: id of a relevant document, to add to the query; may be repeated.
        like: id of a document: find documents like it.
        queries: file with several queries: a line each, or .jsonl or .tsv with ids.
        facet: field whose values to count among all results; may be repeated.
    """
    if feedback is not None and relevant:
        raise InputError("--feedback and --relevant can't be combined")
    if queries is not None and (
        query or like or feedback is not None or relevant or facet or steer
    ):
        other_options = "a query, --like, --relevant, --feedback, --facet or --steer"
        raise InputError(f"--queries can't be combined with {other_options}")
    if queries is None and query is None and like is None:
        raise InputError("a query, --like or --queries is needed")
    opened, searched = open_to_search(index, vocabulary, boost)
    options |= searched
    if queries is not None:
        if options.pop("explain", False):
            raise InputError("--explain can't be combined with --queries")
        for query_id, written, hits in _results_of_file(opened, queries, options):
            if as_json:
                print_json({"id": query_id, **_results_json(written, hits, {})}, indent=None)
            else:
                _print_results(f"{query_id}: {written}", hits, {})
        return
    with working("searching"):
        text = query or "" if like is None else opened.like(like, query or "")
        steering = _read_steering(opened, steer)
        hits = opened.search(text, steering=steering, feedback=relevant or feedback, **options)
        counts = {}
        if facet:
            names = {"filter", "vocabulary", "rescore"}
            limits: dict[str, Any] = {name: options[name] for name in names & options.keys()}
            counts = opened.facets(facet, query=hits.query, **limits)
    title = query or f"documents like {like}"
    if as_json:
        print_json(_results_json(title, hits, counts))
    else:
        _print_results(title, hits, counts)


def _read_steering(index: Index, given: Sequence[str]) -> dict[tuple[str, int], float] | None:
    """Return the factors of dimensions by texts such as ``heart attack=2``. Raises InputError for
    another text, an unknown dimension or a dimension twice."""
    from lexicept.index.dimensions import numbers_by_dimension

    factors = {
        key if re.match(r"\s*(words?|concepts?):", key) else f"concept:{key}": factor
        for key, factor in read_factors("--steer", given).items()
    }
    return numbers_by_dimension(index.reader, "--steer", factors) or None


def _results_of_file(
    index: Index, path: Path, options: Mapping[str, Any]
) -> Iterator[tuple[str, str, Hits]]:
    """Yield the id, the text and the results of each query in a file, a batch at a time."""
    from itertools import islice

    from lexicept.corpora import read_query_file

    queries = read_query_file(path)
    while batch := list(islice(queries, BATCH)):
        results = index.search_many([query.text for query in batch], **options)
        yield from (
            (query.id, query.text, hits) for query, hits in zip(batch, results, strict=True)
        )


def _results_json(
    query: str, hits: Hits, counts: Mapping[str, Sequence[ValueCount]]
) -> dict[str, Any]:
    return {
        "query": query,
        "unmatched_words": hits.unmatched_words,
        "weak": hits.weak,
        "note": hits.note,
        "did_you_mean": hits.did_you_mean,
        "added": [term._asdict() for term in hits.added],
        "facets": {field: [c._asdict() for c in values] for field, values in counts.items()},
        "results": [_to_json(hit) for hit in hits],
    }


def _print_results(query: str, hits: Hits, counts: Mapping[str, Sequence[ValueCount]]) -> None:
    """Print results with what the query lacked, and what feedback added to it."""
    from rich.console import Console

    from lexicept.cli.display import facets_table, plain, results_table
    from lexicept.index.results import SHARES

    nothing = "no results" if hits.note else f"no results: no document {SHARES}"
    for note in hits.notes:
        Console(stderr=True).print(plain(note, "yellow"), soft_wrap=True)
    if hits.added:
        show(plain(f"added to the query: {_added(hits.added)}", "dim"))
    show(results_table(query, hits, hits.snippets) if hits else nothing)
    if counts:
        show(facets_table(counts))


def _added(terms: Sequence[QueryTerm]) -> str:
    """Return the largest dimensions that a query was given, with their weights, in one line."""
    terms_text = [
        f"{t.vocabulary.removesuffix('s')} {t.term} {t.weight:.2f}" for t in terms[:SHOWN]
    ]
    more = f", and {len(terms) - SHOWN} more" if len(terms) > SHOWN else ""
    return f"{', '.join(terms_text)}{more}"


def _to_json(hit: Hit) -> dict[str, Any]:
    names = ("rank", "id", "passage", "score", "title", "text", "fields")
    content = {name: getattr(hit, name) for name in names}
    if hit.explanation is not None:
        described = hit.explanation.to_json()
        members = ("similarity", "prior", "stop_words", "contributions")
        content |= {name: described[name] for name in members}
    return content
