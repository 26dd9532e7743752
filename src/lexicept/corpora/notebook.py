"""Jupyter notebooks: the text of Markdown cells, and code cells without outputs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from lexicept.corpora.markdown import anchor_of, markdown_blocks
from lexicept.corpora.passages import Block, Heading, Parsed, parsed_blocks
from lexicept.errors import InputError


def parse_notebook(path: str, text: str) -> Parsed:
    """Parse a notebook of nbformat 3 or 4. The title is the first heading of level 1.

    Raises InputError for broken JSON, and for JSON that is no notebook.
    """
    try:
        return parsed_blocks(list(_blocks(json.loads(text))))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        problem = f"{type(error).__name__}: {error!s:.80}"
        raise InputError(f"{path}: can't be read as a notebook: {problem}") from error


def _blocks(notebook: Any) -> Iterator[Block]:
    """Yield the headings and texts of all cells."""
    # Up to nbformat 3, cells are in worksheets, and headings are cells.
    sheets = [notebook] if "cells" in notebook else notebook["worksheets"]
    for cell in (cell for sheet in sheets for cell in sheet["cells"]):
        kind = cell["cell_type"]
        source = "".join(cell["source"] if "source" in cell else cell.get("input", ""))
        if kind == "markdown":
            yield from markdown_blocks(source)
        elif kind == "heading":
            words = " ".join(source.split())
            yield Heading(int(cell["level"]), words, anchor_of(words))
        elif kind == "code" and source.strip():
            yield source.strip("\n")
