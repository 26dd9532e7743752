"""Commands on an index's concepts: concepts, describe, label."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lexicept.checks import Count, check
from lexicept.cli.common import print_json, print_report, print_table, show
from lexicept.cli.declarations import takes
from lexicept.errors import InputError, require

if TYPE_CHECKING:
    from rich.table import Table

    from lexicept.index.atlas import Concept, Example
    from lexicept.index.reader import IndexReader

CONTEXT = 60
"""Characters on each side of an example."""


def concepts(
    index: Path,
    number: int | None = None,
    /,
    *,
    find: str = "",
    text: str | None = None,
    top_k: int = 50,
    as_json: bool = False,
) -> None:
    """List the concepts of an index, the most useful first, or show one of them.

    Args:
        number: number of a concept to show, with examples.
        find: list only concepts with this text in their label or words, the best matches first.
        text: show the concepts that are active on each token of this text.
        top_k: number of concepts to list.
    """
    check("top_k", top_k, Count)
    if (number is not None) + bool(find) + (text is not None) > 1:
        raise InputError("a number, --find and --text can't be combined")
    from lexicept.pipelines.index import open as open_index

    opened = open_index(index)
    if text is not None:
        activations = opened.activations(text)
        print_json(activations.to_json()) if as_json else print(activations)
        return
    if number is not None:
        concept = opened.concept(number)
        print_json(concept.to_json()) if as_json else _print_concept(opened.reader, concept)
        return
    shown = opened.concepts(find, top_k)
    matches = len(opened.reader.atlas.search(find)) if opened.reader.atlas else 0
    if as_json:
        print_json({"concepts": [concept.to_json() for concept in shown], "found": matches})
    else:
        _print_list(shown, matches, opened.reader)


@takes("lexicept.pipelines.index:Index.describe")
def describe(index: Path, as_json: bool = False, **options: Any) -> None:
    """Describe an index's concepts: how often each fires, on which words, with examples.

    The model reads a sample of the documents, and others for the concepts that it missed.
    """
    import lexicept

    with lexicept.open(index) as opened:
        atlas = opened.describe(**options, progress=True)
    print_report({"concepts": len(atlas), "that fire": len(atlas.most_frequent())}, as_json)


def label(
    index: Path,
    *,
    endpoint: str,
    model: str,
    api_key_env: str | None = None,
    concepts: int = 1000,
    restart: bool = False,
    as_json: bool = False,
) -> None:
    """Label concepts with a language model, which is shown their words and examples.

    Excerpts of the documents are sent to the endpoint. Labels are stored beside the index as they
    arrive; re-running the command resumes an interrupted run.

    Args:
        endpoint: base address of an OpenAI-compatible API: http://…/v1
        model: name of the model at the endpoint.
        api_key_env: environment variable that holds the API key.
        concepts: number of concepts to label, the most frequent first.
    """
    require("llm", "openai")
    from lexicept.concepts.llm_labels import Endpoint, label_index
    from lexicept.progress import ProgressLine

    key = None
    if api_key_env is not None:
        key = os.environ.get(api_key_env)
        if not key:
            raise InputError(f"the environment variable {api_key_env} is not set")
    with ProgressLine() as progress:
        labelling = label_index(
            index, concepts, Endpoint(endpoint, model, key), progress, restart=restart
        )
    report: dict[str, Any] = {"labelled": len(labelling.labels), "without": len(labelling.refused)}
    if labelling.refused:
        report |= {"because": next(iter(labelling.refused.values()))}
    print_report(report, as_json)


def _print_list(shown: list[Concept], matches: int, index: IndexReader) -> None:
    from lexicept.cli.display import folded, grid, plain, right

    columns = [right("concept"), right(index.unit), folded("label")]
    columns += [right("detection"), folded("words")]
    table = grid(columns, header_style="bold")
    for concept in shown:
        words = ", ".join(word for word, _ in concept.words)
        table.add_row(
            str(concept.number),
            f"{concept.documents / len(index):.1%}",
            plain(concept.name, "magenta"),
            "" if concept.detection is None else f"{concept.detection:.2f}",
            plain(words, "dim"),
        )
    show(table)
    if matches > len(shown):
        show(plain(f"{matches - len(shown):,} more (--top-k)", "dim"))


def _print_concept(index: IndexReader, concept: Concept) -> None:
    assert index.atlas is not None
    share = f"{concept.documents:,} of {len(index):,}"
    tested = "not tested" if concept.detection is None else f"{concept.detection:.2f}"
    words_by_activation = ", ".join(f"{low:.2g}: {count:,}" for low, count in concept.histogram)
    lines = [
        ("label from", concept.source),
        ("detection", f"{tested} (balanced accuracy of the label's words)"),
        (index.unit, share),
        ("of the same name", ", ".join(map(str, concept.alike))),
        ("firing frequency", f"{concept.firing_frequency:.3%} of the sample's tokens"),
        ("words by activation", words_by_activation),
        ("words (z)", ", ".join(f"{word} {z:.1f}" for word, z in concept.words)),
        ("documents", ", ".join(f"{name} {w:.2f}" for name, w in concept.top_documents)),
    ]
    lines += [
        ("nearest" if position == 0 else "", f"{cosine:.2f}  {index.atlas.labels[near]} ({near})")
        for position, (near, cosine) in enumerate(concept.nearest)
    ]
    print_table(f"{concept.number}: {concept.label}", lines)
    show(_examples_table(index, concept.examples))
    if concept.drawn:
        show("drawn at random", _examples_table(index, concept.drawn))


def _examples_table(index: IndexReader, examples: tuple[Example, ...]) -> Table:
    from rich.text import Text

    from lexicept.cli.display import folded, grid, plain, right
    from lexicept.sanitize import around

    table = grid([right(style="green"), folded()])
    for document_id, start, end, activation in examples:
        text = index.document(document_id).content
        first, last = around(text, start, end, CONTEXT)
        text = text.replace("\n", " ")
        context = Text.assemble(
            "…" if first else "",
            plain(text[first:start]),
            plain(text[start:end], "bold reverse"),
            plain(text[end:last]),
            "…" if last < len(text) else "",
            plain(f"  {document_id}", "dim"),
        )
        table.add_row(f"{activation:.2f}", context)
    return table
