"""A training that starts its own processes, one for each GPU.

``python -m lexicept.training.launch CONFIG FOLDER PREPARED`` is what each of them runs.
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
from lexicept.training.config import TrainingConfig
from lexicept.training.config_file import load_config
from lexicept.training.run import train
from lexicept.training.settings import to_mapping

FAILED = ".error"
"""Suffix of the file of a process's message, beside the configuration."""


def train_on_all(config: TrainingConfig, folder: Path, progress: Progress, prepared: Path) -> Path:
    """Train an encoder as ``run.train`` does. With ``optimizer.sharded``, where there are several
    GPUs, each has a process, and they divide backbone and batch.

    A step sees as many queries as that of one process; in-batch negatives and regularisers are
    those of a process's part. With several processes their own bars show the progress.

    Raises:
        LexiceptError: a process failed; the message is its own or, for an error of another library,
            its status.
    """
    count = _processes(config)
    if count == 1:
        return train(config, folder, progress, prepared)
    own = config.optimizer.batch_size // count
    part = replace(config, optimizer=replace(config.optimizer, batch_size=own))
    path = folder.with_name(f"{folder.name}.yaml")
    replace_file(path, yaml.safe_dump(to_mapping(part), sort_keys=False).encode())
    remove(path.with_suffix(FAILED))
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count)]
    program = ["-m", __name__, str(path), str(folder), str(prepared)]
    code = subprocess.run([sys.executable, *launcher, *program], check=False).returncode
    if code:
        failed = path.with_suffix(FAILED)
        known = failed.read_text() if failed.exists() else f"a process ended with status {code}"
        raise LexiceptError(f"{folder}: its training failed: {known}")
    remove(path)
    return folder / "model"


def main() -> None:
    """Run one of the processes."""
    config, folder, prepared = map(Path, sys.argv[1:])
    try:
        with reporting(True) as shown:
            train(load_config(config), folder, shown, prepared)
    except LexiceptError as error:
        replace_file(config.with_suffix(FAILED), str(error).encode())
        sys.exit(1)


def _processes(config: TrainingConfig) -> int:
    """Return the number of processes: the largest number of GPUs that divides the batch."""
    if not config.optimizer.sharded:
        return 1
    most = max(1, torch.accelerator.device_count())
    return max(n for n in range(1, most + 1) if config.optimizer.batch_size % n == 0)


if __name__ == "__main__":
    main()
