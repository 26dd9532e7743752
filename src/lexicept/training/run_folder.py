"""The folder of a training run, which a run of the same configuration resumes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from lexicept.errors import InputError
from lexicept.models.backbone import Backbone
from lexicept.progress import Progress
from lexicept.storage.files import replace_file
from lexicept.storage.locks import lock
from lexicept.training.config import TrainingConfig
from lexicept.training.settings import difference, to_mapping
from lexicept.training.states import CachedStates

WRITTEN = (
    *("config.yaml", "metrics.jsonl", "curves.png", "model", "adapter", "held-out", "work"),
    *("model.unfinished", "adapter.unfinished"),
)
"""Everything that a run writes in its folder."""


@dataclass(frozen=True)
class RunFolder:
    """A run's configuration, and the folders that it reads and writes."""

    config: TrainingConfig
    path: Path
    """Folder of the run."""
    prepared: Path
    """Folder of data, teacher scores, cached states and SAE, which runs may share."""
    progress: Progress
    writes: bool
    """Whether this process is the one that writes."""

    @property
    def work(self) -> Path:
        """Folder of checkpoints and metrics."""
        return self.path / "work"

    def states(self, backbone: Backbone, texts: Sequence[str], name: str) -> CachedStates:
        """Return the cached token states of texts, computed where they are missing."""
        folder = self.prepared / "states" / name
        bf16 = self.config.optimizer.bf16
        return CachedStates.build(folder, backbone, texts, self.progress, bf16=bf16)


@contextmanager
def claimed(config: TrainingConfig, path: Path, prepared: Path, *, restart: bool) -> Iterator[None]:
    """Hold a run's folder for this process while the block runs.

    A folder that held nothing of a run before and holds no data after the block is emptied again.

    Args:
        restart: whether to remove what an earlier run left there.

    Raises:
        InputError: the folder holds a finished run or one of another configuration, or another
            process works there.
    """
    new = not path.exists()
    (path / "work").mkdir(parents=True, exist_ok=True)
    descriptor = lock(path)
    try:
        if restart:
            _remove(path)
            (path / "work").mkdir()
        if (path / "model").exists():
            raise InputError(f"{path}: this run is finished; name another folder, or --restart")
        _keep_config(config, path / "config.yaml", prepared)
        yield
    finally:
        os.close(descriptor)
        if new and not (prepared / "words").exists():
            _remove(path)
            (path / ".lock").unlink(missing_ok=True)
            if not any(path.iterdir()):
                path.rmdir()


def _remove(path: Path) -> None:
    """Remove what a run wrote in its folder, and nothing else."""
    for place in (path / name for name in WRITTEN):
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        else:
            place.unlink(missing_ok=True)


def _keep_config(config: TrainingConfig, path: Path, prepared: Path) -> None:
    """Write the configuration; refuse another one where data have been prepared."""
    now = to_mapping(config)
    begun = (prepared / "words").exists() and path.exists()
    other = difference(yaml.safe_load(path.read_text()), now) if begun else None
    if other is not None:
        raise InputError(
            f"{path}: a run of another configuration: {other}; name another folder, or --restart"
        )
    replace_file(path, yaml.safe_dump(now, sort_keys=False).encode())
