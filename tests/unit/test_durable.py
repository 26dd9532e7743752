"""Everything published is flushed to disk first, and as private as the umask says."""

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from lexicept.pipelines.pretrain import pretrain
from lexicept.training.ranking.run import train
from reproduction.soup import soup
from support.runs import configuration

pytestmark = pytest.mark.usefixtures("_private")


class Disk:
    """Knows when each file and folder was last flushed."""

    def __init__(self) -> None:
        self._times: dict[tuple[int, int], int] = {}
        self._names: dict[int, set[tuple[str, int]]] = {}

    def fsync(self, descriptor: int) -> None:
        status = os.fstat(descriptor)
        self._times[status.st_dev, status.st_ino] = status.st_mtime_ns
        if stat.S_ISDIR(status.st_mode):
            with os.scandir(descriptor) as items:
                self._names[status.st_ino] = {(item.name, item.inode()) for item in items}

    def _flushed(self, path: Path) -> bool:
        status = path.stat()
        return self._times.get((status.st_dev, status.st_ino)) == status.st_mtime_ns

    def assert_holds(self, out: Path) -> None:
        """Nothing at ``out`` has changed since it was flushed, and its name was flushed too."""
        paths = [out, *out.rglob("*")]
        assert not [path for path in paths if not self._flushed(path)]
        assert (out.name, out.stat().st_ino) in self._names[out.parent.stat().st_ino]
        assert not [path for path in paths if path.stat().st_mode & 0o077]


@pytest.fixture
def disk(monkeypatch):
    made = Disk()
    monkeypatch.setattr("os.fsync", made.fsync)
    return made


@pytest.fixture
def _private():
    before = os.umask(0o077)
    yield
    os.umask(before)


@pytest.mark.usefixtures("_hasty")
def test_a_trained_model_and_adapters(inputs, tmp_path, disk):
    run = tmp_path / "new" / "run"
    train(configuration(inputs, model={"trained": "lora"}), run)
    for name in ("model", "adapter", "metrics.jsonl", "config.yaml"):
        disk.assert_holds(run / name)
    for path in (run / "work" / "checkpoints").glob("checkpoint-*"):
        disk.assert_holds(path)
    soup([run / "model", run / "model"], tmp_path / "soup")
    disk.assert_holds(tmp_path / "soup")


def test_a_pretrained_model(inputs, tmp_path, disk):
    texts, backbone = ["baba dede kiki", "lolo mumu"], str(inputs / "bert")
    options: dict[str, Any] = {"head": "random", "size": 3, "masking": "words", "steps": 2}
    pretrain(texts, tmp_path / "model", backbone=backbone, batch_size=2, **options)
    disk.assert_holds(tmp_path / "model")
