"""Training with one new process for each GPU.

Each process runs ``python -m reproduction.launch CONFIG FOLDER PREPARED``.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import torch
import yaml

from lexicept.errors import LexiceptError
from lexicept.progress import Progress, reporting
from lexicept.storage.files import remove, replace_file
from lexicept.training.config import TrainingConfig, load_config
from lexicept.training.run import train
from lexicept.training.settings import to_mapping

FAILED = ".error"
"""Suffix of a process's error message, a file beside the configuration."""


def train_on_all(config: TrainingConfig, folder: Path, progress: Progress, prepared: Path) -> Path:
    """Train an encoder as ``run.train`` does; with ``optimizer.sharded`` and several GPUs, in one
    process for each GPU, which divide backbone and batch.

    A step has the same number of queries as with one process; in-batch negatives and regularisers
    are limited to a process's share. Several processes show their own progress bars.

    Raises:
        LexiceptError: a failed process, with its message or, for errors of libraries, its status.
    """
    count = _processes(config)
    if count == 1:
        return train(config, folder, progress, prepared)
    batch_size = config.optimizer.batch_size // count
    share = replace(config, optimizer=replace(config.optimizer, batch_size=batch_size))
    path = folder.with_name(f"{folder.name}.yaml")
    replace_file(path, yaml.safe_dump(to_mapping(share), sort_keys=False).encode())
    remove(path.with_suffix(FAILED))
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count)]
    program = ["-m", __name__, str(path), str(folder), str(prepared)]
    code = subprocess.run([sys.executable, *launcher, *program], check=False).returncode
    if code:
        failed = path.with_suffix(FAILED)
        reason = failed.read_text() if failed.exists() else f"a process ended with status {code}"
        raise LexiceptError(f"{folder}: its training failed: {reason}")
    remove(path)
    return folder / "model"


def main() -> None:
    """Run one of the processes."""
    config, folder, prepared = map(Path, sys.argv[1:])
    try:
        with reporting(True) as progress:
            train(load_config(config), folder, progress, prepared)
    except LexiceptError as error:
        replace_file(config.with_suffix(FAILED), str(error).encode())
        sys.exit(1)


def _processes(config: TrainingConfig) -> int:
    """Return the largest number of GPUs that divides the batch."""
    if not config.optimizer.sharded:
        return 1
    most = max(1, torch.accelerator.device_count())
    return max(n for n in range(1, most + 1) if config.optimizer.batch_size % n == 0)


if __name__ == "__main__":
    main()
