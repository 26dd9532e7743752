"""The server under load: ``python -m tests.soak.server [--updates N] [--requests N]``.

A server of words and concepts answers requests of all kinds while its index is updated. Printed are
its memory, its file descriptors and the generations that it keeps open; the exit status is 1 if one
of them grows, an answer is a server error or an update is not served. Linux only.
"""

import argparse
import http.client
import json
import os
import random
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from urllib.parse import urlencode

ROOT = Path(__file__).parents[2]
CLIENTS = 4
SLOW = 20
"""Unfinished requests that are held open, until the server drops them."""
PATIENCE = 120
"""Seconds until an update must be served."""
GROWTH = 64
"""MB that the server may take after the first tenth of the run: caches fill."""


class Figures(NamedTuple):
    """A look at the server's process."""

    memory: int
    """Resident, in MB."""
    descriptors: int
    generations: int
    """Folders of the index that are open."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.server")
    parser.add_argument("--updates", type=int, default=100)
    parser.add_argument("--requests", type=int, default=50_000)
    arguments = parser.parse_args()
    sys.path += [str(ROOT / "src"), str(ROOT / "tests")]
    from support.served import save_index

    with TemporaryDirectory() as name:
        messages = soak(save_index(Path(name)), arguments.updates, arguments.requests, print)
    for message in messages:
        print(message)
    sys.exit(bool(messages))


def soak(path: Path, updates: int, requests: int, report: Callable[[str], object]) -> list[str]:
    """Serve, ask and update; return what is wrong.

    Args:
        requests: of all rounds together; every round ends with an update.
    """
    from lexicept.corpora import Document
    from lexicept.index.updates import delete, update

    recorded: list[Figures] = []
    statuses: Counter[int] = Counter()
    each = max(CLIENTS, requests // updates)
    start = time.monotonic()
    with serving(path) as (process, port), ThreadPoolExecutor(CLIENTS) as clients:
        slow = [half_a_request(port) for _ in range(SLOW)]
        for i in range(updates):
            shares = [each // CLIENTS + (position < each % CLIENTS) for position in range(CLIENTS)]
            seeds = [i * CLIENTS + position for position in range(CLIENTS)]
            for counts in clients.map(ask, [port] * CLIENTS, shares, seeds):
                statuses += counts
            slow.pop(0).close()
            slow.append(half_a_request(port))
            if i % 2:
                delete(path, [f"new{i - 1}"])
            else:
                update(path, [Document(f"new{i}", f"bade kilo zebra{i}")])
            wait_for(port, i + 2)
            recorded.append(figures(process.pid, path))
            if (i + 1) % max(1, updates // 10) == 0:
                seconds = time.monotonic() - start
                report(
                    f"{i + 1} updates, {sum(statuses.values()):,} requests, {seconds:.0f} s: "
                    f"{recorded[-1].memory} MB, {recorded[-1].descriptors} descriptors, "
                    f"{recorded[-1].generations} generation open"
                )
        for connection in slow:
            connection.close()
    report("answers by status: " + ", ".join(f"{k}: {n:,}" for k, n in sorted(statuses.items())))
    return list(problems_of(recorded, statuses))


def problems_of(recorded: list[Figures], statuses: Counter[int]) -> Iterator[str]:
    """Yield the errors of a run."""
    early = recorded[: max(1, len(recorded) // 10)]
    memory = max(one.memory for one in early)
    if recorded[-1].memory > memory + GROWTH:
        yield f"memory grew from {memory} to {recorded[-1].memory} MB"
    most = max(one.descriptors for one in recorded)
    # Models of the first generation stay loaded; connections come and go.
    if most > min(one.descriptors for one in early) + CLIENTS + SLOW + 40:
        yield f"{most} descriptors were open"
    if recorded[-1].generations != 1:
        yield f"{recorded[-1].generations} generations are open"
    if errors := {status: n for status, n in statuses.items() if status >= 500}:
        yield f"server errors: {errors}"


def ask(port: int, count: int, seed: int) -> Counter[int]:
    """Send requests over one connection; return the count of each status."""
    chance = random.Random(seed)
    statuses: Counter[int] = Counter()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    for i in range(count):
        connection.request("GET", target(chance, f"{seed}x{i}"))
        answer = connection.getresponse()
        answer.read()
        statuses[answer.status] += 1
    connection.close()
    return statuses


def target(chance: random.Random, unique: str) -> str:
    """Return the address of a request; ``unique`` makes new words."""
    long = unique + chance.choice("aжя𝒳") * 1500  # in UTF-8 and percent signs 18,000 bytes
    action = chance.randrange(10)
    if action < 4:
        return "/search?" + urlencode({"query": f"{long[:3000]} kilo", "vocabulary": "words"})
    if action < 6:
        return "/search?" + urlencode({"query": f"bade {unique}", "top_k": 20})
    if action == 6:
        return "/explain?" + urlencode({"query": "bade kilo", "document_id": "d1"})
    if action == 7:
        return f"/concepts/{chance.randrange(80)}"  # 64 to 79 are none
    if action == 8:
        return f"/document?document_id={unique}"
    return "/query?" + urlencode({"query": f"muki {unique}", "steer": "words:1:2.5"})


def half_a_request(port: int) -> socket.socket:
    """Return a connection that keeps the server waiting."""
    connection = socket.create_connection(("127.0.0.1", port))
    connection.sendall(b"GET /health HTTP/1.1\r\nHost: loc")
    return connection


def wait_for(port: int, generation: int) -> None:
    """Return once a generation is served. Raises TimeoutError after too long."""
    deadline = time.monotonic() + PATIENCE
    wanted = f"generation-{generation:06d}"
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        connection.request("GET", "/health")
        health = json.load(connection.getresponse())
        connection.close()
        if health["generation"] == wanted:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"{wanted} is not served: {health}")
        time.sleep(0.05)


def figures(process: int, path: Path) -> Figures:
    """Return the memory, descriptors and generations of a process."""
    status = Path(f"/proc/{process}/status").read_text()
    descriptors = os.listdir(f"/proc/{process}/fd")
    opened = set()
    for descriptor in descriptors:
        try:
            opened.add(os.readlink(f"/proc/{process}/fd/{descriptor}"))
        except FileNotFoundError:  # closed meanwhile
            continue
    folders = [name for name in opened if os.path.dirname(name) == str(path.resolve())]
    memory = int(status.partition("VmRSS:")[2].split()[0]) // 1024
    return Figures(memory, len(descriptors), len(folders))


@contextmanager
def serving(path: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Run ``lexicept serve``; yield its process and port when it answers."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    program = "from lexicept.cli import main; main()"
    arguments = [sys.executable, "-c", program, "serve", str(path), "--port", str(port)]
    paths = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths}
    with subprocess.Popen(arguments, env=environment, stderr=subprocess.DEVNULL) as process:
        try:
            while True:
                try:
                    half_a_request(port).close()
                    break
                except ConnectionRefusedError:
                    if process.poll() is not None:
                        raise RuntimeError("the server has ended") from None
                    time.sleep(0.05)
            yield process, port
        finally:
            process.terminate()


if __name__ == "__main__":
    main()
