"""The folder of a training run; a run of the same configuration resumes it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from lexicept.errors import InputError
from lexicept.neural.backbones.backbone import Backbone
from lexicept.neural.sae.cached_states import CachedStates
from lexicept.progress import Progress
from lexicept.storage.files import remove_temporaries
from lexicept.storage.sequences import LazySequence
from lexicept.storage.workspace import Workspace
from lexicept.training.ranking.config import TrainingConfig


@dataclass(frozen=True)
class RunFolder:
    """A run's configuration and folders."""

    config: TrainingConfig
    path: Path
    """Folder of the run."""
    prepared: Path
    """Folder of data, teacher scores, cached states and SAE; runs may share the folder."""
    progress: Progress
    writes: bool
    """True in the writing process."""

    @property
    def work(self) -> Path:
        """Folder of checkpoints and metrics."""
        return self.path / "work"

    def states(
        self, backbone: Backbone, texts: Sequence[str], name: str, prompt: str = ""
    ) -> CachedStates:
        """Return the cached token states of texts after a prompt; missing states are computed
        first. The name of a cache of queries ends with "queries"."""
        folder = self.prepared / "states" / name
        bf16 = self.config.optimizer.bf16
        task = "query" if name.endswith("queries") else "document"
        read = _Prompted(prompt, texts) if prompt else texts
        return CachedStates.build(folder, backbone, read, self.progress, bf16=bf16, task=task)


class _Prompted(LazySequence[str]):
    """Texts, each after a prompt."""

    def __init__(self, prompt: str, texts: Sequence[str]) -> None:
        self._prompt, self._texts = prompt, texts

    def __len__(self) -> int:
        return len(self._texts)

    def _read(self, index: int) -> str:
        return self._prompt + self._texts[index]


@contextmanager
def claimed(config: TrainingConfig, path: Path, *, restart: bool) -> Iterator[None]:
    """Hold a run's folder for this process during a block; an early failure leaves no folder.
    Raises InputError if the folder holds a finished run, another configuration's run or other
    files, or another process works there."""
    settings = {"config": asdict(config)}
    with Workspace(path, "train", settings, restart=restart, in_place=True) as work:
        if (path / "model").exists():
            raise InputError(
                f"{path}: this run is finished; name another folder, or --restart (restart=True)"
            )
        work.kept("work")
        remove_temporaries(path)
        yield
