"""Commands that change or check a whole index: add, delete, merge, reweight, info, verify."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lexicept.cli.common import (
    CorpusArgument,
    IndexArgument,
    JsonOption,
    NewIndexOption,
    RayOption,
    RayWorkersOption,
    SkipErrorsOption,
    option_names,
    print_json,
    print_report,
    print_table,
    working,
)
from lexicept.errors import InputError
from lexicept.sanitize import safe

if TYPE_CHECKING:
    from lexicept.pipelines.index import Index


def add(
    index: IndexArgument,
    corpus: CorpusArgument,
    skip_errors: SkipErrorsOption = False,
    ray: RayOption = None,
    ray_workers: RayWorkersOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add documents to an index; one with a known id replaces the old one."""
    import lexicept

    with lexicept.open(index) as opened, option_names():
        counts = opened.add(
            corpus, skip_errors=skip_errors, ray=ray, ray_workers=ray_workers, progress=True
        )
    print_report(counts._asdict(), as_json)


def delete(
    index: IndexArgument,
    document_ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Ids of documents.")],
    as_json: JsonOption = False,
) -> None:
    """Delete documents from an index, by their ids."""
    import lexicept

    with working("deleting"), lexicept.open(index) as opened:
        count = opened.delete(document_ids)
    print_report({"deleted": count}, as_json)


def merge(
    index: IndexArgument,
    ray: RayOption = None,
    ray_workers: RayWorkersOption = None,
    as_json: JsonOption = False,
) -> None:
    """Weigh all documents of an index anew, and merge its parts.

    Changes of an index of 131,072 documents or more add parts, whose weights are computed from
    statistics of the collection as it was. They are merged without this command once a sixteenth of
    the documents has changed. Prints whether there was anything to merge.
    """
    import lexicept

    with working("merging"), lexicept.open(index) as opened, option_names():
        merged = opened.merge(ray=ray, ray_workers=ray_workers)
    print_report({"merged": merged}, as_json)


def reweight(
    index: IndexArgument,
    out: NewIndexOption,
    alpha: Annotated[
        str,
        typer.Option(help="RRA's strength: a number above 0, or auto to choose on pseudo-queries."),
    ] = "auto",
    generator: Annotated[
        str | None,
        typer.Option(
            help="Causal language model that writes the pseudo-queries (hub name or folder)."
        ),
    ] = None,
    iterations: Annotated[int, typer.Option(min=1, help="Rounds of RRA.")] = 1,
    transform: Annotated[
        str, typer.Option(help="Transform f of weights (RRA, equation 1).")
    ] = "1+x",
    ray: RayOption = None,
    ray_workers: RayWorkersOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a copy of an index, re-weighted by Rational Retrieval Acts (RRA).

    A dimension gains weight in the documents that it tells apart from the others.
    """
    import lexicept
    from lexicept.storage import workspace

    report: dict[str, Any] = {}
    workspace.refuse_existing(out)
    given = None if alpha == "auto" else _number("--alpha", alpha)
    if given is not None and generator is not None:
        raise InputError("--generator requires --alpha auto")
    settings: dict[str, Any] = {"iterations": iterations, "transform": transform}
    with option_names():
        opened, chosen = lexicept.open(index), given
        if chosen is None:
            with nullcontext() if generator else working("choosing alpha"):
                choice = opened.choose_alpha(
                    **settings, generator=generator, progress=generator is not None
                )
            tried = {str(value): ndcg for value, ndcg in sorted(choice.tried.items())}
            report["pseudo_query_nDCG@10"] = {"without": choice.without, **tried}
            chosen = choice.alpha
        with working("re-weighting"):
            opened.reweight(chosen, **settings, out=out, ray=ray, ray_workers=ray_workers)
    print_report({"alpha": chosen, **report}, as_json)


def info(index: IndexArgument, as_json: JsonOption = False) -> None:
    """Show the documents, vocabularies and size of an index."""
    import lexicept

    with working("opening index"):
        opened = lexicept.open(index)
    print_info(opened, as_json)


def verify(index: IndexArgument, as_json: JsonOption = False) -> None:
    """Check every file of an index: sizes, checksums, texts, and whether the parts fit together.

    Problems are printed one per line; the exit status is then 1. A backbone that the index refers
    to is not part of it, and verified whenever the model is loaded.
    """
    from lexicept.index import verification
    from lexicept.progress import ProgressBars

    with ProgressBars() as progress:
        result = verification.verify(index, progress)
    if as_json:
        print_json(result._asdict())
    else:
        for problem in result.problems:
            print(safe(problem))
        for name in result.unknown:
            print(safe(f"no part of the index: {name}"))
        count = len(result.problems) or "no"
        print(safe(f"{index}: {result.files} files, {count} problems"))
    if result.problems:
        raise typer.Exit(1)


def _number(option: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{option} must be a number or auto, not {text!r}") from None


def print_info(index: Index, as_json: bool) -> None:
    """Print the contents of an index, as a table or as JSON."""
    report = index.info()
    if as_json:
        print_json(report)
        return
    rows = [("documents", f"{report['documents']:,}")]
    if report["passages"]:
        rows.append(("passages", f"{report['passages']:,}"))
    for entry in report["vocabularies"]:
        weighting = dict(entry["weighting"])
        name = weighting.pop("name")
        arguments = ", ".join(f"{key} {value}" for key, value in weighting.items())
        rows.append((entry["name"], f"{entry['size']:,} dimensions, {name} {arguments}".rstrip()))
        if entry["adapted"] is not None:
            tokens, steps = entry["adapted"]["tokens"], entry["adapted"]["steps"]
            rows.append(("", f"adapted to the documents: {tokens:,} tokens, {steps:,} steps"))
        for side in ("query", "document"):
            if entry[f"{side}_max_active_dims"] is not None:
                rows.append(("", f"at most {entry[f'{side}_max_active_dims']} in a {side}"))
        if entry["query_max_qd_flops"] is not None:
            rows.append(("", f"at most {entry['query_max_qd_flops']:g} QD-FLOPs in a query"))
        if entry["query_max_active_dims"] is not None or entry["query_max_qd_flops"] is not None:
            rows.append(("", f"queries are pruned by {entry['pruning']}"))
    for name, kind in report["fields"].items():
        rows.append(("field", f"{name}: {kind}"))
    if report["rra"] is not None:
        rows.append(("rra", ", ".join(f"{k} {v}" for k, v in report["rra"].items())))
    parts = f" in {report['parts']} parts" if report["parts"] > 1 else ""
    rows.append(("postings", f"{report['postings']:,}{parts}"))
    rows.append(("size", f"{report['bytes'] / 1e6:,.1f} MB"))
    print_table(report["path"], rows)
