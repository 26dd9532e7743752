"""Processes that read an index as fast as they can during changes."""

import mmap
import os
import random
import re
from collections.abc import Callable
from pathlib import Path

from lexicept.corpora import Document
from lexicept.errors import InputError
from lexicept.index.reader import IndexReader
from lexicept.index.updates import update

SIZE = 6
"""Documents of the index."""


def fork(work: Callable[[], object]) -> int:
    """Do something in a child process; return its id."""
    pid = os.fork()
    if not pid:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return pid


def version(number: int) -> list[Document]:
    """All documents of one moment, each with its version."""
    return [Document(f"d{i}", f"common v{number} n{i} n{i % 2}") for i in range(SIZE)]


def read_whole(path: Path, later: Callable[[], object] = lambda: None) -> int:
    """Read all there is of an index, the parts that are loaded late after ``later``; its version.

    Raises:
        AssertionError: parts of two versions.
    """
    index = IndexReader.open(path)
    texts = [document.text for document in index.documents()]
    number = int(texts[0].split()[1][1:])
    assert texts == [document.text for document in version(number)]
    later()
    assert len(index.search([f"v{number}"], 10)[0]) == SIZE
    assert len(index.search(["common"], 10)[0]) == SIZE
    assert index.search([f"v{number - 1} v{number + 1}"], 10)[0] == []
    assert [len(index.explain(f"n1 v{number}", f"d{i}").contributions) for i in (0, 1)] == [1, 2]
    (frequencies,) = index.tf()
    assert frequencies.sum(axis=1).tolist() == [4.0] * SIZE
    assert index.document_vectors().weights.shape == frequencies.shape
    return number


def read_while(path: Path, ended: Callable[[], bool], seed: int) -> int:
    """Read until something ended; how often. Now and then the index is kept over some updates."""
    drawn, count, last = random.Random(seed), 0, 0
    while not ended():
        found = read_whole(path, lambda: drawn.random() < 0.1 and updates_pass(path, 3, ended))
        assert found >= last  # nobody goes back in time
        count, last = count + 1, found
    return count


def updates_pass(path: Path, number: int, ended: Callable[[], bool]) -> None:
    """Wait until an index was updated so often."""
    versions: set[int] = set()
    while len(versions) <= number and not ended():
        versions.add((path / "manifest.json").stat().st_ino)


def read_during_updates(path: Path, updates: int, readers: int) -> list[int]:
    """Update an index while other processes read it; how often each read it.

    Raises:
        AssertionError: a reader failed, or the index is not as the last update left it.
    """
    shared = mmap.mmap(-1, 8 * (readers + 1))

    def read(place: int) -> None:
        count = read_while(path, lambda: shared[0] == 1, place)
        shared[8 * place : 8 * place + 8] = count.to_bytes(8, "little")

    pids = [fork(lambda place=reader: read(place)) for reader in range(1, readers + 1)]
    try:
        for i in range(1, updates + 1):
            update(path, version(i))
    finally:
        shared[0] = 1
        failed = [status for _, status in (os.waitpid(pid, 0) for pid in pids) if status]
    assert not failed
    assert read_whole(path) == updates
    return [int.from_bytes(shared[8 * p : 8 * p + 8], "little") for p in range(1, readers + 1)]


def race(work: Callable[[], object], writers: int) -> int:
    """Let processes do the same at once; how many were not refused.

    Raises:
        AssertionError: one failed otherwise than by being refused.
    """

    def try_it() -> None:
        try:
            work()
        except InputError as error:
            refused = re.search("another process is writing|exists already", str(error))
            os._exit(3 if refused else 4)

    statuses = [os.waitpid(pid, 0)[1] for pid in [fork(try_it) for _ in range(writers)]]
    codes = [os.waitstatus_to_exitcode(status) for status in statuses]
    assert set(codes) <= {0, 3}, codes
    return codes.count(0)
