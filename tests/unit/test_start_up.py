"""Commands without a model import none of the packages that models need."""

import json
import subprocess
import sys

from lexicept.cli import COMMANDS
from support.collections import write_beir
from support.processes import HEAVY, MAIN, loaded_after

EVERY_COMMAND = """
import json, sys
from lexicept.cli import main

for words in json.loads(sys.argv[1]):
    sys.argv = ["lexicept", *words]
    try:
        main()
    except SystemExit as exit_:
        assert not exit_.code, words
"""


def test_help_of_every_command():
    names = ["", *(name for names in COMMANDS.values() for name in names)]
    loaded = loaded_after(EVERY_COMMAND, json.dumps([[*n.split(), "--help"] for n in names]))
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
    texts = {"d": "A cat sleeps on the warm mat."}
    beir = write_beir(tmp_path / "beir", texts, {"q": "cats"}, {"test": "q 0 d 1\n"})
    index = tmp_path / "index"
    commands = [
        ["build", beir, "--vocabulary", "words", "--out", index],
        ["evaluate", index, beir],
        ["add", index, beir],
        ["index", "info", index],
        ["data", "pseudo-queries", beir, "--kind", "sentence", "--out", tmp_path / "more"],
        ["data", "mine", index, beir, "--split", "test", "--out", tmp_path / "lists"],
    ]
    loaded = loaded_after(EVERY_COMMAND, json.dumps(commands, default=str))
    assert not loaded & (HEAVY | {"jinja2", "matplotlib"})
    loaded = loaded_after(MAIN, "search", index, "cat", "--explain")
    assert not loaded & (HEAVY | {"jinja2", "matplotlib", "numba", "bm25s", "yaml"})


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
