"""Workspaces: what is resumed, refused, discarded, published, and left behind."""

import errno
import hashlib
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from lexicept.errors import InputError
from lexicept.storage.files import (
    fingerprint,
    first_difference,
    read_json,
    replace_file,
    replacing_text,
    write_json,
)
from lexicept.storage.locks import lock
from lexicept.storage.workspace import Workspace, new_folder

SETTINGS: dict[str, Any] = {"k": 8, "model": {"layers": [1, 2], "name": "a"}}


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def begin(out: Path, settings: dict[str, Any] = SETTINGS, **options: Any) -> int:
    """Do one more unit of work, and return how many are done."""
    with Workspace(out, "test", settings, **options) as work:
        lines = work.growing("lines")
        lines.append_lines([f"line {lines.done}"], lines.done + 1)
        return lines.done


def test_fingerprints_and_differences():
    assert fingerprint(["ä", ""]) == hashlib.sha256("2:ä0:".encode()).hexdigest()
    assert first_difference({"a": [1, {"b": 2}]}, {"a": [1, {"b": 2}]}) is None
    assert first_difference([1], [1, 2], "x") == "x was [1] and is now [1, 2]"


def test_a_failed_replacement_keeps_the_old_content(tmp_path):
    path = tmp_path / "new" / "file"
    with replacing_text(path) as file:
        file.write("ä\n")
    assert path.read_bytes() == "ä\n".encode()
    with pytest.raises(ZeroDivisionError), replacing_text(path) as file:
        file.write("new" * 10_000 + str(1 // 0))
    assert path.read_bytes() == "ä\n".encode()
    assert os.listdir(path.parent) == ["file"]


@pytest.mark.parametrize(("mask", "file", "folder"), [(0o077, 0o600, 0o700), (0o002, 0o664, 0o775)])
def test_the_umask_is_respected(tmp_path, mask, file, folder):
    before = os.umask(mask)
    try:
        write_json(tmp_path / "new" / "file", {})
        begin(tmp_path / "out")
    finally:
        os.umask(before)
    assert (tmp_path / "new" / "file").stat().st_mode & 0o777 == file
    assert (tmp_path / "new").stat().st_mode & 0o777 == folder
    assert (tmp_path / "out.partial").stat().st_mode & 0o777 == folder
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.rglob("*.*/*")}
    assert modes == dict.fromkeys([".lock", "lines", "lines.state.json", "settings.json"], file)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "No space left"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), "Disk quota exceeded"),
        (OSError(errno.EIO, "Input/output error"), "Input/output error"),
        (Exception("No space left on device (os error 28)"), "No space left"),
        (RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 2 vs 1"), "outp"),
        (RuntimeError("basic_ios::clear: iostream error"), "Input/output error"),
        (RuntimeError("unable to mmap 9 bytes: Cannot allocate memory (12)"), "Cannot allocate"),
        (RuntimeError("[...] failed. strerror: Input/output error"), "Input/output error"),
    ],
)
def test_errors_of_the_disk_name_the_file(tmp_path, error, told):
    path = tmp_path / "file"
    with pytest.raises(OSError, match=told) as raised, replacing_text(path):
        raise error
    assert raised.value.filename == str(path)
    assert not any(tmp_path.iterdir())
    with pytest.raises(OSError, match=told) as raised, new_folder(path, "test"):
        raise error
    assert raised.value.filename == str(path) + ".partial"
    assert not any(tmp_path.iterdir())


def test_a_full_disk_tells_the_space_needed(tmp_path, monkeypatch):
    def no_room(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.fsync", no_room)
    monkeypatch.setattr("shutil.disk_usage", lambda _: shutil._ntuple_diskusage(9, 9, 20_000))
    with pytest.raises(OSError, match=r"left on device \(1.5 MB to write, 0.0 MB free\): '.*file'"):
        replace_file(tmp_path / "file", bytes(1_500_000))
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    "error", [OSError(errno.ECONNRESET, "by peer"), OSError(errno.EIO, "", "other"), KeyError("x")]
)
def test_other_errors_stay_as_they_are(tmp_path, error):
    with pytest.raises(type(error)) as raised, replacing_text(tmp_path / "file"):
        raise error
    assert raised.value is error


# The same settings, and others


def test_work_is_resumed_and_published(tmp_path):
    out = tmp_path / "new" / "out"
    with Workspace(out, "test", SETTINGS) as work:
        lines = work.growing("lines")
        assert lines.done == 0
        lines.append_lines(["ä", "b"], 5)
        lines.append(b"", 7)
    assert names(out.parent) == ["out.partial"]
    with Workspace(out, "test", {"model": SETTINGS["model"], "k": 8}) as work:
        lines = work.growing("lines")
        assert lines.done == 7
        assert lines.lines() == ["ä", "b"]
        lines.append_lines(["c"], 8)
        work.kept("other").joinpath("file").write_text("not published")
        work.publish(lines.path)
    assert out.read_text(encoding="utf-8") == "ä\nb\nc\n"
    assert names(out.parent) == ["out"]


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"k": 9}, "k was 8 and is now 9"),
        ({"k": None}, "k was 8 and is now null"),
        ({"model": {"layers": [1, 3], "name": "b"}}, r"model.layers\[1\] was 2 and is now 3"),
        ({"model": {"layers": [1, 2]}}, 'model.name was "a" and is now absent'),
        ({"model": {**SETTINGS["model"], "new": 1}}, "model.new was absent and is now 1"),
        ({"model": "x" * 200}, r"model was .* and is now \"x{78}…"),
    ],
)
def test_other_settings_are_refused_by_name(tmp_path, changed, told):
    begin(tmp_path / "out")
    with pytest.raises(InputError, match=rf"out.partial: made with other settings: {told}; --rest"):
        begin(tmp_path / "out", SETTINGS | changed)
    assert begin(tmp_path / "out") == 2
    assert begin(tmp_path / "out", SETTINGS | changed, restart=True) == 1
    assert begin(tmp_path / "out", SETTINGS | changed) == 2


def test_work_of_another_task_or_version_is_refused(tmp_path, monkeypatch):
    begin(tmp_path / "out")
    for options in ({}, {"restart": True}):
        with pytest.raises(
            InputError, match=r"unfinished work of another task \(test, not other\)"
        ):
            Workspace(tmp_path / "out", "other", SETTINGS, **options)
    assert begin(tmp_path / "out") == 2
    begin(tmp_path / "out2")
    monkeypatch.setattr("lexicept.storage.workspace.version", lambda _: "999")
    with pytest.raises(InputError, match=r'lexicept was ".*" and is now "999"'):
        begin(tmp_path / "out2")


def test_settings_may_become_known_later(tmp_path):
    for _ in range(2):
        with Workspace(tmp_path / "out", "test") as work:
            work.staged().joinpath("documents").write_text("stored")
            work.check({"documents": "0" * 64})
            work.growing("lines").append(b"x", 1)
            work.check({"model": 1})
    with Workspace(tmp_path / "out", "test") as work:
        work.check({"documents": "0" * 64})
        with pytest.raises(InputError, match="model was 1 and is now 2"):
            work.check({"model": 2})
        told = r"documents was 000000000000… \(a checksum\) and is now 111111111111… \(a"
        with pytest.raises(InputError, match=told):
            work.check({"documents": "1" * 64})


# What is left behind


@pytest.mark.parametrize("checked", [True, False])
def test_nothing_is_left_where_nothing_was_kept(tmp_path, checked):
    out = tmp_path / "a" / "b" / "out"
    work = Workspace(out, "test")
    work.staged().joinpath("file").write_text("made anew by every run")
    if checked:
        work.check(SETTINGS)
        work.kept("empty")
    with pytest.raises(InputError, match="mistyped"), work:
        raise InputError("mistyped")
    assert not any(tmp_path.iterdir())


def test_settings_without_kept_work_bind_nobody(tmp_path):
    with Workspace(tmp_path / "out", "test", SETTINGS) as work:
        killed = {path.name: path.read_bytes() for path in work.folder.iterdir()}
    (tmp_path / "out.partial").mkdir()
    for name, data in killed.items():
        (tmp_path / "out.partial" / name).write_bytes(data)
    assert begin(tmp_path / "out", {"k": 1}) == 1


def test_an_empty_result_is_not_published(tmp_path):
    with Workspace(tmp_path / "out", "test", SETTINGS) as work:
        lines = work.growing("lines")
        lines.append(b"", 3)
        with pytest.raises(InputError, match="out: there is nothing to write"):
            work.publish(lines.path)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("restart", [False, True])
def test_foreign_folders_are_left_as_they_are(tmp_path, restart):
    partial = tmp_path / "out.partial"
    partial.mkdir()
    with Workspace(tmp_path / "out", "test", SETTINGS):
        pass
    assert not partial.exists()  # an interrupted call may leave an empty one
    partial.mkdir()
    for name, config in (("precious", "x"), ("settings.json", "{}"), ("settings.json", "x")):
        (partial / name).write_text(config)
        with pytest.raises(InputError, match=r"out.partial: not unfinished work of lexicept"):
            Workspace(tmp_path / "out", "test", SETTINGS, restart=restart)
        assert names(partial) == [name]
        assert (partial / name).read_text() == config
        (partial / name).unlink()
    partial.rmdir()
    partial.write_text("a file")
    with pytest.raises(InputError, match=r"out.partial: not unfinished work of lexicept"):
        Workspace(tmp_path / "out", "test", SETTINGS, restart=restart)
    assert partial.read_text() == "a file"


@pytest.mark.parametrize("restart", [False, True])
def test_links_and_folders_of_others_are_refused(tmp_path, monkeypatch, restart):
    begin(tmp_path / "out")
    (tmp_path / "out.partial").rename(tmp_path / "elsewhere")
    (tmp_path / "out.partial").symlink_to("elsewhere")
    with pytest.raises(InputError, match=r"out\.partial: a link, not a folder of unfinished work"):
        begin(tmp_path / "out", restart=restart)
    (tmp_path / "out.partial").unlink()
    (tmp_path / "elsewhere").rename(tmp_path / "out.partial")
    others = os.geteuid() + 1
    with monkeypatch.context() as patch:
        patch.setattr("os.geteuid", lambda: others)
        with pytest.raises(InputError, match=r"out\.partial: another user's \(number \d+\)"):
            begin(tmp_path / "out", restart=restart)
    assert begin(tmp_path / "out") == 2


def test_one_process_at_a_time(tmp_path):
    with Workspace(tmp_path / "out", "test", SETTINGS) as work:
        with pytest.raises(InputError, match=r"out.partial: another process is writing here"):
            Workspace(tmp_path / "out", "test", SETTINGS)
        work.growing("lines").append(b"x", 1)
    held = lock(tmp_path / "out.partial")
    with pytest.raises(InputError, match="another process is writing here"):
        begin(tmp_path / "out", restart=True)
    os.close(held)
    assert begin(tmp_path / "out") == 2


# Publishing


def test_what_exists_is_refused_before_and_after_the_work(tmp_path):
    out = tmp_path / "out"
    with Workspace(out, "test", SETTINGS) as work:
        lines = work.growing("lines")
        lines.append(b"x", 1)
        out.write_text("precious")
        with pytest.raises(InputError, match="out exists already"):
            work.publish(lines.path)
    with pytest.raises(InputError, match="out exists already"):
        Workspace(out, "test", SETTINGS)
    assert out.read_text() == "precious"
    out.unlink()
    assert begin(out) == 2


def test_overwriting_replaces_in_the_end(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "old").touch()
    with Workspace(out, "test", SETTINGS, overwrite=True) as work:
        new = work.staged()
        (new / "new").touch()
        assert names(out) == ["old"]
        work.publish(new)
    assert names(out) == ["new"]
    assert names(tmp_path) == ["out"]


def test_a_kill_between_the_old_and_the_new_brings_back_the_old(tmp_path, monkeypatch):
    out = tmp_path / "out"
    out.mkdir()
    (out / "old").touch()
    work = Workspace(out, "test", SETTINGS, overwrite=True)
    (work.staged() / "new").touch()
    moves = []

    def killed(source, target):
        if moves:
            raise KeyboardInterrupt
        moves.append(source.rename(target))

    with monkeypatch.context() as patch:
        patch.setattr("lexicept.storage.workspace.move", killed)
        with pytest.raises(KeyboardInterrupt):
            work.publish(work.folder / "staged")
    work.close()
    with Workspace(out, "test", SETTINGS, overwrite=True):
        assert names(out) == ["old"]
    assert names(tmp_path) == ["out"]


def test_the_old_result_stays_where_the_new_one_can_not_be_moved(tmp_path, monkeypatch):
    out = tmp_path / "out"
    out.mkdir()
    (out / "old").touch()

    def full(source, target):
        if source.name == "staged":
            raise OSError("no space")
        source.rename(target)

    monkeypatch.setattr("lexicept.storage.workspace.move", full)
    with (
        pytest.raises(OSError, match="no space"),
        Workspace(out, "test", SETTINGS, overwrite=True) as work,
    ):
        work.publish(work.staged())
    assert names(out) == ["old"]
    assert names(tmp_path) == ["out"]


def test_a_kill_after_publishing_does_not_bring_back_the_old(tmp_path, monkeypatch):
    out = tmp_path / "out"
    out.write_text("old")
    work = Workspace(out, "test", SETTINGS, overwrite=True)
    work.growing("lines").append(b"new", 1)
    with monkeypatch.context() as patch:
        patch.setattr(work, "discard", lambda: None)
        work.publish(work.folder / "lines")
    work.close()
    assert out.read_text() == "new"
    out.unlink()
    with Workspace(out, "test", SETTINGS):
        assert not out.exists()


def test_links_to_nothing_are_refused(tmp_path):
    for name, told in (("out", "out exists already"), ("out.partial", "partial: a link")):
        (tmp_path / name).symlink_to(tmp_path / "nowhere")
        with pytest.raises(InputError, match=told):
            Workspace(tmp_path / "out", "test", SETTINGS)
        assert names(tmp_path) == [name]
        (tmp_path / name).unlink()


def test_a_new_folder_is_whole_or_absent(tmp_path):
    with pytest.raises(IsADirectoryError), new_folder(tmp_path / "out", "test") as new:
        new.write_text("a folder is no file")
    assert not any(tmp_path.iterdir())
    with new_folder(tmp_path / "out", "test") as new:
        (new / "b").touch()
    assert names(tmp_path) == ["out"]
    assert names(tmp_path / "out") == ["b"]


# Folders of results that grow


def test_work_in_place(tmp_path):
    out = tmp_path / "out"
    assert [begin(out, in_place=True) for _ in range(3)] == [1, 2, 3]
    assert (out / "lines").read_text() == "line 0\nline 1\nline 2\n"
    with pytest.raises(InputError, match=r"out: made with other settings: k was 8 and is now 9"):
        begin(out, SETTINGS | {"k": 9}, in_place=True)
    assert begin(out, SETTINGS | {"k": 9}, in_place=True, restart=True) == 1
    with Workspace(out, "test", SETTINGS | {"k": 9}, in_place=True) as work:
        work.finish()
    assert names(out) == ["lines", "lines.state.json"]
    with pytest.raises(InputError, match=r"out: not unfinished work of lexicept; name another f"):
        begin(out, in_place=True, restart=True)


# Units of work


@pytest.mark.parametrize(
    ("name", "raw", "done"),
    [
        *(("lines", raw, 1) for raw in (b"", b"line", b"lime 0\nline 1\n")),
        ("lines", b"line 0\nline 1\nhalf a li", 3),
        *(("lines.state.json", raw, 1) for raw in (b"", b"[]", b'{"bytes": 14}')),
        *(("lines.state.json", b'{"bytes": %d, "done": 2}' % n, 1) for n in (-1, 14)),
    ],
)
def test_a_damaged_growing_file_starts_again(tmp_path, name, raw, done):
    begin(tmp_path / "out")
    begin(tmp_path / "out")
    path = tmp_path / "out.partial" / "lines"
    assert read_json(path.with_name("lines.state.json"))["done"] == 2
    path.with_name(name).write_bytes(raw)
    assert begin(tmp_path / "out") == done
    assert path.read_text() == "".join(f"line {n}\n" for n in range(done))


def test_units_are_whole_or_absent(tmp_path):
    with Workspace(tmp_path / "out", "test", SETTINGS) as work:
        units = work.units("shards")
        for i in range(3):
            files = [units.folder / f"{i}.{letter}" for letter in "ab"]
            for file in files:
                file.write_text(file.name)
            units.finish(str(i), files, next=i + 1)
        assert [units.facts(str(n)) for n in (0, 2, 3)] == [{"next": 1}, {"next": 3}, None]
        (units.folder / "0.a").unlink()
        (units.folder / "1.b").write_text("1.c")
        (units.folder / ".2.a.k3_x0dfe").touch()  # a temporary file of a kill
        assert [units.facts(str(n)) for n in range(3)] == [None, None, {"next": 3}]
    with Workspace(tmp_path / "out", "test", SETTINGS) as work:
        units = work.units("shards")
        assert [units.facts(str(n)) for n in range(3)] == [None, None, {"next": 3}]
        assert names(units.folder) == ["0.b", "1.a", "1.b", "2.a", "2.b"]


@pytest.mark.parametrize(
    ("kept", "note"), [(True, " the work kept in out.partial"), (False, ", with nothing kept")]
)
def test_an_interrupt_says_that_the_same_command_resumes(tmp_path, monkeypatch, kept, note):
    def work():
        with Workspace("out", "mine", {}) as workspace:
            if kept:
                (workspace.kept("lists") / "1").write_text("a")
            raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    with pytest.raises(KeyboardInterrupt) as interrupt:
        work()
    assert interrupt.value.__notes__ == [f"the same command resumes{note}"]
