"""What is interrupted: each way to change an index on disk, and what may be there afterwards."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import lexicept.exports.folder
from lexicept.corpora import Document
from lexicept.exports.anserini import Anserini
from lexicept.exports.folder import export_index
from lexicept.index import updates
from lexicept.index.builder import IndexBuilder
from lexicept.index.impacts import RRASettings, VocabularySettings
from lexicept.index.reader import IndexReader
from lexicept.index.verification import verify
from lexicept.vectorizers.interface import Vectorizer
from lexicept.vectorizers.words import WordVectorizer
from lexicept.weighting import BM25
from support.vowels import Vowels, findings

from .points import die, points

Step = Callable[[Path], object]

DESCRIBED = 4
"""Documents of an index whose concepts have labels."""


class Case(NamedTuple):
    """One change, from files that ``prepare`` writes into a folder."""

    prepare: Step
    act: Step
    """The change; after an interruption it is run again."""
    result: str
    """The name in the folder of what is changed or made."""


def documents(count: int, word: str = "cat") -> list[Document]:
    return [Document(f"d{i}", f"{word} n{i} n{i % 7}", "A title") for i in range(count)]


def build(path: Path, count: int, concepts: Vectorizer | None = None) -> None:
    with closing(IndexBuilder(path)) as builder:
        builder.add_documents(documents(count), {"seed": 0})
        builder.add_vocabulary(WordVectorizer(), VocabularySettings(BM25()))
        if concepts is not None:
            builder.add_vocabulary(concepts, VocabularySettings(BM25(k3=1.0)))
        builder.commit()


def build_described(folder: Path) -> None:
    with closing(IndexBuilder(folder / "index")) as builder:
        builder.add_documents(documents(DESCRIBED), {})
        builder.add_vocabulary(WordVectorizer(), VocabularySettings(BM25()))
        builder.add_vocabulary(Vowels(), VocabularySettings(BM25(k3=1.0)))
        builder.add_atlas(findings(DESCRIBED))
        builder.commit(RRASettings())


def export(folder: Path) -> None:
    index = IndexReader.open(folder / "index")
    with patch.object(lexicept.exports.folder, "PART_BYTES", 40 * len(index)):  # a few parts
        export_index(index, Anserini(), folder / "out")


def cases(count: int) -> dict[str, Case]:
    """Of indexes of ``count`` documents."""

    def base(folder: Path) -> None:
        build(folder / "index", count)

    return {
        "build": Case(lambda _: None, lambda f: build(f / "out", count, Vowels()), "out"),
        "update": Case(
            base,
            lambda f: updates.update(f / "index", documents(count * 3 // 2, "dog")),
            "index",
        ),
        "delete": Case(base, delete_one, "index"),
        "rra": Case(base, lambda f: updates.reweight(f / "index", f / "out", RRASettings()), "out"),
        "relabel": Case(
            build_described, lambda f: updates.relabel(f / "index", {1: "new"}, "llm"), "index"
        ),
        "export": Case(base, export, "out"),
    }


def delete_one(folder: Path) -> None:
    if "d0" in IndexReader.open(folder / "index").ids:
        updates.delete(folder / "index", ["d0"])


class Unbroken(NamedTuple):
    """A case, its files before the change, and what an unbroken change leads to."""

    case: Case
    before: Path
    old: str | None
    new: str | None
    files: list[str]
    """Of the folder after the change."""
    points: list[str]
    """The write points of the change."""
    seconds: float
    """How long it takes in a process of its own."""


def run_unbroken(case: Case, folder: Path) -> Unbroken:
    before, after = folder / "before", folder / "after"
    before.mkdir(parents=True)
    case.prepare(before)
    shutil.copytree(before, folder / "timed")
    start = time.monotonic()
    os.waitpid(fork(lambda: case.act(folder / "timed")), 0)  # which may compile and keep kernels
    seconds = time.monotonic() - start
    shutil.copytree(before, after)
    with points() as counter:
        case.act(after)
    old, new = (state(each / case.result) for each in (before, after))
    assert old != new
    return Unbroken(case, before, old, new, names_in(after), counter.names, seconds)


def state(path: Path) -> str | None:
    """A digest of an index or an export, whatever its generation's number; None for neither.

    Raises:
        AssertionError: an index that is not whole.
    """
    if not path.exists():
        return None
    if (path / "manifest.json").exists():
        found = verify(path)
        assert not found.problems, found.problems
        manifest = json.loads((path / "manifest.json").read_text())
        generation = manifest.pop("generation")
        del manifest["sha256"]
        text = json.dumps(manifest, sort_keys=True).replace(f"{generation}/", "")
        return hashlib.sha256(text.encode()).hexdigest()
    contents = [(str(p.relative_to(path)), p.read_bytes()) for p in sorted(path.rglob("*.*"))]
    return hashlib.sha256(repr(contents).encode()).hexdigest()


def names_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def check_and_go_on(whole: Unbroken, folder: Path) -> str:
    """After an interruption: the old or the new is there, and from the old one comes the new.

    Returns:
        Which it was.

    Raises:
        AssertionError: neither, or what comes of another run differs from an unbroken one's.
    """
    result = folder / whole.case.result
    found = state(result)
    assert found in (whole.old, whole.new)
    if found == whole.new:
        return "new"
    whole.case.act(folder)
    assert state(result) == whole.new
    assert names_in(folder) == whole.files
    return "old"


def fork(work: Callable[[], object]) -> int:
    """Do something in a process of its own; its id."""
    pid = os.fork()
    if not pid:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return pid


def kill_at(whole: Unbroken, folder: Path, number: int) -> str:
    """Kill a change at one of its write points; see ``check_and_go_on``."""

    def work() -> None:
        with points(number, die):
            whole.case.act(folder)

    shutil.copytree(whole.before, folder)
    _, status = os.waitpid(fork(work), 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
    return check_and_go_on(whole, folder)


def kill_after(whole: Unbroken, folder: Path, seconds: float) -> str:
    """Kill a change after some time; see ``check_and_go_on``."""
    shutil.copytree(whole.before, folder)
    pid = fork(lambda: whole.case.act(folder))
    time.sleep(seconds)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return check_and_go_on(whole, folder)


def moments(whole: Unbroken, count: int, seed: int) -> list[float]:
    """Random moments of a change, in seconds."""
    drawn = random.Random(seed)
    return [drawn.uniform(0, whole.seconds) for _ in range(count)]
