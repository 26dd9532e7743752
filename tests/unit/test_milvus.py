"""Loading Milvus: what an interrupted load and a killed server leave, and what is said of them."""

import random
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from lexicept.errors import IndexFormatError, InputError
from support.processes import stops_at

pytest.importorskip("milvus_lite", reason="needs lexicept[milvus]")

from lexicept.engines import milvus, store

DOCUMENTS = sp.csr_array(np.eye(50, 60, dtype=np.float32) * 2)
Start = Callable[[], subprocess.Popen[bytes]]


@pytest.fixture
def port() -> int:
    """A free one, that no outgoing connection takes in between."""
    for candidate in random.sample(range(20_000, 30_000), 50):
        with socket.socket() as trial:
            if trial.connect_ex(("127.0.0.1", candidate)):
                return candidate
    raise AssertionError("no free port")


@pytest.fixture
def start(port: int, tmp_path: Path) -> Iterator[Start]:
    """Starts ``milvus-lite server`` on the port, over the same data every time."""
    running: list[subprocess.Popen[bytes]] = []

    def call() -> subprocess.Popen[bytes]:
        arguments = [
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
            "--data-dir",
            str(tmp_path / "data"),
        ]
        code = "from milvus_lite.cmdline import main; main()"
        command = [sys.executable, "-c", code, "server", *arguments]
        running.append(subprocess.Popen(command, stderr=subprocess.DEVNULL))
        for _ in range(300):
            with socket.socket() as trial:
                if not trial.connect_ex(("127.0.0.1", port)):
                    return running[-1]
            time.sleep(0.1)
        raise AssertionError("the server did not start")

    yield call
    for process in running:
        process.kill()
        process.wait()


@pytest.fixture
def upserts(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The numbers of the documents of every upsert; an upsert holds 10."""
    monkeypatch.setattr(milvus, "BATCH_DOCUMENTS", 10)
    sent: list[list[int]] = []
    upsert = milvus.Server.upsert

    def recorded(self: milvus.Server, rows: list[dict[str, Any]]) -> None:
        sent.append([row["number"] for row in rows])
        upsert(self, rows)

    monkeypatch.setattr(milvus.Server, "upsert", recorded)
    return sent


def finds_all(folder: Path) -> bool:
    found = store.open_engine(folder, "milvus", "p").search(DOCUMENTS, 3)
    return [numbers.tolist() for numbers, _ in found] == [[n] for n in range(50)]


def test_an_interrupted_load_goes_on(
    tmp_path: Path, upserts: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "engines" / "milvus"
    arguments = {"documents": DOCUMENTS}
    with monkeypatch.context() as patch:
        patch.setattr(milvus, "write_json", stops_at(milvus.write_json, 4))
        with pytest.raises(KeyboardInterrupt):
            store.build(folder, "milvus", "p", arguments)
    assert len(upserts) == 3  # the third was taken, but not noted
    upserts.clear()
    store.build(folder, "milvus", "p", arguments)
    assert [numbers[0] for numbers in upserts] == [20, 30, 40]
    assert finds_all(folder)


def test_a_load_of_other_documents_begins_anew(
    tmp_path: Path, upserts: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "engines" / "milvus"
    with monkeypatch.context() as patch:
        patch.setattr(milvus, "write_json", stops_at(milvus.write_json, 4))
        with pytest.raises(KeyboardInterrupt):
            store.build(folder, "milvus", "other", {"documents": DOCUMENTS * 3})
    upserts.clear()
    with pytest.raises(InputError, match='postings was "other" and is now "p"'):
        store.build(folder, "milvus", "p", {"documents": DOCUMENTS})
    assert upserts == []
    store.build(folder, "milvus", "p", {"documents": DOCUMENTS}, restart=True)
    assert [numbers[0] for numbers in upserts] == [0, 10, 20, 30, 40]
    assert finds_all(folder)


def test_a_server_killed_while_loading_loses_and_doubles_nothing(
    tmp_path: Path, port: int, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = start()
    monkeypatch.setattr(milvus, "BATCH_DOCUMENTS", 10)
    upsert, calls = milvus.Server.upsert, iter(range(100))

    def killed(self: milvus.Server, rows: list[dict[str, Any]]) -> None:
        if next(calls) == 2:
            server.kill()
            server.wait()
            start()
        upsert(self, rows)

    monkeypatch.setattr(milvus.Server, "upsert", killed)
    folder = tmp_path / "engines" / "milvus"
    uri = f"http://127.0.0.1:{port}"
    facts = store.build(folder, "milvus", "p", {"documents": DOCUMENTS, "uri": uri})["facts"]
    assert finds_all(folder)
    assert store.open_engine(folder, "milvus", "p").size is None
    # The collection of the engine before is gone, and one that goes missing is said to be.
    store.build(folder, "milvus", "q", {"documents": DOCUMENTS, "uri": uri})
    assert not milvus.Server(folder, uri, facts["collection"]).exists()
    collection = store.open_engine(folder, "milvus", "q")
    milvus.Server(folder, uri, collection._server.collection).drop()  # type: ignore[attr-defined]
    with pytest.raises(IndexFormatError, match="there is no collection"):
        store.open_engine(folder, "milvus", "q")


def test_a_server_that_loses_what_it_took_is_loaded_once_more(
    tmp_path: Path, upserts: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = iter([40, 50])
    monkeypatch.setattr(milvus.Server, "count", lambda _: next(counts))
    store.build(tmp_path, "milvus", "p", {"documents": DOCUMENTS})
    assert len(upserts) == 10
    counts = iter([40, 41])
    with pytest.raises(InputError, match="holds 41 documents of 50 after a full load"):
        store.build(tmp_path, "milvus", "q", {"documents": DOCUMENTS})


def test_no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    monkeypatch.setattr(milvus, "FIRST_WAIT", 0.01)
    uri = f"http://127.0.0.1:{port}"
    with pytest.raises(InputError, match=f"{uri}: Fail connecting to server"):
        store.build(tmp_path, "milvus", "p", {"documents": DOCUMENTS, "uri": uri})


def test_a_file_that_another_process_has_open(tmp_path: Path) -> None:
    store.build(tmp_path, "milvus", "p", {"documents": DOCUMENTS})
    code = (
        "import sys; from pathlib import Path; from lexicept.engines import store\n"
        "store.open_engine(Path(sys.argv[1]), 'milvus', 'p')"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1].endswith(
        "another process has it open (a server serves many)"
    )
