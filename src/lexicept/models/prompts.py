"""Prompts: what sentence-transformers puts before texts."""

from __future__ import annotations

from collections.abc import Mapping


def prompt_for(task: str, prompts: Mapping[str, str], default: str | None) -> str:
    """Return what is put before every text of a task.

    Args:
        task: query or document.
        prompts: by name; a document's may be called document, passage or corpus.
        default: the name of the prompt of a task that has none of its own.
    """
    known = ("query",) if task == "query" else ("document", "passage", "corpus")
    name = next((name for name in known if name in prompts), default)
    return prompts.get(name, "") if name else ""
