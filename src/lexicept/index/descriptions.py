"""Changes of what an index says of its concepts: labels and descriptions."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from lexicept.errors import InputError
from lexicept.explanation.contributions import unnamed
from lexicept.index.atlas import SOURCES, Findings, unique_labels
from lexicept.index.builder import Contents
from lexicept.index.generations import carry_over, changing, next_generation, publish
from lexicept.index.reader import IndexReader
from lexicept.storage.arrays import save_array
from lexicept.storage.texts import TextStore


def relabel(path: str | os.PathLike[str], labels: Mapping[int, str], source: str) -> None:
    """Give concepts of an index other labels; those of all others stay as they are.

    Args:
        labels: by the concepts' numbers.
        source: where they are from; one of ``atlas.SOURCES``.

    Raises:
        InputError: the index has no atlas or no concept of a number, an unknown source, or another
            process is writing.
        IndexFormatError: ``path`` is no index, or a damaged one; it is left as it was.
    """
    if source not in SOURCES:
        raise InputError(f"unknown source of labels {source!r}; sources are {', '.join(SOURCES)}")
    with changing(path) as index:
        if index.atlas is None:
            raise InputError(f"{path}: its concepts were not described")
        terms = list(index.atlas.labels)
        sources = [SOURCES.index(index.atlas.source(number)) for number in range(len(terms))]
        for number, label in labels.items():
            if not 0 <= number < len(terms):
                raise InputError(f"{path} has no concept {number}; it has {len(terms)}")
            terms[number], sources[number] = label, SOURCES.index(source)
        with next_generation(index) as folder:
            kept = carry_over(index, folder, "concepts/terms.", "concepts/atlas/sources.npy")
            TextStore.write(folder / "concepts" / "terms", unique_labels(terms, labels.keys()))
            file = folder / "concepts" / "atlas" / "sources.npy"
            save_array(file, np.array(sources, np.uint8))
            publish(index.path, folder, index.manifest, kept)


def describe(path: str | os.PathLike[str], find: Callable[[IndexReader], Findings]) -> None:
    """Replace the descriptions of an index's concepts by those that ``find`` returns.

    Raises:
        InputError: the index has no concepts, or another process is writing.
        IndexFormatError: ``path`` is no index, or a damaged one; it is left as it was.
    """
    with changing(path) as index:
        if "concepts" not in index.settings:
            raise InputError(f"{path} has no concepts")
        findings = _with_known_names(index, find(index))
        with next_generation(index) as folder:
            kept = carry_over(index, folder, "concepts/terms.", "concepts/atlas/")
            findings.save(folder / "concepts", index.ids, Contents(folder))
            publish(index.path, folder, index.manifest, kept)


def _with_known_names(index: IndexReader, findings: Findings) -> Findings:
    """Keep the names of concepts that do not fire here, which no word of these documents describes,
    and those that a language model or a release gave."""
    before = TextStore(index.folder / "concepts" / "terms")
    silent_here = np.diff(findings.log_odds.indptr) == 0
    labels, sources = list(findings.labels), findings.sources.copy()
    kept = []
    for number, label in enumerate(before):
        named = "none" if label == unnamed(number) else "words"
        source = named if index.atlas is None else index.atlas.source(number)
        if silent_here[number] or source in ("llm", "explanations"):
            labels[number], sources[number] = label, SOURCES.index(source)
            kept.append(number)
    return replace(findings, labels=unique_labels(labels, kept), sources=sources)
