"""Commands that change or check a whole index: add, delete, reweight, info, verify."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from lexicept.cli.common import (
    CorpusArgument,
    IndexArgument,
    JsonOption,
    NewIndexOption,
    RayOption,
    RayWorkersOption,
    joined,
    print_json,
    print_report,
    print_table,
)
from lexicept.errors import InputError

if TYPE_CHECKING:
    from lexicept.index.reader import IndexReader


def add(index: IndexArgument, corpus: CorpusArgument, as_json: JsonOption = False) -> None:
    """Add a corpus' documents to an index, replacing those whose ids are there."""
    from lexicept.corpora import read_documents
    from lexicept.index import updates
    from lexicept.progress import ProgressBars

    with ProgressBars() as progress:
        added, replaced = updates.update(index, read_documents(corpus), progress)
    print_report({"added": added, "replaced": replaced}, as_json)


def delete(
    index: IndexArgument,
    document_ids: Annotated[list[str], typer.Argument(metavar="ID...")],
    as_json: JsonOption = False,
) -> None:
    """Delete documents from an index."""
    from lexicept.index import updates

    print_report({"deleted": updates.delete(index, document_ids)}, as_json)


def reweight(
    index: IndexArgument,
    out: NewIndexOption,
    alpha: Annotated[
        str, typer.Option(help="A number above 0, or auto: chosen on pseudo-queries.")
    ] = "auto",
    iterations: Annotated[int, typer.Option(min=1)] = 1,
    transform: Annotated[str, typer.Option(help="f of a weight (RRA, equation 1).")] = "1+x",
    ray: RayOption = None,
    ray_workers: RayWorkersOption = None,
    as_json: JsonOption = False,
) -> None:
    """Re-weight an index by pragmatic reasoning (Rational Retrieval Acts) into another one."""
    from lexicept.index import updates
    from lexicept.index.impacts import RRASettings
    from lexicept.index.reader import IndexReader
    from lexicept.storage import workspace

    report: dict[str, Any] = {}
    workspace.refuse_existing(out)
    with joined(ray, ray_workers) as cluster:
        if alpha == "auto":
            chosen, tried = updates.choose_alpha(IndexReader.open(index), iterations, transform)
            report["pseudo_query_nDCG@10"] = {str(value): tried[value] for value in tried}
        else:
            try:
                chosen = float(alpha)
            except ValueError:
                raise InputError(f"--alpha takes a number or auto, not {alpha!r}") from None
        updates.reweight(index, out, RRASettings(chosen, iterations, transform), cluster)
    print_report({"alpha": chosen, **report}, as_json)


def info(index: IndexArgument, as_json: JsonOption = False) -> None:
    """What an index holds."""
    from lexicept.index.reader import IndexReader

    print_info(IndexReader.open(index), as_json)


def verify(index: IndexArgument, as_json: JsonOption = False) -> None:
    """Check every file of an index: sizes, checksums, texts, and that the parts fit together.

    Exits with 1 where something is wrong, after a line for each thing.
    """
    from lexicept.index import verification
    from lexicept.progress import ProgressBars

    with ProgressBars() as progress:
        found = verification.verify(index, progress)
    if as_json:
        print_json(found._asdict())
    else:
        for problem in found.problems:
            print(problem)
        print(f"{index}: {found.files} files, {len(found.problems) or 'no'} problems")
    if found.problems:
        raise typer.Exit(1)


def print_info(index: IndexReader, as_json: bool) -> None:
    """What an index holds, as a table or as JSON."""
    files = index.manifest["files"].values()
    report: dict[str, Any] = {
        "path": str(index.path),
        "documents": len(index),
        "vocabularies": index.manifest["vocabularies"],
        "rra": index.manifest["rra"],
        "postings": index.engine.num_postings,
        "bytes": sum(entry["size"] for entry in files),
        "written_by": f"lexicept {index.manifest['lexicept']}",
    }
    if as_json:
        print_json(report)
        return
    rows = [("documents", f"{len(index):,}")]
    for entry in report["vocabularies"]:
        weighting = dict(entry["weighting"])
        name = weighting.pop("name")
        arguments = ", ".join(f"{key} {value}" for key, value in weighting.items())
        rows.append((entry["name"], f"{entry['size']:,} dimensions, {name} {arguments}".rstrip()))
        for side in ("query", "document"):
            if entry[f"{side}_max_active_dims"] is not None:
                rows.append(("", f"{entry[f'{side}_max_active_dims']} in a {side}"))
        if entry["query_max_qd_flops"] is not None:
            rows.append(("", f"{entry['query_max_qd_flops']:g} QD-FLOPs of a query at most"))
    if index.rra is not None:
        rows.append(("rra", ", ".join(f"{k} {v}" for k, v in report["rra"].items())))
    rows.append(("postings", f"{report['postings']:,}"))
    rows.append(("size", f"{report['bytes'] / 1e6:,.1f} MB"))
    print_table(str(index.path), rows)
