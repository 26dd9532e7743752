"""The section on the cost of search: weighting, lengths, QD-FLOPs, posting lists, disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from lexicept.index.impacts import weigher_of
from lexicept.measures import QD_FLOPS, mean_length
from lexicept.parallel.shards import shards_of
from lexicept.reports import charts, page
from lexicept.reports.measured import MeasuredIndex

BINS = 30
EXPENSIVE = 15
QUANTILES = (0.5, 0.9, 0.99, 1.0)


def cost(measured: MeasuredIndex) -> page.ReportSection:
    """Write the section with weighting, lengths, QD-FLOPs, posting lists and size on disk."""
    postings = page.count(measured.index.engine.num_postings)
    figures = [
        page.Number("Postings", postings, "document–dimension pairs with a weight"),
        page.Number(
            "Size on disk", page.megabytes(sum(_sizes(measured).values())), "all files together"
        ),
    ]
    blocks: list[page.Block] = [
        page.Numbers(figures),
        _weighting(measured),
        _lengths_table(measured),
    ]
    blocks += [_lengths_figure(measured, name) for name in measured.vocabularies]
    if measured.has_queries:
        blocks.append(_expensive(measured))
    blocks += [_posting_lists(measured), *_ranked_lists(measured), _disk(measured)]
    return page.ReportSection(
        "cost",
        "Cost and sparsity",
        "An inverted index stores, for every dimension, the posting list of the documents that "
        "have it. A search reads the list of every dimension of the query. Its cost depends on "
        "the length of texts (their number of dimensions) and on how often queries and documents "
        "share one. QD-FLOPs is the mean number of dimensions that a query and a document share, "
        "over all pairs of both: at 1, a search does one multiplication per document. Pruning "
        "keeps the largest weights of a text, so that searches cost less.",
        blocks,
    )


def _weighting(measured: MeasuredIndex) -> page.Table:
    index = measured.index
    cells = []
    for name, settings in index.settings.items():
        arguments = settings.weighting.settings()
        weighting = arguments.pop("name")
        values = ", ".join(f"{k} {v}" for k, v in arguments.items() if v is not None)
        limits = (
            str(settings.query_max_active_dims or "all"),
            str(settings.query_max_qd_flops or "any"),
            str(settings.pruning),
            str(settings.document_max_active_dims or "all"),
        )
        cells.append([name, f"{weighting} ({values})", *limits])
    rra = "no"
    if index.rra is not None:
        rra = f"α {index.rra.alpha:g}, {index.rra.iterations} iterations, f {index.rra.transform}"
    titles = ["Vocabulary", "Weighting", "Most dimensions of a query", "Most QD-FLOPs of a query"]
    titles += ["Queries are pruned by", "Most dimensions of a document"]
    note = f"Re-weighted by Rational Retrieval Acts (RRA): {rra}."
    return page.Table(
        "Weighting and pruning", [page.text_column(title) for title in titles], cells, note
    )


def _lengths_table(measured: MeasuredIndex) -> page.Table:
    lengths = {name: measured.spread(name).lengths for name in measured.vocabularies}
    if len(lengths) > 1:
        lengths["all"] = np.sum(list(lengths.values()), axis=0)
    cells = []
    for name, document_lengths in lengths.items():
        median, longest = int(np.median(document_lengths)), int(document_lengths.max())
        line: list[Any] = [name, float(document_lengths.mean()), median, longest]
        if measured.has_queries:
            vocabulary = None if name == "all" else name
            query_length = mean_length(measured.query_weights_in(vocabulary))
            line += [query_length, measured.qd_flops(vocabulary)]
        cells.append(line)
    columns = [
        page.text_column("Vocabulary"),
        page.Column("Document length, mean", page.one_decimal),
        page.Column("median", page.count),
        page.Column("longest", page.count),
    ]
    note = "Length: dimensions above 0."
    if measured.has_queries:
        columns += [page.Column("Query length, mean", page.one_decimal)]
        columns += [page.Column(QD_FLOPS.title, QD_FLOPS.format)]
        note += f" Queries: {measured.queries.describe()}."
        if measured.index.rra is not None:
            note += (
                " RRA also gives every document a number that each search adds: one multiplication "
                "more for each document, not counted here."
            )
    return page.Table("Lengths and shared dimensions", columns, cells, note)


def _lengths_figure(measured: MeasuredIndex, vocabulary: str) -> page.Figure:
    lengths = measured.spread(vocabulary).lengths
    # A few very long documents would press all others into one bar.
    limit = int(max(np.quantile(lengths, 0.995), 1))
    step = max(1, -(-(limit + 1) // BINS))
    edges = np.arange(0, limit + step + 1, step)
    counts, _ = np.histogram(lengths[lengths < edges[-1]], edges)
    chart = charts.histogram(
        f"Documents by their number of {vocabulary}",
        edges.tolist(),
        counts.tolist(),
        f"{vocabulary} in a document",
        "documents",
    )
    beyond = int((lengths >= edges[-1]).sum())
    left_out = f" {page.count(beyond)} longer ones are beyond its right end." if beyond else ""
    mean = f"mean {lengths.mean():,.1f}"
    return page.Figure(chart, f"How many {vocabulary} documents have: {mean}.{left_out}")


def _expensive(measured: MeasuredIndex) -> page.Table:
    """Return the table of the dimensions with the largest shares of QD-FLOPs: P_q(t) P_d(t)."""
    # A dimension costs a multiplication for each query and each document with the dimension.
    posting_lengths = measured.posting_lengths
    occurrences = np.bincount(measured.query_weights.indices, minlength=posting_lengths.size)
    work = occurrences * posting_lengths
    order = np.argsort(-work, kind="stable")[:EXPENSIVE]
    queries = measured.query_weights.shape[0]
    cells = []
    order, weigher = order[work[order] > 0], measured.index.weigher
    for dimension, numbered in zip(order.tolist(), weigher.numbered(order), strict=True):
        query_share = occurrences[dimension] / queries
        document_share = posting_lengths[dimension] / len(measured)
        work_share = work[dimension] / work.sum()
        term, (vocabulary, _) = weigher.term(numbered), numbered
        cells.append((term, vocabulary, query_share, document_share, work_share))
    largest = max((share for *_, share in cells), default=1.0)
    return page.Table(
        "The dimensions that cost most",
        [
            page.text_column("Dimension"),
            page.text_column("Vocabulary"),
            page.Column("Share of queries", page.percent),
            page.Column("Share of documents", page.percent),
            page.Column("Share of the work", lambda share: page.metered(share, largest)),
        ],
        cells,
        f"Share of the work: share of all multiplications for {page.count(queries)} queries.",
    )


def _posting_lists(measured: MeasuredIndex) -> page.Table:
    index = measured.index
    shards = shards_of([index.stored_tf(vocabulary) for vocabulary in index.vocabularies])
    statistics = weigher_of(shards, list(index.settings.values())).collection
    cells = []
    for name, unpruned in zip(measured.vocabularies, statistics, strict=True):
        lengths = measured.posting_lengths[index.span(name)]
        size = max(lengths.size, 1)
        quantiles = [0] * len(QUANTILES)
        if lengths.size:
            quantiles = np.quantile(lengths, QUANTILES, method="inverted_cdf").tolist()
        never, pruned = unpruned.df == 0, (unpruned.df > 0) & (lengths == 0)
        shares = [mask.sum() / size for mask in (never, pruned, lengths == 1)]
        cells.append([name, lengths.size, *shares, lengths.sum() / size, *quantiles])
    return page.Table(
        "Posting lists",
        [
            page.text_column("Vocabulary"),
            page.Column("Lists", page.count),
            page.Column("Never active", page.percent),
            page.Column("Lost to pruning", page.percent),
            page.Column("In one document", page.percent),
            page.Column("Mean length", page.one_decimal),
            *(
                page.Column("longest" if share == 1 else f"{share:.0%} are at most", page.count)
                for share in QUANTILES
            ),
        ],
        cells,
        "A concept that is active in no document is dead: it takes space in the model and finds "
        "nothing. A word is dead only if all documents with it were deleted. Lost to pruning: "
        "active in a document, but pruned from all.",
    )


def _ranked_lists(measured: MeasuredIndex) -> list[page.Block]:
    """Return the figure of the lengths of posting lists, longest first; none for empty lists."""
    series = []
    for name in measured.vocabularies:
        lengths = np.sort(measured.posting_lengths[measured.index.span(name)])[::-1]
        if lengths.any():
            # A hundred ranks, spaced evenly on a logarithmic axis.
            ranks = np.unique(np.geomspace(1, (lengths > 0).sum(), 100).astype(np.int64))
            shares = lengths[ranks - 1] / len(measured)
            series.append(charts.Series(name, ranks.tolist(), shares.tolist()))
    if not series:
        return []
    chart = charts.steps(
        "Length of posting lists by rank",
        series,
        "rank of the list, longest first",
        "share of documents in it",
    )
    caption = (
        "The longest lists are on the left. A list with most of the documents costs much and "
        "decides little; a very short one matches few documents. Empty lists are not drawn."
    )
    return [page.Figure(chart, caption)]


def _disk(measured: MeasuredIndex) -> page.Figure:
    sizes = _sizes(measured)
    names = sorted(sizes, key=lambda name: -sizes[name])
    values = [sizes[name] / 1e6 for name in names]
    return page.Figure(
        charts.bars("Size of the parts of the index", names, values, "MB"),
        f"The index takes {page.megabytes(sum(sizes.values()))}. Weights are computed from "
        "frequencies, which updates read and searches do not.",
    )


def _sizes(measured: MeasuredIndex) -> Counter[str]:
    """Return the bytes of each component of the index."""
    sizes: Counter[str] = Counter()
    for path, file in measured.index.manifest["files"].items():
        sizes[_component(PurePosixPath(path).parts[1:], measured.vocabularies)] += file["size"]
    return sizes


def _component(path: Sequence[str], vocabularies: Sequence[str]) -> str:
    """Return the name of the component of an index that a file belongs to."""
    if path[0] == "postings":
        return "postings"
    if path[0] not in vocabularies:
        frequencies = [name for name in vocabularies if path[-1].startswith(f"{name}.frequencies")]
        return f"{frequencies[0]}: frequencies" if frequencies else "documents"
    return f"{path[0]}: {path[1] if path[1] in ('model', 'atlas') else 'names'}"
