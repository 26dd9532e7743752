"""How long work reports what it has done, without knowing who watches."""

from typing import Protocol


class Progress(Protocol):
    """Called again and again while a stage runs."""

    def __call__(self, stage: str, done: int, total: int, detail: str = "") -> None:
        """``done`` of ``total`` units of the stage are done; ``detail`` is for people."""


def silent(stage: str, done: int, total: int, detail: str = "") -> None:
    """Nobody watches."""
