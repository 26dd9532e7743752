"""``python -m benchmarks.serving INDEX``: requests per second and latency of ``lexicept serve``.

The client is wrk, on the same machine and its processors. Queries are passages of the index's own
documents, no two alike, so that every search of concepts runs the encoder; those that are searched
again are answered from the cache. A bare FastAPI route is measured beside it: what the same
processes answer without searching.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode

from fastapi import FastAPI

from benchmarks.common import Table, write_readme
from lexicept.index.reader import IndexReader

QUERIES = 100_000
QUERY_WORDS = 12
AGAIN = 50
"""Queries that are searched again and again."""
START_SECONDS = 120

bare = FastAPI()


@bare.get("/health")
async def health() -> dict[str, str]:
    """Answer without an index."""
    return {"status": "ok"}


class Load(NamedTuple):
    """A measurement of wrk."""

    requests_per_second: float
    p50: str
    p99: str
    errors: int


def wrk(address: str, paths: list[str], seconds: int, connections: int) -> Load:
    """Ask for the paths in turn. Raises ValueError for a report that can't be read."""
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        listed = ",\n".join(json.dumps(path) for path in paths)
        script.write(
            f"local paths = {{{listed}}}\nlocal i = 0\n"
            "request = function()\n  i = i % #paths + 1\n"
            "  return wrk.format('GET', paths[i])\nend\n"
        )
        script.flush()
        command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "--timeout=30s"]
        report = subprocess.run(
            [*command, "-s", script.name, address], check=True, capture_output=True, text=True
        ).stdout
    rate = re.search(r"Requests/sec:\s+([\d.]+)", report)
    p50, p99 = (re.search(rf"^\s+{share}%\s+(\S+)", report, re.MULTILINE) for share in (50, 99))
    if not (rate and p50 and p99):
        raise ValueError(report)
    counts = re.findall(r"(?:connect|read|write|timeout|Non-2xx or 3xx responses:) (\d+)", report)
    return Load(float(rate[1]), p50[1], p99[1], sum(map(int, counts)))


@contextmanager
def running(command: list[str]) -> Iterator[str]:
    """Yield the address of a server once it answers; stop it when the block ends."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    server = subprocess.Popen([*command, "--port", str(port)], stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                urllib.request.urlopen(f"{address}/health").close()
                break
            except OSError:
                if server.poll() is not None or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
        yield address
    finally:
        server.terminate()
        server.wait()


def passages(index: IndexReader) -> list[str]:
    """Return neighbouring words of the documents as queries, no two alike."""
    # Quotation marks and signs would be syntax.
    texts = (re.findall(r"\w+", document.content) for document in index.documents())
    result = (
        " ".join(words[start : start + QUERY_WORDS])
        for words in texts
        for start in range(0, len(words) - QUERY_WORDS + 1, QUERY_WORDS)
    )
    return list(islice(dict.fromkeys(result), QUERIES))


class Case(NamedTuple):
    """What is asked for."""

    name: str
    parameters: dict[str, str]
    again: bool = False
    """Whether the queries are asked more than once."""


def measured(
    address: str, cases: list[Case], queries: list[str], seconds: int, connections: list[int]
) -> Iterator[list[str]]:
    """Yield a row for each case and number of connections; each has queries of its own."""
    share = len(queries) // (len(cases) * len(connections))
    for case in cases:
        for count in connections:
            own, queries = queries[:share], queries[share:]
            own = own[:AGAIN] if case.again else own
            paths = [f"/search?{urlencode({'query': q, **case.parameters})}" for q in own]
            if case.again:
                wrk(address, paths, seconds, count)
            yield [case.name, str(count), *shown(wrk(address, paths, seconds, count))]


def shown(load: Load) -> list[str]:
    """Return the cells of a measurement."""
    return [f"{load.requests_per_second:,.0f}", load.p50, load.p99, str(load.errors)]


def run(path: Path, seconds: int, workers: int, connections: list[int]) -> Table:
    """Measure all vocabularies of an index, and the bare route."""
    index = IndexReader.open(path)
    queries = passages(index)
    names = [vocabulary.name for vocabulary in index.vocabularies]
    cases = [Case(name, {"vocabulary": name}) for name in names]
    if len(names) > 1:
        both = " and ".join(names)
        cases += [Case(both, {}), Case(f"{both}, asked before", {}, again=True)]
    lines = []
    scripts, more = Path(sys.executable).parent, ["--workers", str(workers)]
    uvicorn = [str(scripts / "uvicorn"), "benchmarks.serving:bare", "--no-access-log"]
    with running([*uvicorn, *more]) as address:
        for count in connections:
            load = wrk(address, ["/health"], seconds, count)
            lines.append(["a bare FastAPI route", str(count), *shown(load)])
    serve = [str(scripts / "lexicept"), "serve", str(path), *more]
    with running(serve) as address:
        lines += measured(address, cases, queries, seconds, connections)
    title = f"{workers} workers, {seconds} s"
    return Table("serving", [title, "connections", "requests/s", "p50", "p99", "errors"], lines)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving", description=__doc__)
    parser.add_argument("index", type=Path)
    parser.add_argument("--seconds", type=int, default=20, help="of each case")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 16, 64])
    arguments = parser.parse_args()
    if shutil.which("wrk") is None:
        parser.error("wrk is not installed (Debian: apt-get install wrk)")
    table = run(arguments.index, arguments.seconds, arguments.workers, arguments.connections)
    print(table.markdown())
    write_readme([table])


if __name__ == "__main__":
    main()
