"""Learned sparse retrieval: words and concepts in one inverted index, explained.

Names are imported at first use, so that work without a model never imports torch.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if os.name != "posix":  # locks, see lexicept.storage.locks
    raise ImportError("lexicept requires a POSIX system: Linux or macOS, or WSL on Windows")

if TYPE_CHECKING:
    from lexicept.corpora import Document as Document
    from lexicept.errors import LexiceptError as LexiceptError
    from lexicept.pipelines.build import build as build
    from lexicept.pipelines.convert import convert as convert
    from lexicept.pipelines.evaluate import evaluate as evaluate
    from lexicept.pipelines.explain import explain as explain
    from lexicept.pipelines.index import Index as Index
    from lexicept.pipelines.index import open as open  # noqa: A004
    from lexicept.pipelines.pretrain import pretrain as pretrain
    from lexicept.pipelines.report import report as report
    from lexicept.pipelines.serve import serve as serve
    from lexicept.pipelines.settings import ConceptSettings as ConceptSettings
    from lexicept.pipelines.settings import Limits as Limits
    from lexicept.pipelines.sweep import sweep as sweep
    from lexicept.pipelines.sync import sync as sync
    from lexicept.pipelines.train import train as train

_COMMANDS = "build convert evaluate explain pretrain report serve sweep sync train"
_HOMES = {
    **{name: f"lexicept.pipelines.{name}" for name in _COMMANDS.split()},
    "ConceptSettings": "lexicept.pipelines.settings",
    "Document": "lexicept.corpora",
    "Index": "lexicept.pipelines.index",
    "LexiceptError": "lexicept.errors",
    "Limits": "lexicept.pipelines.settings",
    "open": "lexicept.pipelines.index",
}

__all__ = [
    "ConceptSettings", "Document", "Index", "LexiceptError", "Limits", "build", "convert",
    "evaluate", "explain", "open", "pretrain", "report", "serve", "sweep", "sync", "train",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'lexicept' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
