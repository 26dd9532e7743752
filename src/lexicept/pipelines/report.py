"""Write the report about an index."""

from __future__ import annotations

import os
from pathlib import Path

from lexicept.checks import checked_arguments
from lexicept.pipelines.opened import IndexLike, read_judged, reader_of
from lexicept.progress import Progress, reporting
from lexicept.storage.files import replace_file


@checked_arguments
def report(
    index: IndexLike,
    out: str | os.PathLike[str],
    *,
    queries: str | os.PathLike[str] | None = None,
    split: str = "test",
    progress: bool | Progress = False,
) -> Path:
    """Write one HTML file about an index: topics, effectiveness, and cost.

    The file needs no network, and no script for reading.

    Args:
        index: an opened index, or the path of one.
        out: the file to write; an existing one is replaced.
        queries: judged queries: a BEIR folder or an ir_datasets name. By default, sentences of the
            documents are queries for the documents.
        split: the judgements to use.
        progress: True shows a line on standard error.

    Returns:
        The path of the file.

    Raises:
        InputError: no such dataset or split, or no judgements of indexed documents.
        IndexFormatError: a path that holds no index, or a damaged one.

    Examples:
        >>> lexicept.report("pets.index", "pets.html")
        PosixPath('pets.html')
    """
    from lexicept.reports.report import build_report

    path = Path(out)
    reader = reader_of(index)
    judged, qrels = ([], []) if queries is None else read_judged(reader, queries, split)
    with reporting(progress) as report_progress:
        page = build_report(reader, judged, qrels, report_progress)
    replace_file(path, page.encode())
    return path
