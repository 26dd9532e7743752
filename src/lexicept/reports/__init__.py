"""Reports about an index: one HTML file about the collection, search results and costs.

The file can be read without a network and without scripts. Slow measurements use a sample of a
large collection, and the report says so in place.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Sequence
from math import isnan
from pathlib import Path

from markupsafe import Markup

from lexicept.corpora import Qrel, Query
from lexicept.errors import InputError
from lexicept.explanation.html import environment
from lexicept.index.reader import IndexReader
from lexicept.progress import Progress, silent
from lexicept.reports.facts import report_facts
from lexicept.reports.measured import DEPTH, MeasuredIndex, ReportQueries

__all__ = ["build_report"]

FOLDER = Path(__file__).parent


def build_report(
    index: IndexReader,
    queries: Sequence[Query] = (),
    qrels: Sequence[Qrel] = (),
    progress: Progress = silent,
) -> str:
    """Return the report of an index as one HTML page. Raises InputError for queries without
    judgements.

    Args:
        queries: judged queries; without any, sentences of the documents search for their documents.
    """
    if queries and not qrels:
        raise InputError("queries without judgements: there is nothing to evaluate")
    judged = ReportQueries.from_judged(queries, qrels) if queries else None
    searched = judged or ReportQueries.from_documents(index)
    measured = MeasuredIndex(index, searched if searched.queries else None)
    style, script = ((FOLDER / name).read_text("utf-8") for name in ("page.css", "page.js"))
    # Nothing but these two may run or be loaded, whatever a document's text holds.
    sources = f"style-src {_hash(style)}; script-src {_hash(script)}"
    return (
        environment(FOLDER)
        .get_template("report.html")
        .render(
            report_facts(measured, progress),
            policy=f"default-src 'none'; {sources}",
            style=Markup(style),
            script=Markup(script),
            formats={"percent": percent, "count": "{:,.0f}".format, "one": "{:,.1f}".format}
            | {"measure": measure, "megabytes": lambda size: f"{size / 1e6:,.1f} MB"}
            | {"rank": lambda rank: f"> {DEPTH}" if rank is None else f"{rank:,}"},
        )
    )


def _hash(source: str) -> str:
    """Return a content security policy's name of an inline script or style."""
    return f"'sha256-{b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"


def percent(value: float) -> str:
    """Format a share: ``12.3%``; small ones with two significant digits."""
    if abs(value) >= 0.01 or not value:
        return f"{value:.1%}"
    return f"{100 * value:#.2g}%" if abs(value) >= 1e-6 else "< 0.0001%"


def measure(value: float) -> str:
    """Format a measure; nothing for NaN."""
    return "" if isnan(value) else f"{value:.4f}" if value >= 1e-4 or not value else f"{value:.1g}"
