"""The data of recipes: folders, subsets of folders, and names in ir_datasets and MTEB."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from lexicept.checks import Count, Items, Share, from_mapping, settings
from lexicept.corpora import Document, Qrel, Query, read_documents, read_qrels, read_queries
from lexicept.corpora.pseudo_queries import write_judged
from lexicept.errors import InputError, LexiceptError
from lexicept.progress import Progress, silent
from lexicept.storage.files import read_json, replace_file, write_json
from lexicept.storage.manifest import describe
from lexicept.storage.yaml_text import read_yaml
from reproduction.clustered_sets import SPLITS, ClusteringSettings, clustered_sets

Item = TypeVar("Item", Document, Query)


class MissingDataError(InputError):
    """A missing dataset or model; the message says how to get it."""


@settings
class Subset:
    """A random sample of a collection, drawn once."""

    source: str
    split: str
    """Split of the judgements, in the sample too."""
    documents: Count
    queries: Count
    titles: Items[Share] = ()
    """A range of the titles in random order, such as [0.2, 1]: documents of other titles are not
    drawn, nor are texts and questions that the source has twice. Parts with disjoint ranges have no
    title, text or question in common."""

    def __post_init__(self) -> None:
        if self.titles and (len(self.titles) != 2 or self.titles[0] >= self.titles[1]):
            raise InputError(f"titles are two rising shares, not {list(self.titles)}")


@settings
class Source:
    """The source of a folder of the data."""

    get: str
    """Description of the source and of the folder's content."""
    ir_datasets: str | None = None
    """Name of the same documents, queries and judgements in ir_datasets; of a folder of folders,
    the beginning of the names."""
    subset: Subset | None = None
    """The sample of another folder, made when needed."""
    clustered: ClusteringSettings | None = None
    """The collection of the clustered sets in this folder, made when needed."""
    ignore_identical_ids: Items[str] = ()
    """The collections in this folder with documents as queries: a hit with the query's id is left
    out, as in BEIR's evaluation."""

    @property
    def origin(self) -> Subset | ClusteringSettings | None:
        """The collection that this folder is made of."""
        return self.subset or self.clustered


@dataclass(frozen=True)
class Data:
    """The folders of a run's data.

    Attributes:
        folder: the user's data; None leaves only what ir_datasets can fetch.
        sources: see ``load_sources``.
        work: folder of subsets, and of the checksums of the user's files at the first run.
        progress: told of sets that take long to make.
    """

    folder: Path | None
    sources: Mapping[str, Source]
    work: Path
    progress: Progress = silent

    def find(self, name: str) -> str:
        """Return a folder, or a name in ir_datasets.

        Raises:
            MissingDataError: neither, with what to do about it.
        """
        if (path := self._folder_of(name)) is not None:
            return str(path)
        source = source_of(name, self.sources)
        if source is not None and source.origin is not None:
            return self._made(name, source.origin)
        public_name = ir_datasets_name(name, self.sources)
        if public_name is not None and find_spec("ir_datasets") is not None:
            return public_name
        place = "no --data folder was given" if self.folder is None else f"not in {self.folder}"
        how = "pip install 'lexicept[ir-datasets]'" if source is None else source.get
        raise MissingDataError(f"dataset {name}: {place}. {how}")

    def place(self, name: str) -> str:
        """Return a folder of the data, or else the name itself, of a model on the hub.

        Raises:
            MissingDataError: a dataset of ``datasets.yaml`` that is missing.
        """
        is_data = self._folder_of(name) is not None or source_of(name, self.sources) is not None
        return self.find(name) if is_data else name

    def ignores_identical_ids(self, name: str) -> bool:
        """Return True if a hit with the query's id is left out in this dataset."""
        return ignores_identical_ids(name, self.sources)

    def check_unchanged(self, name: str) -> None:
        """Compare the user's files of a dataset or model with the checksums of the first run.

        Results and models are stored under the names of the data.

        Raises:
            InputError: the files have changed.
        """
        source = source_of(name, self.sources)
        if (path := self._folder_of(name)) is None:
            if source is not None and source.origin is not None:
                self.check_unchanged(source.origin.source)
            return
        record = self.work / "sources" / f"{name}.json"
        paths = [path] if path.is_file() else sorted(path.rglob("*"))
        files = describe((file for file in paths if file.is_file()), path.parent)
        if not record.exists():
            record.parent.mkdir(parents=True, exist_ok=True)
            write_json(record, files)
        elif read_json(record) != files:
            raise InputError(
                f"{path}: its files have changed since results were made from them; put them back, "
                "or use another --out"
            )

    def _folder_of(self, name: str) -> Path | None:
        path = None if self.folder is None else self.folder / name
        return path if path is not None and path.exists() else None

    def _made(self, name: str, origin: Subset | ClusteringSettings) -> str:
        """Return the folder of a sample or of a clustered set, made if absent."""
        path = self.work / "datasets" / name
        if isinstance(origin, ClusteringSettings):
            _check_clustered(name)
            path = path.parent
            if not path.exists():
                source = self.find(origin.source)
                with fetching(origin.source, self):
                    clustered_sets(replace(origin, source=source), path, self.progress)
            return str(self.work / "datasets" / name)
        if not (path / "queries.jsonl").exists():  # the file that is written last
            source = self.find(origin.source)
            with fetching(origin.source, self):
                write_subset(source, origin, path)
        return str(path)


def source_of(name: str, sources: Mapping[str, Source]) -> Source | None:
    """Return the source of a folder, or of the containing folder."""
    return sources.get(name) or sources.get(name.partition("/")[0])


def ir_datasets_name(name: str, sources: Mapping[str, Source]) -> str | None:
    """Return the name of a dataset in ir_datasets, if ``datasets.yaml`` does not exclude one."""
    source = source_of(name, sources)
    if source is None:
        return name
    if source.ir_datasets is None:
        return None
    folder = name if name in sources else name.partition("/")[0]
    return source.ir_datasets + name.removeprefix(folder)


def ignores_identical_ids(name: str, sources: Mapping[str, Source]) -> bool:
    """Return True if a hit with the query's id is left out in a dataset."""
    folder, _, collection = name.partition("/")
    return folder in sources and collection in sources[folder].ignore_identical_ids


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
    """Turn errors of fetching or reading a dataset into a message with the dataset's name.

    Raises:
        MissingDataError: any other error than lexicept's own and a full disk, which pass.
    """
    try:
        yield
    except LexiceptError:
        raise
    except Exception as error:  # ir_datasets and what it downloads with raise many kinds
        if full_disk(error):
            raise
        source = source_of(name, data.sources)
        how = f" {source.get}" if source is not None else ""
        reason = " ".join(str(error).split())[:300]
        raise MissingDataError(f"dataset {name} can't be fetched: {reason}.{how}") from None


def full_disk(error: Exception) -> bool:
    """Return True for an error of a full disk."""
    return isinstance(error, OSError) and error.errno is not None and error.filename is None


def write_subset(source: str, subset: Subset, folder: Path) -> None:
    """Write a random sample of the documents, and of the queries about them, as a BEIR folder."""
    random = np.random.default_rng(0)
    documents, queries = list(read_documents(source)), list(read_queries(source, subset.split))
    if subset.titles:
        queries = _unrepeated(queries)
        documents = _of_titles(_unrepeated(documents), subset.titles)
    asked = {query.id for query in queries}
    drawn = sorted(random.permutation(len(documents))[: subset.documents])
    sample = [documents[number] for number in drawn]
    ids = {document.id for document in sample}
    qrels: dict[str, list[Qrel]] = {}
    for qrel in read_qrels(source, subset.split):
        if qrel.document_id in ids and qrel.query_id in asked:
            qrels.setdefault(qrel.query_id, []).append(qrel)
    names = sorted(qrels)
    drawn_names = {names[number] for number in random.permutation(len(names))[: subset.queries]}
    lines = [json.dumps({"_id": d.id, "title": d.title, "text": d.text}) + "\n" for d in sample]
    replace_file(folder / "corpus.jsonl", "".join(lines).encode())
    judged_queries = ((query, qrels[query.id]) for query in queries if query.id in drawn_names)
    write_judged(folder, subset.split, judged_queries)


def _unrepeated(items: Sequence[Item]) -> list[Item]:
    """Return documents or queries whose text no other has, without regard to case and marks."""
    count = Counter(_words(item.text) for item in items)
    return [item for item in items if count[_words(item.text)] == 1]


def _of_titles(documents: Sequence[Document], bounds: Sequence[float]) -> list[Document]:
    """Return the documents of a range of the titles in random order."""
    titles = sorted({_words(document.title) for document in documents})
    order = np.random.default_rng(0).permutation(len(titles))
    first, last = (round(bound * len(titles)) for bound in bounds)
    drawn = {titles[number] for number in order[first:last]}
    return [document for document in documents if _words(document.title) in drawn]


def _words(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower()))


class Judged(NamedTuple):
    """Queries of a dataset and their judgements."""

    queries: list[Query]
    qrels: list[Qrel]

    @property
    def ids(self) -> list[str]:
        return [query.id for query in self.queries]

    @property
    def texts(self) -> list[str]:
        return [query.text for query in self.queries]


def judged(source: str, split: str, count: int | None = None) -> Judged:
    """Return the queries judged in a split, or a count of them drawn at random."""
    queries = list(read_queries(source, split))
    if count is not None and count < len(queries):
        drawn = sorted(np.random.default_rng(0).permutation(len(queries))[:count])
        queries = [queries[number] for number in drawn]
    names = {query.id for query in queries}
    return Judged(queries, [q for q in read_qrels(source, split) if q.query_id in names])


def check_dataset(name: str, sources: Mapping[str, Source]) -> None:
    """Check a dataset's name, without the data.

    Raises:
        InputError: neither ``datasets.yaml`` nor ir_datasets has the name.
    """
    source = source_of(name, sources)
    if source is not None and source.origin is not None:
        if source.clustered is not None:
            _check_clustered(name)
        check_dataset(source.origin.source, sources)
        return
    public_name = ir_datasets_name(name, sources)
    if public_name is None or find_spec("ir_datasets") is None:
        return
    if public_name not in import_module("ir_datasets").registry:
        raise InputError(
            f"dataset {name!r}: neither datasets.yaml nor ir_datasets knows {public_name!r}"
        )


def _check_clustered(name: str) -> None:
    if name.partition("/")[2] not in SPLITS:
        raise InputError(f"dataset {name!r}: clustered sets are {', '.join(SPLITS)}")


def check_tasks(names: Sequence[str]) -> None:
    """Check names of tasks, if MTEB is installed. Raises InputError for an unknown task."""
    if names and find_spec("mteb") is not None:
        for name in names:
            if name not in _tasks():
                raise InputError(f"MTEB knows no task {name!r}")


@cache
def _tasks() -> frozenset[str]:
    get_tasks: Callable[..., Any] = import_module("mteb").get_tasks
    return frozenset(task.metadata.name for task in get_tasks(exclude_superseded=False))
