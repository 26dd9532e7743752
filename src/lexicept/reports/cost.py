"""The sections on the cost of search: lengths, QD-FLOPs, disk, posting lists, dead dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from lexicept.analysis.posting_lists import PostingLists
from lexicept.index.impacts import weigher_of
from lexicept.measures import mean_length, posting_list_flops
from lexicept.parallel.shards import shards_of
from lexicept.reports import charts
from lexicept.reports.material import Subject
from lexicept.reports.page import (
    Block,
    Column,
    Figure,
    Group,
    Note,
    Number,
    Numbers,
    Section,
    Table,
    text_column,
)
from lexicept.reports.wording import count, megabytes, metered, one, percent, two
from lexicept.vectors import Integers

BINS = 30
EXPENSIVE = 15
QUANTILES = (0.25, 0.5, 0.75, 0.9, 0.99, 1.0)


def cost(subject: Subject) -> Section:
    """Write the section with lengths, QD-FLOPs, the costliest dimensions and the size on disk."""
    blocks: list[Block] = [_lengths_table(subject)]
    for name in subject.names:
        blocks.append(_lengths_figure(subject, name))
    if subject.questions is not None:
        blocks.append(_expensive(subject))
    blocks.append(_disk(subject))
    return Section(
        "cost",
        "Cost and sparsity",
        "A search reads the posting list of every dimension of the query. Its cost depends on the "
        "length of texts (their number of dimensions) and on how often queries and documents "
        "share one. QD-FLOPs is the mean number of dimensions that a query and a document share, "
        "over all pairs of both: at 1, a search does one multiplication per document.",
        blocks,
    )


def qd_flops(subject: Subject, name: str | None = None) -> float:
    """Return the QD-FLOPs of the subject's queries in one vocabulary or in all."""
    lengths = subject.posting_lengths
    return posting_list_flops(subject.asked_in(name), lengths, len(subject))


def _lengths_table(subject: Subject) -> Table:
    rows = []
    for name in subject.names:
        lengths = subject.lengths(name)
        row: list[Any] = [name, float(lengths.mean()), int(np.median(lengths)), int(lengths.max())]
        if subject.questions is not None:
            row += [mean_length(subject.asked_in(name)), qd_flops(subject, name)]
        rows.append(row)
    columns = [
        text_column("Vocabulary"),
        Column("Document length, mean", one),
        Column("median", count),
        Column("longest", count),
    ]
    note = "Length: dimensions above 0."
    if subject.questions is not None:
        columns += [Column("Query length, mean", one), Column("QD-FLOPs", two)]
        note += f" Queries: {subject.questions.describe()}."
        if subject.index.rra is not None:
            note += (
                " RRA also gives every document a number that each search adds: one multiplication "
                "more for each document, not counted here."
            )
    if len(rows) > 1 and subject.questions is not None:
        total = np.sum([subject.lengths(name) for name in subject.names], axis=0)
        sums = [float(total.mean()), int(np.median(total)), int(total.max())]
        rows.append(["all", *sums, mean_length(subject.asked), qd_flops(subject)])
    return Table("Lengths and shared dimensions", columns, rows, note)


def _lengths_figure(subject: Subject, name: str) -> Figure:
    lengths = subject.lengths(name)
    # A few very long documents would press all others into one bar.
    most = int(max(np.quantile(lengths, 0.995), 1))
    step = max(1, -(-(most + 1) // BINS))
    edges = np.arange(0, most + step + 1, step)
    counts, _ = np.histogram(lengths[lengths < edges[-1]], edges)
    svg = charts.histogram(
        f"Documents by their number of {name}",
        edges.tolist(),
        counts.tolist(),
        f"{name} in a document",
        "documents",
    )
    beyond = int((lengths >= edges[-1]).sum())
    left_out = f" {count(beyond)} longer ones are beyond its right end." if beyond else ""
    return Figure(svg, f"How many {name} documents have: mean {lengths.mean():,.1f}.{left_out}")


def _expensive(subject: Subject) -> Table:
    """Return the table of the dimensions with the largest shares of QD-FLOPs: P_q(t) P_d(t)."""
    asked = np.bincount(subject.asked.indices, minlength=subject.posting_lengths.size)
    work = asked * subject.posting_lengths
    order = np.argsort(-work, kind="stable")[:EXPENSIVE]
    order = order[work[order] > 0]
    queries = subject.asked.shape[0]
    rows = [
        (
            *subject.label(n)[::-1],
            asked[n] / queries,
            subject.posting_lengths[n] / len(subject),
            work[n] / work.sum(),
        )
        for n in order.tolist()
    ]
    most = max((row[4] for row in rows), default=1.0)
    return Table(
        "The dimensions that cost most",
        [
            text_column("Dimension"),
            text_column("Vocabulary"),
            Column("Share of queries", percent),
            Column("Share of documents", percent),
            Column("Share of the work", lambda share: metered(share, most)),
        ],
        rows,
        f"Share of the work: share of all multiplications for {count(queries)} queries.",
    )


def _disk(subject: Subject) -> Figure:
    sizes: dict[str, int] = {}
    for path, entry in subject.index.manifest["files"].items():
        part = _part(PurePosixPath(path).parts[1:], subject.names)
        sizes[part] = sizes.get(part, 0) + entry["size"]
    parts = sorted(sizes, key=lambda part: -sizes[part])
    values = [sizes[part] / 1e6 for part in parts]
    svg = charts.bars("Size of the parts of the index", parts, values, "MB")
    total = megabytes(sum(sizes.values()))
    return Figure(
        svg,
        f"The index takes {total}. Weights are computed from frequencies, which updates read and "
        "searches do not.",
    )


def _part(path: Sequence[str], names: Sequence[str]) -> str:
    """Return the name of the part of an index that a file belongs to."""
    if path[0] == "postings":
        return "postings"
    if path[0] not in names:
        of = [name for name in names if path[-1].startswith(f"{name}.frequencies")]
        return f"{of[0]}: frequencies" if of else "documents"
    if path[1] in ("model", "atlas"):
        return f"{path[0]}: {path[1]}"
    return f"{path[0]}: names"


def dead(subject: Subject) -> Section:
    """Write the section on dimensions that no or few documents have."""
    blocks: list[Block] = []
    index = subject.index
    shards = shards_of([index.stored_tf(vocabulary) for vocabulary in index.vocabularies])
    before = weigher_of(shards, list(index.settings.values())).collection
    for name, statistics in zip(subject.names, before, strict=True):
        documents = subject.posting_lengths[subject.span(name)]
        rare = _dead_blocks(subject, name, documents, statistics.df)
        blocks.append(Group(name.capitalize(), rare))
    return Section(
        "dead",
        "Dead and rare dimensions",
        "A latent of a sparse autoencoder (a concept) that is active in no document is dead: it "
        "takes space in the model and finds nothing. One that is active in a single document "
        "finds only that one. A word is dead only if all documents with it were deleted.",
        blocks,
    )


def _dead_blocks(
    subject: Subject, name: str, documents: Integers, before: Integers
) -> Sequence[Block]:
    number = max(documents.size, 1)
    never = int((before == 0).sum())
    pruned = int(((before > 0) & (documents == 0)).sum())
    single = int((documents == 1).sum())
    places = f"of {count(number)}"
    lost = "active in a document, but pruned from all"
    items = [
        Number("Never active", f"{count(never)} ({percent(never / number)})", places),
        Number("Lost to pruning", f"{count(pruned)} ({percent(pruned / number)})", lost),
        Number("In one document", f"{count(single)} ({percent(single / number)})", places),
    ]
    edges = [0, 1, *(2**n for n in range(1, max(len(subject), 2).bit_length() + 1))]
    edges = [edge for edge in edges if edge <= len(subject)] + [len(subject) + 1]
    counts, _ = np.histogram(documents, edges)
    labels = [_range(low, high - 1) for low, high in pairwise(edges)]
    svg = charts.columns(
        f"{name.capitalize()} by the number of documents that have them",
        labels,
        [(name, counts.tolist())],
        "documents with the dimension",
        name,
    )
    caption = f"Number of {name} that are in no document, in one, in two or three, and so on."
    return [Numbers(items), Figure(svg, caption)]


def _range(low: int, high: int) -> str:
    return charts.compact(low) if low == high else f"{charts.compact(low)}–{charts.compact(high)}"


def posting_lists(subject: Subject, other: Subject | None) -> Section:
    """Write the section on the lengths of posting lists, of one index or of two."""
    lists = [(f"{s.name}: {name}" if other else name, _lists(s, name))
             for s in (subject, other) if s is not None for name in s.names]  # fmt: skip
    rows = [
        (
            label,
            postings.lengths.size,
            postings.empty,
            postings.mean,
            postings.std,
            *(int(length) for length in postings.quantiles(QUANTILES)),
        )
        for label, postings in lists
    ]
    columns = [
        text_column("Vocabulary"),
        Column("Lists", count),
        Column("Empty", percent),
        Column("Mean length", one),
        Column("Standard deviation", one),
        *(
            Column("longest" if share == 1 else f"{share:.0%} are at most", count)
            for share in QUANTILES
        ),
    ]
    shares = np.concatenate([[0], np.geomspace(1e-4, 1, 60)])
    curves = [
        charts.Series(label, shares.tolist(), postings.cumulative_share(shares).tolist())
        for label, postings in lists
    ]
    ranks = [_ranked(label, postings) for label, postings in lists if postings.lengths.any()]
    blocks: list[Block] = [Table("Posting lists", columns, rows, "Empty lists are included.")]
    if ranks:
        blocks.append(
            Figure(
                charts.lines(
                    "Length of posting lists by rank",
                    ranks,
                    "rank of the list, longest first",
                    "share of documents in it",
                    log_x=True,
                    steps=True,
                ),
                "The longest lists are on the left. A list with most of the documents costs much "
                "and decides little. Empty lists are not drawn.",
            )
        )
        blocks.append(
            Figure(
                charts.lines(
                    "Share of postings in the longest lists",
                    curves,
                    "share of all lists, longest first",
                    "share of all postings",
                ),
                "The further a line bends to the upper left, the larger the share of all postings "
                "in a few long lists.",
            )
        )
    else:
        blocks.append(Note("All posting lists are empty."))
    return Section(
        "posting-lists",
        "Posting lists",
        "A dimension's posting list holds the documents that have it. A few very long lists make "
        "searches slow; dimensions with very short lists match few documents.",
        blocks,
    )


def _lists(subject: Subject, name: str) -> PostingLists:
    lengths = subject.posting_lengths[subject.span(name)]
    return PostingLists(np.sort(lengths)[::-1], len(subject))


def _ranked(label: str, lists: PostingLists) -> charts.Series:
    """Return the lengths at a hundred ranks, spaced evenly on a logarithmic axis."""
    filled = int((lists.lengths > 0).sum())
    ranks = np.unique(np.geomspace(1, filled, 100).astype(np.int64))
    shares = lists.lengths[ranks - 1] / lists.num_documents
    return charts.Series(label, ranks.tolist(), shares.tolist())
