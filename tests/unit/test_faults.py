"""Kills, full disks, several processes: the old or the new is there, and the next run ends well."""

import os
import resource
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import lexicept.vectorizers.interface
from faults.cases import (
    Case,
    Unbroken,
    build,
    cases,
    check_and_go_on,
    kill_after,
    kill_at,
    moments,
    run_unbroken,
)
from faults.points import NEED_ROOM, no_room, points
from faults.readers import race, read_during_updates, version
from lexicept.errors import InputError
from lexicept.index import term_frequencies, updates
from lexicept.index.builder import IndexBuilder
from lexicept.index.reader import IndexReader
from lexicept.storage import workspace
from lexicept.storage.arrays import save_array
from lexicept.storage.generations import generations
from support.vowels import PLACE

CASES = cases(12)
"""Of few documents: what counts is how often something is written."""

MOST = 16
"""Points of a change that are tried here; ``python -m tests.faults`` tries all."""


@pytest.fixture(scope="module", autouse=True)
def _vowels() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(lexicept.vectorizers.interface.VECTORIZERS, "concepts", PLACE)
        yield


@pytest.fixture(scope="module", params=list(CASES))
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Unbroken:
    return run_unbroken(CASES[request.param], tmp_path_factory.mktemp(request.param))


def chosen(names: list[str]) -> list[int]:
    """Some points of all kinds, the last renames among them: there the new becomes visible."""
    numbers = [number for number, name in enumerate(names) if name != "fsync"]
    moved = [number for number in numbers if names[number] in ("rename", "replace")][-3:]
    after = [number + 1 for number in moved if number + 1 < len(names)]
    return sorted({*numbers[:: len(numbers) // MOST + 1], *moved, *after, len(names) - 1})


def test_killed_at_write_points(whole: Unbroken, tmp_path: Path) -> None:
    seen = []
    for number in chosen(whole.points):
        seen.append(kill_at(whole, tmp_path / "work", number))
        shutil.rmtree(tmp_path / "work")
    assert seen == sorted(seen, key=["old", "new"].index)  # at one moment it becomes the new one
    assert set(seen) == {"old", "new"}


def test_killed_at_random_moments(whole: Unbroken, tmp_path: Path) -> None:
    for number, seconds in enumerate(moments(whole, 3, seed=1)):
        kill_after(whole, tmp_path / str(number), seconds)


def test_a_full_disk(whole: Unbroken, tmp_path: Path) -> None:
    """One error of the system's, and afterwards all is as after a kill."""
    with points(names=NEED_ROOM) as counter:
        shutil.copytree(whole.before, tmp_path / "all")
        counter.names.clear()
        whole.case.act(tmp_path / "all")
    for number in chosen(counter.names):
        folder = tmp_path / "work"
        shutil.copytree(whole.before, folder)
        with points(number, no_room, NEED_ROOM):
            if counter.names[number] in ("link", "mkdir"):  # a copy will do; it may be there
                with suppress(OSError):
                    whole.case.act(folder)
            else:
                with pytest.raises(OSError, match="No space left"):
                    whole.case.act(folder)
        check_and_go_on(whole, folder)
        shutil.rmtree(folder)


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_files_that_can_not_grow(tmp_path: Path) -> None:
    """A real limit, met in the middle of a file."""
    assert signal.getsignal(signal.SIGXFSZ) == signal.SIG_IGN
    with largest_file(1000), pytest.raises(OSError, match=r"too large: '.*a\.npy'"):
        save_array(tmp_path / "a.npy", range(1000))
    case = CASES["update"]
    whole = run_unbroken(case, tmp_path / "update")
    for size in (0, 100, 200, 300):
        folder = tmp_path / str(size)
        shutil.copytree(whole.before, folder)
        with largest_file(size), pytest.raises(OSError, match="too large"):
            case.act(folder)
        assert check_and_go_on(whole, folder) == "old"


@pytest.mark.usefixtures("one_thread")
def test_a_concept_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from lexicept.models.encoder import Encoder
    from lexicept.models.heads.sae import SAEHead
    from lexicept.models.sae.model import SAE
    from lexicept.vectorizers.concepts import ConceptVectorizer
    from support.tiny import tiny_backbone

    torch.manual_seed(0)
    encoder = Encoder.of(tiny_backbone(tmp_path / "bert"), SAEHead(SAE(32, 40, 3)))
    monkeypatch.setattr(term_frequencies, "SHARD", 3)
    made = ConceptVectorizer(encoder)
    case = Case(lambda _: None, lambda folder: build(folder / "out", 7, made), "out")
    whole = run_unbroken(case, tmp_path / "whole")
    shards = [n for n, name in enumerate(whole.points) if name == "rename"]
    for number in [*shards[1:], *chosen(whole.points)[::5]]:
        kill_at(whole, tmp_path / "work", number)
        shutil.rmtree(tmp_path / "work")


def test_readers_beside_updates(tmp_path: Path) -> None:
    build(tmp_path / "index", 1)
    updates.update(tmp_path / "index", version(0))
    with points():  # which flush nothing
        counts = read_during_updates(tmp_path / "index", 30, 2)
    assert min(counts) > 0
    assert len(generations(tmp_path / "index")) <= 3


def test_a_reader_keeps_its_generation_and_the_next_change_removes_it(tmp_path: Path) -> None:
    path = tmp_path / "index"
    build(path, 3)
    reader = IndexReader.open(path)
    updates.delete(path, ["d0"])
    assert (path / "generation-000001").is_dir()
    assert len(reader.tf()[0].indptr) == 4
    assert len(reader.search("cat")) == 3  # loads its words now
    reader.release()
    updates.delete(path, ["d1"])
    assert sorted(p.name for p in path.iterdir()) == [".lock", "generation-000003", "manifest.json"]


def test_of_several_builders_one_wins(tmp_path: Path) -> None:
    for number in range(3):
        path = tmp_path / str(number)
        with points():
            assert race(lambda path=path: build(path, 5), 3) == 1
        assert len(IndexReader.open(path, checksums=True)) == 5
        assert not path.with_name(f"{number}.partial").exists()


def test_who_comes_when_another_has_just_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look for an index and the lock, another process finishes one."""
    lock, path = workspace.lock, tmp_path / "index"

    def finish_first(folder: Path) -> int:
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
