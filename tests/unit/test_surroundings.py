"""A current folder of strangers' files: no process of a command imports or obeys any of them."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest

import lexicept
from lexicept.corpora.restructured import parse_restructured
from lexicept.kernels.machine_code import without

MODULES = {
    *sys.stdlib_module_names,
    *("lexicept", "numba", "numpy", "ray", "scipy", "sitecustomize", "torch", "transformers"),
    *("usercustomize", "uvicorn", "yaml"),
}
COMMAND = """
if __name__ == "__main__":
    from lexicept.cli import main

    main()
"""
CHILDREN = """
import multiprocessing, subprocess, sys

if __name__ == "__main__":
    from lexicept.cli import main

    try:
        main()
    except SystemExit:
        for method in ("spawn", "forkserver"):
            with multiprocessing.get_context(method).Pool(1) as pool:
                assert pool.map(len, ["ab"]) == [2]
        subprocess.run([sys.executable, "-c", "import json"], check=True)
        subprocess.run([sys.executable, "-m", "json.tool", "--help"], check=True)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder: a document, and modules that tell when they are imported."""
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "ants.md").write_text("Some ants sleep.")
    for name in MODULES:
        (folder / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write('{name} ')")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def index(tmp_path):
    texts = ["Some ants sleep.", "Other ants eat.", "Bees sleep in winter."]
    lexicept.build(texts, tmp_path / "index", vocabulary="words")
    return tmp_path / "index"


def started(tmp_path, *arguments, program=COMMAND):
    """A command as a shell starts it: a program in another folder than the current one."""
    script = tmp_path / "bin" / "lexicept"
    script.parent.mkdir()
    script.write_text(program)
    words = [sys.executable, str(script), *map(str, arguments)]
    with (tmp_path / "output").open("wb") as output:
        return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, stderr=output)


def end(process, tmp_path, reached=None):
    """Stop a server once it has reached a point, or wait for another command."""
    deadline = time.monotonic() + 120
    while reached is not None and not reached() and process.poll() is None:
        if time.monotonic() > deadline:
            process.kill()
        time.sleep(0.05)
    if reached is not None:
        assert reached(), (tmp_path / "output").read_text()
        # An interrupt may get lost while libraries start their loops.
        while process.poll() is None and time.monotonic() < deadline + 60:
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
    status = process.wait(60)
    assert not (tmp_path / "ran").exists(), (tmp_path / "ran").read_text()
    return status, (tmp_path / "output").read_text()


def test_workers_of_a_server_and_the_builder_beside_it_import_nothing(folder, tmp_path):
    program = "import lexicept\nif __name__ == '__main__':\n"
    program += "    lexicept.serve('.', workers=2, port=0)"
    process = started(tmp_path, program=program)
    output = tmp_path / "output"
    end(process, tmp_path, lambda: output.read_text().count("startup complete") == 2)
    assert (tmp_path / "files.index" / "manifest.json").exists()


def test_a_server_of_tools_imports_nothing(folder, tmp_path, index):
    assert end(started(tmp_path, "mcp", index), tmp_path)[0] == 0


@pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")
def test_workers_on_ray_import_nothing(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    words = ("build", ".", "--out", tmp_path / "index", "--vocabulary", "words", "--ray", "local")
    status, output = end(started(tmp_path, *words, "--ray-workers", "1"), tmp_path)
    assert status == 0, output
    assert [hit.id for hit in lexicept.open(tmp_path / "index").search("ants")] == ["ants.md"]


def test_processes_that_libraries_start_import_nothing(folder, tmp_path):
    """A pool of a library, the tracker of its semaphores, and Python's ``-c`` and ``-m``."""
    status, output = end(started(tmp_path, program=CHILDREN), tmp_path)
    assert status == 0, output


def test_kernels_have_no_settings_of_the_folder(folder, tmp_path):
    (folder / ".numba_config.yaml").write_text(": [damaged")
    program = (
        "import os\n"
        "from lexicept.kernels.compiled import compiled\n"
        "@compiled()\n"
        "def double(number): return 2 * number\n"
        "assert double(4) == 8\n"
        "import numba\n"
        "open('.numba_config.yaml', 'w').write('disable_jit: 1\\ncache_dir: evil')\n"
        "assert double(1.5) == 3.0\n"
        "print(numba.config.DISABLE_JIT, repr(numba.config.CACHE_DIR), os.getcwd())\n"
    )
    status, output = end(started(tmp_path, program=program), tmp_path)
    assert (status, output) == (0, f"0 '' {folder}\n")


def test_restructured_text_has_no_settings_of_the_folder(folder):
    pytest.importorskip("docutils")
    (folder / "docutils.conf").write_text("[general]\nfile_insertion_enabled: yes\n")
    (folder / "secret.txt").write_text("a password")
    assert "password" not in parse_restructured("Ants\n\n.. include:: secret.txt\n").text


def test_only_a_folder_with_settings_is_left(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with without("settings"):
        assert Path.cwd() == tmp_path
    os.symlink("nowhere", "settings")
    with without("settings"):
        assert os.getcwd() == "/"
    assert Path.cwd() == tmp_path
