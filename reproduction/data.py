"""The data of recipes: folders, parts of folders, and names known to ir_datasets and MTEB."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lexicept.corpora import Qrel, Query, read_documents, read_qrels, read_queries
from lexicept.corpora.pseudo_queries import write_judged
from lexicept.errors import InputError, LexiceptError
from lexicept.progress import Progress, silent
from lexicept.storage.files import fingerprint, read_json, replace_file, sha256, write_json
from lexicept.storage.yaml_text import read_yaml
from lexicept.training.settings import Count, Items, Text, from_mapping, settings
from reproduction.clustered_sets import (
    SPLITS,
    ClusteringSettings,
    clustered_sets,
)


class MissingDataError(InputError):
    """A missing dataset or model; the message names it and how to get it."""


@settings
class Subset:
    """A random part of a collection, drawn once."""

    source: Text
    split: Text
    """Split whose judgements the part keeps, under the same name."""
    documents: Count
    queries: Count


@settings
class Source:
    """The source of a folder of the data."""

    get: Text
    """Description of the source and of the folder's content."""
    ir_datasets: Text | None = None
    """Name of the same documents, queries and judgements in ir_datasets; of a folder of folders,
    the beginning of their names."""
    subset: Subset | None = None
    """The part of another folder that this one is, made when it is needed."""
    clustered: ClusteringSettings | None = None
    """The collection whose clustered sets this folder holds, made when they are needed."""
    ignore_identical_ids: Items[Text] = ()
    """The collections in this folder whose queries are documents: a hit with its query's id is left
    out, as BEIR's evaluation does."""


@dataclass(frozen=True)
class Data:
    """The folders of a run's data.

    Attributes:
        folder: the user's data; None leaves only what ir_datasets can fetch.
        sources: see ``load_sources``.
        work: where subsets are written, and what the folders held when they were first read.
        progress: told of sets that take long to make.
    """

    folder: Path | None
    sources: Mapping[str, Source]
    work: Path
    progress: Progress = silent

    def find(self, name: str) -> str:
        """Return a folder, or a name that ir_datasets knows.

        Raises:
            MissingDataError: neither, with what to do about it.
        """
        if self.folder is not None and (self.folder / name).exists():
            return str(self.folder / name)
        source = source_of(name, self.sources)
        if source is not None and source.subset is not None:
            return self._part(name, source.subset)
        if source is not None and source.clustered is not None:
            return self._set(name, source.clustered)
        known = ir_datasets_name(name, self.sources)
        if known is not None and find_spec("ir_datasets") is not None:
            return known
        place = "no --data folder was given" if self.folder is None else f"not in {self.folder}"
        how = "pip install 'lexicept[ir-datasets]'" if source is None else source.get
        raise MissingDataError(f"dataset {name}: {place}. {how}")

    def place(self, name: str) -> str:
        """Return a folder of the data, or else the name itself, of a model that the hub may have.

        Raises:
            MissingDataError: a dataset of ``datasets.yaml`` that is not found.
        """
        here = self.folder is not None and (self.folder / name).exists()
        if not here and source_of(name, self.sources) is not None:
            return self.find(name)
        return str(self.folder / name) if here and self.folder is not None else name

    def ignores_identical_ids(self, name: str) -> bool:
        """Return whether a hit whose id is its query's is left out in this dataset."""
        return ignores_identical_ids(name, self.sources)

    def check_unchanged(self, name: str) -> None:
        """Check a folder of the user's by ``check_unchanged``; do nothing if there is none.

        Rows and models are kept under the names of their data, whose files must stay the same.
        """
        source = source_of(name, self.sources)
        if self.folder is not None and (self.folder / name).exists():
            check_unchanged(self.folder / name, self.work / "sources" / f"{name}.json")
        elif source is not None and source.subset is not None:
            self.check_unchanged(source.subset.source)
        elif source is not None and source.clustered is not None:
            self.check_unchanged(source.clustered.source)

    def _set(self, name: str, clustered: ClusteringSettings) -> str:
        folder, _, inside = name.partition("/")
        if inside not in SPLITS:
            raise InputError(f"dataset {name!r}: clustered sets are {', '.join(SPLITS)}")
        path = self.work / "datasets" / folder
        if not path.exists():
            source = self.find(clustered.source)
            with fetching(clustered.source, self):
                clustered_sets(replace(clustered, source=source), path, self.progress)
        return str(path / inside)

    def _part(self, name: str, subset: Subset) -> str:
        path = self.work / "datasets" / name
        if not (path / "queries.jsonl").exists():  # the file that is written last
            source = self.find(subset.source)
            with fetching(subset.source, self):
                write_subset(source, subset, path)
        return str(path)


def check_unchanged(path: Path, record: Path) -> None:
    """Compare a file or folder with its content at the first check.

    Args:
        record: file of the checksum, computed again where a size or a time has changed.

    Raises:
        InputError: the content has changed.
    """
    files = [file for file in (path, *sorted(path.rglob("*"))) if file.is_file()]
    names = [file.relative_to(path).as_posix() for file in files]
    stats = [file.stat() for file in files]
    signs = [[n, s.st_size, s.st_mtime_ns] for n, s in zip(names, stats, strict=True)]
    before = read_json(record) if record.exists() else {}
    if before.get("files") == signs:
        return
    content = fingerprint([*names, *map(sha256, files)])
    if before.get("fingerprint", content) != content:
        raise InputError(
            f"{path}: its files have changed since results were made from them; put them back, or "
            "use another --out"
        )
    record.parent.mkdir(parents=True, exist_ok=True)
    write_json(record, {"files": signs, "fingerprint": content})


def source_of(name: str, sources: Mapping[str, Source]) -> Source | None:
    """Return the source of a folder, or of the folder that contains it."""
    return sources.get(name) or sources.get(name.partition("/")[0])


def ir_datasets_name(name: str, sources: Mapping[str, Source]) -> str | None:
    """Return the name under which ir_datasets may know a dataset; None if it does not."""
    source = source_of(name, sources)
    if source is None:
        return name
    if source.ir_datasets is None:
        return None
    folder = name if name in sources else name.partition("/")[0]
    return source.ir_datasets + name.removeprefix(folder)


def ignores_identical_ids(name: str, sources: Mapping[str, Source]) -> bool:
    """Return whether a hit whose id is its query's is left out in a dataset."""
    folder, _, inside = name.partition("/")
    return folder in sources and inside in sources[folder].ignore_identical_ids


def load_sources(path: Path) -> dict[str, Source]:
    """Read ``datasets.yaml``. Raises InputError naming what is wrong."""
    content = read_yaml(path)
    if not isinstance(content, Mapping):
        raise InputError(f"{path}: not a mapping of names")
    try:
        return {
            str(name): from_mapping(Source, entry, str(name)) for name, entry in content.items()
        }
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


@contextmanager
def fetching(name: str, data: Data) -> Iterator[None]:
    """Turn errors of fetching or reading a dataset into one message that names it.

    Raises:
        MissingDataError: any other error than lexicept's own and a full disk, which pass.
    """
    try:
        yield
    except LexiceptError:
        raise
    except Exception as error:  # ir_datasets and what it downloads with raise many kinds
        if full_disk(error):
            raise  # which is not a missing dataset
        source = source_of(name, data.sources)
        how = f" {source.get}" if source is not None else ""
        reason = " ".join(str(error).split())[:300]
        raise MissingDataError(f"dataset {name} can't be fetched: {reason}.{how}") from None


def full_disk(error: Exception) -> bool:
    """Return whether an error says that the disk is full."""
    return isinstance(error, OSError) and error.errno is not None and error.filename is None


def write_subset(source: str, subset: Subset, folder: Path) -> None:
    """Write a random part of the documents and of their queries as a BEIR folder."""
    random = np.random.default_rng(0)
    documents = list(read_documents(source))
    chosen = random.permutation(len(documents))[: subset.documents]
    kept = {documents[i].id: documents[i] for i in sorted(chosen)}
    judged = [q for q in read_qrels(source, subset.split) if q.document_id in kept]
    names = sorted({qrel.query_id for qrel in judged})
    asked = {names[i] for i in random.permutation(len(names))[: subset.queries]}
    queries = [query for query in read_queries(source, subset.split) if query.id in asked]
    lines = (
        json.dumps({"_id": d.id, "title": d.title, "text": d.text}) + "\n" for d in kept.values()
    )
    replace_file(folder / "corpus.jsonl", "".join(lines).encode())
    of_query: dict[str, list[Qrel]] = {}
    for qrel in judged:
        of_query.setdefault(qrel.query_id, []).append(qrel)
    write_judged(folder, subset.split, ((query, of_query[query.id]) for query in queries))


class Judged(NamedTuple):
    """Queries of a dataset and their judgements."""

    queries: list[Query]
    qrels: list[Qrel]


def judged(source: str, split: str, count: int | None) -> Judged:
    """Return the queries that a split judges, or a count of them drawn at random."""
    queries = list(read_queries(source, split))
    if count is not None and count < len(queries):
        rows = sorted(np.random.default_rng(0).permutation(len(queries))[:count])
        queries = [queries[row] for row in rows]
    names = {query.id for query in queries}
    return Judged(queries, [q for q in read_qrels(source, split) if q.query_id in names])


def check_dataset(name: str, split: str, sources: Mapping[str, Source]) -> None:
    """Check that a dataset's name is known, without its data.

    Raises:
        InputError: neither ``datasets.yaml`` nor ir_datasets knows it.
    """
    source = source_of(name, sources)
    if source is not None and source.subset is not None:
        check_dataset(source.subset.source, source.subset.split, sources)
        return
    if source is not None and source.clustered is not None:
        inside = name.partition("/")[2]
        if inside not in SPLITS:
            raise InputError(f"dataset {name!r}: clustered sets are {', '.join(SPLITS)}")
        check_dataset(source.clustered.source, source.clustered.split, sources)
        return
    known = ir_datasets_name(name, sources)
    if known is None or find_spec("ir_datasets") is None:
        return
    if known not in import_module("ir_datasets").registry:
        raise InputError(f"dataset {name!r}: neither datasets.yaml nor ir_datasets knows {known!r}")


def check_tasks(names: Sequence[str]) -> None:
    """Check that MTEB, if installed, knows these tasks. Raises InputError for an unknown task."""
    if not names or find_spec("mteb") is None:
        return
    tasks = _tasks()
    for name in names:
        if name not in tasks:
            raise InputError(f"MTEB knows no task {name!r}")


@cache
def _tasks() -> frozenset[str]:
    get_tasks: Callable[..., Any] = import_module("mteb").get_tasks
    return frozenset(task.metadata.name for task in get_tasks(exclude_superseded=False))
