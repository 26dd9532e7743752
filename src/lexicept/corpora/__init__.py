"""Corpora, queries and judgements, read as a stream from files, folders and known datasets."""

import os
import re
from collections.abc import Iterable, Iterator
from functools import partial

from lexicept.corpora import beir, ir_datasets_reader, json_lines, python_docs, tsv
from lexicept.corpora.budgets import NothingToRead
from lexicept.corpora.files import (
    EXTENSIONS,
    ONE_DOCUMENT,
    RECORDS,
    extension_of,
    read_file,
    read_records,
    within_budget,
)
from lexicept.corpora.folder import KINDS, Folder
from lexicept.corpora.lines import read_lines
from lexicept.corpora.records import Document as Document
from lexicept.corpora.records import DocumentStream, Location, Records, checked, id_of
from lexicept.corpora.records import Passage as Passage
from lexicept.corpora.records import Qrel as Qrel
from lexicept.corpora.records import Query as Query
from lexicept.corpora.skipped import Skipped
from lexicept.errors import InputError

_DOCUMENT_SOURCES = (
    f"python-docs, a BEIR folder, a folder of files, a file ({', '.join(EXTENSIONS)}; records may "
    "end in .gz), a name that ir_datasets knows (such as beir/scifact)"
)
_QUERY_SOURCES = "a BEIR folder, a name that ir_datasets knows (such as beir/scifact)"
_DATASET_PREFIX = "ir_datasets:"


def read_documents(source: str | os.PathLike[str], *, strict: bool = False) -> DocumentStream:
    """Open a corpus with a reader for the source, and return the documents as a stream. A warning
    at the end of the stream names skipped files and documents that can't be read, with the reasons;
    ``strict`` raises the first error. Raises InputError for a source without a reader (now), or if
    no document can be read (while iterating)."""
    name = os.fspath(source)
    skipped = Skipped(name, KINDS)
    return DocumentStream(_read_documents(name, skipped), skipped, strict=strict)


def read_folder(folder: Folder, *, strict: bool = False) -> DocumentStream:
    """Return the documents of a folder's files as a stream; see ``read_documents``."""
    return DocumentStream(folder.documents(), folder.skipped, strict=strict)


def is_folder_of_files(source: str | os.PathLike[str]) -> bool:
    """Return True for a folder that is read file by file: no BEIR folder."""
    name = os.fspath(source)
    return name != "python-docs" and os.path.isdir(name) and beir.corpus_file(name) is None


def read_queries(source: str | os.PathLike[str], split: str = "test") -> Iterator[Query]:
    """Open the judged queries of a BEIR folder or an ir_datasets name. Raises InputError for no
    such source or split, bad judgements (now), or bad queries (while iterating)."""
    judged = {qrel.query_id for qrel in read_qrels(source, split)}
    name = os.fspath(source)
    if os.path.isdir(name):
        records = beir.read_queries(name)
    else:
        records = ir_datasets_reader.read_queries(_dataset(name, _QUERY_SOURCES), split)
    return (query for query in checked(records) if query.id in judged)


def read_query_file(path: str | os.PathLike[str]) -> Iterator[Query]:
    """Open queries without judgements: a .jsonl file, a .tsv file of id and text, or a text file
    with a query per line, whose ids are the lines' numbers. Raises InputError for no such file
    (now), or bad queries (while iterating)."""
    name = os.fspath(path)
    if not os.path.isfile(name):
        raise InputError(f"{name}: no file with queries")
    match extension_of(name):
        case ".jsonl" | ".ndjson":
            return checked(json_lines.read_queries(name))
        case ".tsv":
            return checked(tsv.read_queries(name))
    return (Query(str(location.position), line) for location, line in read_lines(name))


def read_qrels(source: str | os.PathLike[str], split: str = "test") -> Iterator[Qrel]:
    """Open the judgements of a split of a BEIR folder or an ir_datasets name, each pair once.
    Raises InputError for no such source or split (now), or bad judgements, such as two grades of a
    pair (while iterating)."""
    # The split becomes part of a path, so nothing that could leave the folder is let through.
    if not isinstance(split, str) or not re.fullmatch(r"[\w.-]+", split):
        raise InputError(f"bad split {split!r}: a split is a plain name such as test")
    name = os.fspath(source)
    if os.path.isdir(name):
        return _distinct(f"{name} ({split})", beir.read_qrels(name, split))
    dataset = _dataset(name, _QUERY_SOURCES)
    return _distinct(f"{name} ({split})", ir_datasets_reader.read_qrels(dataset, split))


def _distinct(source: str, qrels: Iterable[Qrel]) -> Iterator[Qrel]:
    grades: dict[tuple[str, str], int] = {}
    for qrel in qrels:
        query, document, grade = qrel
        earlier = grades.get((query, document))
        if earlier is None:
            grades[query, document] = grade
            yield qrel
        elif earlier != grade:
            pair = f"query {query!r} and document {document!r}"
            raise InputError(f"{source}: {pair} are judged twice, {earlier} and {grade}")


def _read_documents(source: str, skipped: Skipped) -> Records[Document]:
    if source == "python-docs":
        return python_docs.read_documents()
    if os.path.isdir(source):
        corpus = beir.corpus_file(source)
        if corpus is None:
            return Folder(source, skipped).documents()
        return _only(corpus, json_lines.read_documents(corpus, anonymous=False), skipped)
    if os.path.exists(source):
        if source.lower().endswith(ONE_DOCUMENT):
            return _only(source, read_file(source, id_of(os.path.basename(source))), skipped)
        if extension_of(source) in RECORDS:
            return _only(source, read_records(source), skipped)
    return ir_datasets_reader.read_documents(_dataset(source, _DOCUMENT_SOURCES))


def _only(path: str, records: Records[Document], skipped: Skipped) -> Records[Document]:
    """Yield the records of a source that is one file; an error of the file is the last record's."""
    try:
        yield from within_budget(path, records, skipped)
    except NothingToRead as reason:
        yield Location(path), partial(_raise, InputError(f"{path}: nothing to read: {reason}"))
    except InputError as error:
        yield Location(path), partial(_raise, error)


def _raise(error: InputError) -> Document:
    raise error


def _dataset(source: str, accepted: str) -> str:
    """Return the name by which ir_datasets knows the source."""
    name = source.removeprefix(_DATASET_PREFIX)
    reason = "not a kind of file that is read here"
    if not os.path.exists(source):
        try:
            ir_datasets_reader.load(name)
        except InputError as error:
            reason = f"no such file or folder, and {error}"
        else:
            return name
    raise InputError(f"{source}: {reason}; accepted: {accepted}")
