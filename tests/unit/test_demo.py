"""The demonstration: an index at once, another one when it is ready."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import lexicept
from lexicept.pipelines import demo as demos

PETS = ["Cats sleep all day.", "Dogs bark at night."]


@pytest.fixture
def served(monkeypatch):
    """What was served, and with which vocabularies; documents are few."""
    seen: list[Any] = []

    def serve(index, port):
        seen.append((port, list(lexicept.open(index).vocabularies)))

    def build(_, out, vocabulary):
        return lexicept.build(PETS, out, vocabulary=vocabulary)

    monkeypatch.setattr(demos, "serve", serve)
    monkeypatch.setattr(demos, "build", build)
    return seen


def test_words_are_served_while_concepts_are_indexed(served, tmp_path, monkeypatch):
    started: list[list[str]] = []
    code = "import pathlib, sys; pathlib.Path(sys.argv[1]).mkdir()"
    popen = subprocess.Popen

    def start(command, **options):
        started.append(command)
        return popen([sys.executable, "-c", code, command[-1]], **options)

    monkeypatch.setattr(subprocess, "Popen", start)
    lines: list[str] = []
    home = tmp_path / "demo"
    demos.demo(folder=home, port=0, say=lines.append)
    assert served == [(0, ["words"])]
    assert started[0][3:] == ["build", "python-docs", "--out", str(home / "both.index")]
    for _ in range(500):
        if len(lines) == 4:
            break
        demos.time.sleep(0.02)
    assert lines[-1] == "The concepts are indexed: the next search finds them."
    assert (home / "index").readlink() == Path("both.index")


def test_what_is_indexed_is_served_at_once(served, tmp_path, run, monkeypatch):
    lexicept.build(PETS, tmp_path / "both.index", vocabulary="words")
    opened: list[str] = []
    monkeypatch.setattr(demos, "open_page", opened.append)
    result = run("demo", "--folder", str(tmp_path), "--port", "8123")
    assert result.code == 0, result.err
    assert served == [(8123, ["words"])]
    assert opened == ["http://127.0.0.1:8123/?q=how+do+I+join+two+file+paths"]
    run("demo", "--folder", str(tmp_path), "--no-browser")
    assert len(opened) == 1


def test_words_alone_without_the_concepts_packages(served, tmp_path, monkeypatch):
    monkeypatch.setattr(demos, "find_spec", lambda _: None)
    lines: list[str] = []
    demos.demo(folder=tmp_path, port=0, say=lines.append)
    assert lines[1] == "Words only: concepts need pip install 'lexicept[concepts,offline]'"
    assert served == [(0, ["words"])]


def test_a_build_that_fails_leaves_the_words(tmp_path, monkeypatch):
    popen = subprocess.Popen
    broken = [sys.executable, "-c", "raise SystemExit(3)"]
    monkeypatch.setattr(subprocess, "Popen", lambda _, **options: popen(broken, **options))
    (tmp_path / "words.index").mkdir()
    demos.switch(tmp_path / "index", tmp_path / "words.index")
    lines: list[str] = []
    demos.start_concepts(tmp_path / "both.index", tmp_path / "index", lines.append)
    for _ in range(500):
        if len(lines) == 2:
            break
        demos.time.sleep(0.02)
    assert lines[-1] == f"The concepts could not be indexed: see {tmp_path / 'build.log'}"
    assert (tmp_path / "index").readlink() == Path("words.index")


def test_the_cache_is_the_users(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    version = ".".join(map(str, sys.version_info[:2]))
    assert demos.default_folder() == tmp_path / "lexicept" / f"demo-python-{version}"
