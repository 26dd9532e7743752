"""Training with a new process for each GPU.

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
from lexicept.training.ranking.config import TrainingConfig, load_config
from lexicept.training.ranking.run import train
from lexicept.training.settings import to_mapping

FAILED = ".error"
"""Suffix of the file of a process's error message, beside the configuration."""


def train_on_all(config: TrainingConfig, folder: Path, progress: Progress, prepared: Path) -> Path:
    """Train an encoder as ``run.train`` does; with ``optimizer.sharded`` and several GPUs, in a
    process for each GPU, which divide backbone and batch.

    A step has the same number of queries as with one process; in-batch negatives and regularisers
    are limited to a process's share. Several processes show their own progress bars.

    Raises:
        LexiceptError: a failed process, with the message or, for errors of libraries, the status.
    """
    batch_size, devices = config.optimizer.batch_size, max(1, torch.accelerator.device_count())
    counts = range(1, devices + 1) if config.optimizer.sharded else [1]
    count = max(number for number in counts if batch_size % number == 0)
    if count == 1:
        return train(config, folder, progress, prepared)
    share = replace(config, optimizer=replace(config.optimizer, batch_size=batch_size // count))
    path = folder.with_name(f"{folder.name}.yaml")
    failed = path.with_suffix(FAILED)
    replace_file(path, yaml.safe_dump(to_mapping(share), sort_keys=False).encode())
    remove(failed)
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count)]
    program = ["-m", __name__, str(path), str(folder), str(prepared)]
    status = subprocess.run([sys.executable, *launcher, *program], check=False).returncode
    if status:
        reason = failed.read_text() if failed.exists() else f"a process ended with status {status}"
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


if __name__ == "__main__":
    main()
