"""``python -m benchmarks.serving INDEX``: requests per second and latency of ``lexicept serve``.

The client is wrk, on the same machine. Queries are the beginnings of the index's own documents, all
different, so that every search of concepts runs the encoder. A bare FastAPI route is measured
beside it: what the same processes answer without searching.
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

from benchmarks.common import Table
from lexicept.index.reader import IndexReader

QUERIES = 2_000
QUERY_WORDS = 12
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
    p50, p99 = re.search(r"50%\s+(\S+)", report), re.search(r"99%\s+(\S+)", report)
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


def run(path: Path, seconds: int, workers: int, connections: int) -> Table:
    """Measure all vocabularies of an index, and the bare route."""
    index = IndexReader.open(path)
    contents = (document.content for document in islice(index.documents(), QUERIES))
    queries = [" ".join(content.split()[:QUERY_WORDS]) for content in contents]
    names = [vocabulary.name for vocabulary in index.vocabularies]
    cases = {name: {"vocabulary": name} for name in names}
    if len(names) > 1:
        cases[" and ".join(names)] = {}
    scripts = Path(sys.executable).parent
    measured: dict[str, Load] = {}
    uvicorn = [str(scripts / "uvicorn"), "benchmarks.serving:bare", "--no-access-log"]
    with running([*uvicorn, "--workers", str(workers)]) as address:
        measured["a bare FastAPI route"] = wrk(address, ["/health"], seconds, connections)
    serve = [str(scripts / "lexicept"), "serve", str(path)]
    with running([*serve, "--workers", str(workers)]) as address:
        for name, parameters in cases.items():
            paths = [f"/search?{urlencode({'query': q, **parameters})}" for q in queries]
            measured[name] = wrk(address, paths, seconds, connections)
    rows = [
        [name, f"{load.requests_per_second:,.0f}", load.p50, load.p99, str(load.errors)]
        for name, load in measured.items()
    ]
    title = f"{workers} workers, {connections} connections, {seconds} s"
    return Table("serving", [title, "requests/s", "p50", "p99", "errors"], rows)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving", description=__doc__)
    parser.add_argument("index", type=Path)
    parser.add_argument("--seconds", type=int, default=60, help="of each case")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--connections", type=int, default=16)
    arguments = parser.parse_args()
    if shutil.which("wrk") is None:
        parser.error("wrk is not installed (Debian: apt-get install wrk)")
    table = run(arguments.index, arguments.seconds, arguments.workers, arguments.connections)
    print(table.markdown())


if __name__ == "__main__":
    main()
