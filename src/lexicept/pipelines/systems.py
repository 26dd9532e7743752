"""The systems of an evaluation: vocabularies of an index, other indexes, BM25 and TREC runs."""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import NamedTuple, TypeAlias

from lexicept.checks import Table
from lexicept.errors import InputError
from lexicept.evaluation.runs import Run, read_run
from lexicept.index.reader import IndexReader
from lexicept.pipelines.opened import IndexLike, reader_of, single_vocabulary
from lexicept.weighting import BM25

System: TypeAlias = IndexLike | Table[Mapping[str, float]]
"""A name ("words", "concepts", "all", "sparse", "bm25", "bm25:k1=0.9,b=0.4"), an opened index, the
path of an index or of a TREC run, or a run in memory. "all" are words and concepts with the
similarity of whole texts, "sparse" are words and concepts without it."""

Systems: TypeAlias = Sequence[System] | Table[System]
"""Systems that name themselves, or systems by name."""

_NAMES = "words, concepts, all, sparse, bm25, bm25:k1=0.9,b=0.4"


@dataclass(frozen=True)
class SearchedIndex:
    """An index to search, in one vocabulary or, for None, in all of them."""

    reader: IndexReader
    vocabulary: str | None
    rescore: bool = True
    """See ``IndexReader.search``."""


ResolvedSystem: TypeAlias = SearchedIndex | BM25 | Run


class _NamedSystem(NamedTuple):
    """A system with a name and a longer, unambiguous name."""

    name: str
    path: str
    system: ResolvedSystem


def resolve_systems(systems: Systems, index: IndexReader) -> dict[str, ResolvedSystem]:
    """Return a searchable object for each system by name; without any, all vocabularies.

    The name of a path is the last component, or the whole path where two last components are equal.

    Raises:
        InputError: no such system, a vocabulary that the index does not have, a malformed run, a
            run in memory without a name, or a name that is there twice.
        IndexFormatError: a folder that is no index.
    """
    if isinstance(systems, Mapping):
        bad = [name for name in systems if not (isinstance(name, str) and name.strip())]
        if bad:
            raise InputError(f"the name of a system is a text, not {bad[0]!r:.80}")
        named = {
            name: _in_memory(name, system)
            if isinstance(system, Mapping)
            else _resolve(system, index).system
            for name, system in systems.items()
        }
        return named or resolve_systems([], index)
    resolved = [_resolve(system, index) for system in systems]
    if not resolved:
        first, *others = index.vocabularies
        resolved = [_vocabulary("all" if others else first.name, index)]
    count = Counter(system.name for system in resolved)
    names = [system.name if count[system.name] == 1 else system.path for system in resolved]
    if twice := [name for name, uses in Counter(names).items() if uses > 1]:
        raise InputError(f"system {twice[0]!r} is there twice")
    return {name: system.system for name, system in zip(names, resolved, strict=True)}


def _resolve(system: System, index: IndexReader) -> _NamedSystem:
    if isinstance(system, Mapping):
        raise InputError("a run in memory needs a name: systems={'name': run}")
    if not isinstance(system, str | os.PathLike):
        return _index(reader_of(system))
    text = os.fspath(system)
    if text in ("words", "concepts", "all", "sparse"):
        return _vocabulary(text, index)
    if text.partition(":")[0] == "bm25":
        return _NamedSystem(text, text, _bm25(text))
    path = Path(text)
    if path.is_dir():
        return _index(IndexReader.open(path))
    if not path.exists():
        raise InputError(
            f"no system {text!r}: it is {_NAMES}, the folder of an index or the file of a TREC run"
        )
    return _NamedSystem(path.name, text, read_run(path))


def _in_memory(name: str, run: Run) -> Run:
    """Return a run. Raises InputError for ids or scores that a TREC run can't hold."""
    for query, documents in run.items():
        if not isinstance(documents, Mapping):
            raise InputError(f"run {name!r}: query {query!r} has no documents with scores")
        for key in (query, *documents):
            if not isinstance(key, str) or key.split() != [key]:
                raise InputError(f"run {name!r}: bad id {key!r}: an id is a text without spaces")
        for document, score in documents.items():
            if not isinstance(score, Real) or not math.isfinite(score):
                problem = f"score {score!r:.40} of {document!r} is not a finite number"
                raise InputError(f"run {name!r}, query {query!r}: {problem}")
    return run


def _index(reader: IndexReader) -> _NamedSystem:
    return _NamedSystem(reader.path.name, str(reader.path), SearchedIndex(reader, None))


def _vocabulary(name: str, index: IndexReader) -> _NamedSystem:
    alone = None if name in ("all", "sparse") else single_vocabulary(index, name)
    searched = alone if len(index.vocabularies) > 1 else None
    return _NamedSystem(name, name, SearchedIndex(index, searched, name != "sparse"))


def _bm25(text: str) -> BM25:
    """Read ``bm25`` or ``bm25:k1=NUMBER,b=NUMBER``, one of which may be left out."""
    values: dict[str, float] = {}
    for assignment in filter(None, text.removeprefix("bm25").removeprefix(":").split(",")):
        match = re.fullmatch(r"\s*(k1|b)\s*=\s*([0-9.eE+-]+)\s*", assignment)
        try:
            if match is None or match[1] in values:
                raise ValueError
            values[match[1]] = float(match[2])
        except ValueError:
            raise InputError(
                f"system {text!r}: {assignment!r} is not k1=NUMBER or b=NUMBER, each at most once"
            ) from None
    return BM25(**values)
