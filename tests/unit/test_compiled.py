"""Compiled kernels: code is kept on disk, and no damage there changes or ends a call."""

import errno
import importlib
import os
import sys
import warnings

import numba
import numpy as np
import pytest
from numba.core.caching import CompileResultCacheImpl, UserProvidedCacheLocator

from lexicept import cli
from lexicept.errors import LexiceptWarning
from lexicept.kernels.compiled import LOADING, by_work, compiled
from lexicept.kernels.machine_code import Cache


def total(indices):
    added = 0.0
    for i in indices:
        added += i
    return added


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(CompileResultCacheImpl, "_locator_classes", [UserProvidedCacheLocator])
    monkeypatch.setattr(Cache, "warned", False)
    return tmp_path / "cache"


def called():
    """Call the function as a new process does; return how often its code came from the disk."""
    function = compiled()(total)
    assert function(np.array([1.0, 2.0, 4.0])) == 7
    return sum(function.dispatcher.stats.cache_hits.values())


def test_code_is_kept(folder):
    assert [called(), called()] == [0, 1]
    (path,) = folder.rglob("*.*")
    assert path.name.startswith("test_compiled.total-")


@pytest.mark.parametrize("damage", ["empty", "half", "zeros", "flip"])
def test_damaged_code_is_compiled_again(folder, damage):
    called()
    (path,) = folder.rglob("*.*")
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    damaged = {"empty": b"", "half": whole[: len(whole) // 2], "zeros": bytes(len(whole))}
    path.write_bytes(damaged.get(damage, bytes(flipped)))
    with pytest.warns(LexiceptWarning, match=r"\.compiled: damaged, and compiled again"):
        assert called() == 0
    assert called() == 1


def test_code_of_another_source_is_not_used(folder, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    head = "from lexicept.kernels.compiled import compiled\n"
    inner, outer = tmp_path / "inner_kernel.py", tmp_path / "outer_kernel.py"
    call = "from inner_kernel import inner\n@compiled()\ndef outer(x):\n    return inner(x) + 1\n"
    outer.write_text(head + call)

    def found(factor):
        """Call as a new process does, with a factor in the inner kernel's file."""
        inner.write_text(f"{head}@compiled()\ndef inner(x):\n    return {factor} * x\n")
        for name in ("inner_kernel", "outer_kernel"):
            sys.modules.pop(name, None)
        monkeypatch.setattr(sys, "dont_write_bytecode", True)
        kernel = importlib.import_module("outer_kernel").outer
        return kernel(5), sum(kernel.dispatcher.stats.cache_hits.values())

    assert [found(2), found(2), found(3), found(3)] == [(11, 0), (11, 1), (16, 0), (16, 1)]
    assert len(list(folder.rglob("outer*.compiled"))) == 1


def test_a_full_disk_is_told_once(folder, monkeypatch):
    def no_room(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.fsync", no_room)
    with pytest.warns(LexiceptWarning, match=r"not kept.*\.compiled.*No space left.*NUMBA_CACHE"):
        assert called() == 0
    assert called() == 0
    assert not list(folder.rglob("*.*"))


def test_no_folder_to_write_into(folder):
    folder.write_text("not a folder")
    with pytest.warns(LexiceptWarning, match="compiled code is not kept.*no locator available"):
        assert called() == 0
    assert called() == 0


def test_references_work_until_loading_would_have_been_faster(monkeypatch):
    monkeypatch.setattr("lexicept.kernels.compiled._References.seconds", 0.0)
    kernel = compiled()(total)
    choices = [by_work(LOADING / 3, kernel, total) for _ in range(4)]
    assert [function is total for function in choices] == [True, True, False, False]


def test_a_kernel_that_was_called_ends_the_work_of_references(monkeypatch):
    monkeypatch.setattr("lexicept.kernels.compiled._References.seconds", 0.0)
    kernel = compiled()(total)
    assert by_work(0, kernel, total) is total
    kernel(np.array([1.0]))
    assert by_work(0, kernel, total) is kernel


def test_kernels_call_kernels():
    assert sum_of_squares(np.array([1.0, 2.0, 3.0])) == 14
    assert sum_of_squares.py_func(np.array([1.0, 2.0, 3.0])) == 14


@compiled()
def sum_of_squares(indices):
    added = 0.0
    for i in indices:
        added += square(i)
    return added


@compiled(inline="always")
def square(n):
    return n * n


def test_the_command_line_shows_warnings_as_lines(run, monkeypatch):
    def app(*_, **__):
        warnings.warn("ours and no other", LexiceptWarning, stacklevel=1)
        with pytest.warns(UserWarning, match="theirs"):
            warnings.warn("theirs", UserWarning, stacklevel=1)
        sys.exit(0)

    monkeypatch.setattr(cli, "make_app", lambda *_: app)
    assert run("search").err == "warning: ours and no other\n"
