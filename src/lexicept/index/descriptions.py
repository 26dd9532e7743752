"""Changes of the labels and descriptions of an index's concepts; errors as in ``updates``."""

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
    """Give concepts of an index new labels. Raises InputError if the index has no atlas or no
    concept of a number, or for an unknown source.

    Args:
        source: the origin of the labels, one of ``atlas.SOURCES``.
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
            changed = ["terms.", "atlas/sources.npy", "atlas/detection.npy"]
            linked = carry_over(index, folder, [f"concepts/{name}" for name in changed])
            TextStore.write(folder / "concepts" / "terms", unique_labels(terms, labels.keys()))
            atlas, detection = folder / "concepts" / "atlas", index.atlas.detection.copy()
            detection[list(labels)] = np.nan  # of the words' names, not of the new labels
            save_array(atlas / "sources.npy", np.array(sources, np.uint8))
            save_array(atlas / "detection.npy", detection)
            publish(index.path, folder, index.manifest, linked)


def describe(path: str | os.PathLike[str], find: Callable[[IndexReader], Findings]) -> None:
    """Replace the descriptions of an index's concepts, if it has any, by the result of ``find``."""
    with changing(path) as index:
        if "concepts" not in index.settings:
            raise InputError(f"{path} has no concepts")
        findings = _with_known_names(index, find(index))
        with next_generation(index) as folder:
            linked = carry_over(index, folder, ["concepts/terms.", "concepts/atlas/"])
            findings.save(folder / "concepts", index.ids, Contents(folder))
            publish(index.path, folder, index.manifest, linked)


def _with_known_names(index: IndexReader, findings: Findings) -> Findings:
    """Keep the names of concepts that do not fire in these documents, and names from a language
    model or a release."""
    silent_here = np.diff(findings.log_odds.indptr) == 0
    labels, sources = list(findings.labels), findings.sources.copy()
    renamed = []
    for number, label in enumerate(TextStore(index.folder / "concepts" / "terms")):
        source = "none" if label == unnamed(number) else "words"
        if index.atlas is not None:
            source = index.atlas.source(number)
        if silent_here[number] or source in ("llm", "explanations"):
            labels[number], sources[number] = label, SOURCES.index(source)
            renamed.append(number)
    detection = findings.detection.copy()
    detection[renamed] = np.nan
    labels = unique_labels(labels, renamed)
    return replace(findings, labels=labels, sources=sources, detection=detection)
