"""Power cuts, kills, full disks, several processes: the old or the new is there, and stays so."""

import os
import resource
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import lexicept.encoding.vectorizer
from faults import calls, disk
from faults.cases import build, build_words_first, execute, index_cases
from faults.disk import Disk
from faults.readers import race, read_during_updates, version
from faults.trials import check, cut_power, fail_calls, flushed, run_undisturbed
from lexicept.errors import InputError
from lexicept.index import updates
from lexicept.index.builder import IndexBuilder
from lexicept.index.reader import IndexReader
from lexicept.storage import workspace
from lexicept.storage.arrays import save_array
from lexicept.storage.manifest import generations
from support.vowels import PLACE

CASES = index_cases(12)
"""Of few documents: what counts is how often something is written."""

SHORT = ("build, words first", "build --overwrite", "add and merge", "export")
"""The ways to publish something; ``python -m tests.faults`` tries all commands, at every point."""

needs_filters = pytest.mark.skipif(
    not calls.available(), reason="a process's calls can't be stopped on this system"
)


@pytest.fixture(scope="module", autouse=True)
def _vowels():
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(lexicept.encoding.vectorizer.KINDS, "concepts", PLACE)
        yield


@pytest.fixture(scope="module", params=SHORT)
def whole(request, tmp_path_factory):
    return run_undisturbed(CASES[request.param], tmp_path_factory.mktemp("case"))


@pytest.fixture(scope="module")
def adding(tmp_path_factory):
    return run_undisturbed(CASES["add"], tmp_path_factory.mktemp("case"))


def some(indices: list[int], count: int) -> list[int]:
    """Return some of the indices, with the first and the last."""
    return sorted({*indices[:: len(indices) // count + 1], *indices[-1:]})


@needs_filters
def test_power_cuts(whole, tmp_path):
    changes = [call.name for call in whole.calls if call.name in disk.CHANGES]
    moved = [i for i, name in enumerate(changes) if name == "rename"]
    moved = moved[::2] if whole.case.act is build_words_first else moved[-2:]
    tally = cut_power(whole, tmp_path, lambda indices: some(indices, 2) + moved)
    assert not tally.failures
    assert tally.counts["new"] > 0
    assert (tally.counts["early"] > 0) == (whole.case.act is build_words_first)


@needs_filters
def test_io_errors(adding, tmp_path):
    tally = fail_calls(adding, tmp_path, lambda indices: some(indices, 1))
    assert not tally.failures
    assert tally.counts["old"] > 0


@needs_filters
def test_files_that_can_not_grow(adding, tmp_path):
    """A real limit, met in the middle of a file."""
    assert signal.getsignal(signal.SIGXFSZ) == signal.SIG_IGN
    with largest_file(1000), pytest.raises(OSError, match=r"too large: '.*a\.npy'"):
        save_array(tmp_path / "a.npy", range(1000))
    for size in (0, 300):
        folder = tmp_path / str(size)
        shutil.copytree(adding.before, folder)
        with largest_file(size):
            assert execute(adding.case, folder).code == 1
        assert check(adding, folder) == "old"


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def left(work: Callable[[Path], object], root: Path) -> dict[str, disk.Tree]:
    """Return the remains of a power cut after some work in an empty folder, in each way."""
    root.mkdir()
    with Disk(root) as surface:

        def answer(call: calls.Call) -> int | None:
            surface.see(call)
            return flushed(call)

        assert calls.run(lambda: work(root) and 0, answer) == 0
        return surface.survivors()


def flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


@needs_filters
def test_what_a_power_cut_leaves(tmp_path):
    def write(root):
        with (root / "file").open("wb") as file:
            file.write(b"1234")
            file.flush()
            os.fsync(file.fileno())
            file.write(b"5678")

    assert left(write, tmp_path / "a") == {
        "flushed": {},  # the folder was not flushed
        "empty": {"file": b"1234"},
        "torn": {"file": b"123456"},
        "zeros": {"file": b"1234\0\0\0\0"},
        "written": {"file": b"12345678"},
    }

    def write_and_flush(root):
        write(root)
        flush(root)

    assert left(write_and_flush, tmp_path / "b")["flushed"] == {"file": b"1234"}


@needs_filters
def test_every_kind_of_call_is_seen(tmp_path):
    states = []

    def work():
        os.chdir(tmp_path)
        os.mkdir("a")
        with open("a/f", "wb") as file:
            file.write(b"12")
            file.flush()
            os.fsync(file.fileno())
        os.link("a/f", "a/g")
        os.rename("a/g", "h")
        np.fromfile("h", np.uint8)  # in C
        np.memmap("h", np.uint8, "r")
        os.truncate("h", 1)
        shutil.rmtree("a")
        return 7

    def answer(call):
        if call.paths[0].startswith(f"{tmp_path}/"):
            states.append((call.name, *(os.path.relpath(path, tmp_path) for path in call.paths)))

    assert calls.run(work, answer) == 7
    expected = [("mkdir", "a"), ("create", "a/f"), ("write", "a/f"), ("fsync", "a/f")]
    expected += [("link", "a/f", "a/g"), ("rename", "a/g", "h"), ("open", "h"), ("read", "h")]
    expected += [("mmap", "h"), ("truncate", "h"), ("unlink", "a/f"), ("rmdir", "a")]
    assert list(dict.fromkeys(call for call in states if call != ("open", "a"))) == expected


def test_readers_beside_updates(tmp_path):
    build(tmp_path / "index", 1)
    updates.update(tmp_path / "index", version(0))
    assert min(read_during_updates(tmp_path / "index", 12, 2)) > 0
    assert len(generations(tmp_path / "index")) <= 3


def test_of_several_builders_one_wins(tmp_path):
    for i in range(3):
        path = tmp_path / str(i)
        assert race(lambda path=path: build(path, 5), 3) == 1
        assert len(IndexReader.open(path, checksums=True)) == 5
        assert not path.with_name(f"{i}.partial").exists()


def test_who_comes_when_another_has_just_finished(tmp_path, monkeypatch):
    """Between the look for an index and the lock, another process finishes one."""
    lock, path = workspace.lock, tmp_path / "index"

    def finish_first(folder):
        monkeypatch.setattr(workspace, "lock", lock)
        shutil.rmtree(folder)
        build(path, 2)
        with pytest.raises(InputError, match="another process is writing"):
            lock(folder)  # whose folder is gone
        folder.mkdir()
        return lock(folder)

    monkeypatch.setattr(workspace, "lock", finish_first)
    with pytest.raises(InputError, match="exists already"):
        IndexBuilder(path)
    assert os.listdir(tmp_path) == ["index"]
