"""``python -m benchmarks.page INDEX QUERIES``: time from typing or Enter to results in a browser.

``lexicept serve`` and Chromium run on this machine. QUERIES is a JSON Lines file in BEIR's layout;
the case that needs the model comes first, so that no encoded query comes from a cache. The time
ends with the frame after the results, their snippets and their chips are in the page.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path
from statistics import median

import numpy as np
from playwright.sync_api import Page, sync_playwright

from benchmarks.common import Table, write_readme
from benchmarks.serving import running
from lexicept.corpora import read_query_file
from lexicept.index.reader import IndexReader

CASES = {
    "Enter, words, concepts and similarity": ("both", False),
    "Enter, words": ("words", False),
    "typing, words": ("both", True),
}
"""The vocabularies that the page searches, and whether the query is typed without Enter, which
shows results of words alone until typing pauses."""
WARM_UP = 2
"""Queries that are searched before the measured queries."""
PAUSE_SECONDS = 1.0
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
SEARCH = """([query, typing]) => new Promise((done, fail) => {
  const results = document.getElementById("results");
  const previous = results.firstElementChild;
  const start = performance.now();
  const look = () => {
    const shown = results.firstElementChild;
    const ready = typing || results.getAttribute("aria-busy") !== "true";
    if (shown && shown !== previous && ready)
      requestAnimationFrame(() => done(performance.now() - start));
    else if (performance.now() - start > 30000) fail(new Error(`no results: ${query}`));
    else setTimeout(look, 1);
  };
  const box = document.getElementById("query");
  box.value = query;
  if (typing) box.dispatchEvent(new InputEvent("input"));
  else document.getElementById("search").requestSubmit();
  look();
})"""


def milliseconds(page: Page, query: str, typing: bool) -> float:
    """Return the time of a search of the page."""
    time.sleep(PAUSE_SECONDS)  # or the work behind the last results would count
    return float(page.evaluate(SEARCH, [query, typing]))


def run(index: Path, queries: list[str]) -> Table:
    """Search the queries in every case. Raises Error for a query without results."""
    size = IndexReader.open(index).engine.num_documents
    serve = [str(Path(sys.executable).parent / "lexicept"), "serve", str(index)]
    lines = []
    with running(serve) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        for name, (mode, typing) in CASES.items():
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            page.goto(f"{address}/?in={mode}")
            times = [milliseconds(page, query, typing) for query in queries][WARM_UP:]
            shown = (median(times), np.percentile(times, 95), max(times))
            lines.append([name, *(f"{value:.0f} ms" for value in shown)])
        browser.close()
    title = f"{size:,} passages, {len(queries) - WARM_UP} queries"
    return Table("page", [title, "median", "95 %", "longest"], lines)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.page", description=__doc__)
    parser.add_argument("index", type=Path)
    parser.add_argument("queries", type=Path)
    arguments = parser.parse_args()
    if shutil.which("chromium") is None:
        parser.error("chromium is not installed (Debian: apt-get install chromium)")
    table = run(arguments.index, [query.text for query in read_query_file(arguments.queries)])
    print(table.markdown())
    write_readme([table])


if __name__ == "__main__":
    main()
