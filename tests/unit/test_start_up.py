"""What needs no model imports none of the packages that models need."""

import subprocess
import sys

from support.processes import HEAVY, MAIN, loaded_after

EVERY_HELP = """
import sys
from contextlib import suppress
from lexicept.cli import COMMANDS, main

names = [name for names in COMMANDS.values() for name in names]
assert len(names) > 20
for name in ["", *names]:
    sys.argv = ["lexicept", *name.split(), "--help"]
    with suppress(SystemExit):
        main()
"""


def test_help_of_every_command():
    loaded = loaded_after(EVERY_HELP)
    assert "cyclopts" in loaded
    assert not loaded & (HEAVY | {"numba", "matplotlib"})


def test_imports_load_no_model():
    loaded = loaded_after("import lexicept")
    assert "lexicept" in loaded
    assert not loaded & (HEAVY | {"numpy", "scipy", "numba", "cyclopts", "rich"})
    loaded = loaded_after("from lexicept import *")
    assert "numpy" in loaded
    assert not loaded & HEAVY


def test_other_systems_than_posix_are_refused_at_import():
    script = "import os\nos.name = 'nt'\nimport lexicept"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    message = "ImportError: lexicept requires a POSIX system: Linux or macOS, or WSL on Windows"
    assert done.stderr.splitlines()[-1] == message


def test_words_need_no_model(tmp_path):
    (tmp_path / "qrels").mkdir()
    (tmp_path / "corpus.jsonl").write_text('{"_id": "d", "title": "Cats", "text": "a cat"}\n')
    (tmp_path / "queries.jsonl").write_text('{"_id": "q", "text": "cats"}\n')
    (tmp_path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\td\t1\n")
    index, lists, out = tmp_path / "index", tmp_path / "lists", ("--out", tmp_path / "scored")
    for arguments in (
        ["build", tmp_path, "--vocabulary", "words", "--out", index],
        ["search", index, "cat", "--explain"],
        ["evaluate", index, tmp_path],
        ["add", index, tmp_path],
        ["index", "info", index],
        ["data", "pseudo-queries", tmp_path, "--kind", "title", "--out", tmp_path / "more"],
        ["data", "mine", index, tmp_path, "--split", "test", "--out", lists],
        ["data", "score", lists, tmp_path, tmp_path, "--teacher", "bm25", "--split", "test", *out],
    ):
        loaded = loaded_after(MAIN, *arguments)
        assert not loaded & (HEAVY | {"jinja2", "matplotlib"})
        if arguments[0] == "search":
            assert not loaded & {"numba", "bm25s", "yaml"}


SERVED = """
import sys
from fastapi.testclient import TestClient
from lexicept.kernels.compiled import Kernel
from lexicept.server.app import create_app

with TestClient(create_app(sys.argv[1]), base_url="http://127.0.0.1") as client:
    loaded = set(sys.modules)
    Kernel._compile = None  # a kernel that is not compiled yet fails
    asked = {"query": "bade kilo", "vocabulary": "concepts"}
    for address, more in (
        ("search", {"count": True, "facet": "part", "filter": "number < 20"}),
        ("query", {}),
        ("explain", {"document_id": "d3"}),
    ):
        for parameters in ({**asked, **more}, {"query": "bade", **more}):
            assert client.get(address, params=parameters).status_code == 200
    late = {name.partition(".")[0] for name in set(sys.modules) - loaded}
assert not late & {"numba", "torch", "transformers", "sentence_transformers", "scipy"}, late
"""


def test_no_request_waits_for_models_or_kernels(tmp_path):
    from support.served import save_index

    loaded_after(SERVED, save_index(tmp_path))
