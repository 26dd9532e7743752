"""Commands that change or check a whole index: add, delete, merge, reweight, info, verify."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from lexicept.cli.common import print_json, print_report, print_table, working
from lexicept.cli.declarations import takes
from lexicept.sanitize import safe

if TYPE_CHECKING:
    from lexicept.pipelines.index import Index


@takes("lexicept.pipelines.index:Index.add")
def add(index: Path, documents: str, as_json: bool = False, **options: Any) -> None:
    """Add documents to an index; one with a known id replaces the old one."""
    import lexicept

    with lexicept.open(index) as opened:
        counts = opened.add(documents, **options, progress=True)
    print_report(counts._asdict(), as_json)


def delete(index: Path, document_ids: list[str], *, as_json: bool = False) -> None:
    """Delete documents from an index, by their ids.

    Args:
        document_ids: ids of documents.
    """
    import lexicept

    with working("deleting"), lexicept.open(index) as opened:
        count = opened.delete(document_ids)
    print_report({"deleted": count}, as_json)


@takes("lexicept.pipelines.index:Index.merge")
def merge(index: Path, as_json: bool = False, **options: Any) -> None:
    """Weigh all documents of an index anew, and merge its postings.

    Changes of an index of 131,072 documents or more leave added postings, whose weights are
    computed from statistics of the collection as it was. They are merged without this command once
    a sixteenth of the documents has changed. Prints whether there was anything to merge.
    """
    import lexicept

    with working("merging"), lexicept.open(index) as opened:
        merged = opened.merge(**options)
    print_report({"merged": merged}, as_json)


@takes("lexicept.pipelines.index:Index.reweight")
def reweight(index: Path, *, as_json: bool = False, **options: Any) -> None:
    """Re-weight an index, or a copy of it, by Rational Retrieval Acts (RRA).

    A dimension gains weight in the documents that it tells apart from the others. Without --out the
    index itself changes.
    """
    import lexicept
    from lexicept.storage import workspace

    if "out" in options:
        workspace.refuse_existing(options["out"])
    with lexicept.open(index) as opened, working("re-weighting"):
        report = {"alpha": opened.reweight(**options).info()["rra"]["alpha"]}
    print_report(report, as_json)


def info(index: Path, as_json: bool = False) -> None:
    """Show the documents, vocabularies and size of an index."""
    import lexicept

    with working("opening index"):
        opened = lexicept.open(index)
    print_info(opened, as_json)


def verify(index: Path, as_json: bool = False) -> None:
    """Check every file of an index: sizes, checksums, texts, and whether the parts fit together.

    Problems are printed one per line; the exit status is then 1. A backbone that the index refers
    to is not part of it, and verified whenever the model is loaded.
    """
    from lexicept.index import verification
    from lexicept.progress import ProgressLine

    with ProgressLine() as progress:
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
        raise SystemExit(1)


def print_info(index: Index, as_json: bool) -> None:
    """Print the contents of an index, as a table or as JSON."""
    report = index.info()
    if as_json:
        print_json(report)
        return
    lines = [("documents", f"{report['documents']:,}")]
    if report["passages"]:
        lines.append(("passages", f"{report['passages']:,}"))
    for entry in report["vocabularies"]:
        weighting = dict(entry["weighting"])
        name = weighting.pop("name")
        stated = {k: v for k, v in weighting.items() if k in ("k1", "b") or v not in (None, 1)}
        arguments = ", ".join(f"{key} {value}" for key, value in stated.items())
        lines.append((entry["name"], f"{entry['size']:,} dimensions, {name} {arguments}".rstrip()))
        if entry["adapted"] is not None:
            tokens, steps = entry["adapted"]["tokens"], entry["adapted"]["steps"]
            lines.append(("", f"adapted to the documents: {tokens:,} tokens, {steps:,} steps"))
        for side in ("query", "document"):
            if entry[f"{side}_max_active_dims"] is not None:
                lines.append(("", f"at most {entry[f'{side}_max_active_dims']} in a {side}"))
        if entry["query_max_qd_flops"] is not None:
            lines.append(("", f"at most {entry['query_max_qd_flops']:g} QD-FLOPs in a query"))
        if entry["query_max_active_dims"] is not None or entry["query_max_qd_flops"] is not None:
            lines.append(("", f"queries are pruned by {entry['pruning']}"))
    lines += [(name, "follow when the build of the index ends") for name in report["missing"]]
    for name, kind in report["fields"].items():
        note = ", not offered for filters" if name in report["unoffered_fields"] else ""
        lines.append(("field", f"{name}: {kind}{note}"))
    if report["rra"] is not None:
        lines.append(("rra", ", ".join(f"{k} {v}" for k, v in report["rra"].items())))
    parts = f" in {report['parts']} parts" if report["parts"] > 1 else ""
    lines.append(("postings", f"{report['postings']:,}{parts}"))
    lines.append(("size", f"{report['bytes'] / 1e6:,.1f} MB"))
    print_table(report["path"], lines)
