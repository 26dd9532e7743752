"""Keep an index in step with a folder of files."""

from __future__ import annotations

import os
import warnings
from collections.abc import Container, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

from lexicept.checks import checked_arguments
from lexicept.corpora import Document, is_folder_of_files
from lexicept.corpora.folder import INCLUDED, KINDS, UNREAD, Folder, file_of
from lexicept.corpora.records import DocumentStream, readable
from lexicept.corpora.skipped import Skipped
from lexicept.errors import IndexFormatError, InputError, LexiceptWarning
from lexicept.fields.values import parse_date
from lexicept.index import manifest
from lexicept.index.generations import changing, remove_unread
from lexicept.index.reader import IndexReader
from lexicept.index.updates import Changes, apply
from lexicept.pipelines.build import VOCABULARIES, build, index_folders
from lexicept.pipelines.settings import ConceptSettings, Limits
from lexicept.progress import Progress, reporting
from lexicept.storage.files import read_json, sha256


class Synced(NamedTuple):
    """The changes that ``sync`` made."""

    added: int
    """Documents that are new."""
    replaced: int
    """Documents with a changed text, title or field."""
    deleted: int
    """Documents that the folder no longer has."""
    unchanged: int
    """Other documents of the index."""
    skipped: list[tuple[str, str]]
    """Skipped files, each with the reason."""
    errors: list[str]
    """The first errors of unreadable records."""
    num_errors: int
    """Number of all errors."""


@checked_arguments
def sync(
    folder: str | os.PathLike[str],
    index: str | os.PathLike[str],
    *,
    vocabulary: Literal["words", "concepts", "all"] = "all",
    language: str = "en",
    model: str | os.PathLike[str] | None = None,
    concepts: ConceptSettings = ConceptSettings(),
    limits: Limits = Limits(),
    include: Sequence[str] = (),
    strict: bool = False,
    restart: bool = False,
    progress: bool | Progress = False,
) -> Synced:
    """Make an index hold what the files of a folder hold.

    The first time it builds the index; an interrupted build resumes, or starts over if the folder
    has changed since its index was searchable by words. An index that an older lexicept built, and
    this one can't read, is built again, with a warning. Afterwards it reads the files
    whose contents changed, whatever their times say, and in one step adds, replaces and deletes
    documents; interrupted, it leaves the index as it was. A renamed file is a document deleted and
    another added. Files that can't be read are skipped, and their documents in the index stay.
    Documents that were added in other ways stay too, except those with the id of a file.

    Args:
        folder: folder of files, see ``lexicept.build``.
        index: the folder of the index; built if there is none.
        vocabulary: what to index, for a new index, as are the parameters below; see
            ``lexicept.build``. An index that is built again keeps its vocabulary and language.
        language: language of the stop words and the stemmer (ISO 639-1 code).
        model: a saved concept model, a folder or a Hugging Face name.
        concepts: the source of the concepts.
        limits: weights and limits of the concepts.
        include: patterns of further files to read, see ``lexicept.build``; by default those that
            the index was made with.
        strict: stop at the first file or document that can't be read; the index stays as it was.
        restart: discard an interrupted build of a new index instead of resuming it.
        progress: True shows a line on standard error; a callback gets the reports.

    Raises:
        InputError: no such folder, a BEIR folder, no documents in it, an unfinished build of other
            documents at ``index``, or another process is changing the index.
        IndexFormatError: something else is at ``index``, a damaged index, or one that a newer
            lexicept built.

    Examples:
        >>> synced = lexicept.sync("pets", "synced.index")
        >>> synced.added, synced.deleted
        (3, 0)
    """
    if not is_folder_of_files(folder):
        problem = "has a corpus.jsonl, a collection to build from" if os.path.isdir(folder) else ""
        raise InputError(f"{os.fspath(folder)}: {problem or 'no such folder'}")
    skipped = Skipped(os.fspath(folder), KINDS, quiet=True)  # the result names them
    started, path = Path(index).exists(), manifest.resolved(index)
    source = Folder(folder, skipped, index_folders(index), include or _included(path))
    if (older := manifest.older_version(path)) is not None:
        vocabulary, language = _choices_of(path, vocabulary, language)
        note = f"version {older} of an older lexicept: built again from {os.fspath(folder)} alone"
        warnings.warn(f"{path}: {note}", LexiceptWarning, stacklevel=3)
    if not started or older is not None or manifest.missing_from(path):
        with build(
            source,
            index,
            vocabulary=vocabulary,
            language=language,
            model=model,
            concepts=concepts,
            limits=limits,
            strict=strict,
            overwrite=older is not None,
            restart=restart or (started and older is None and _differs(path, source)),
            progress=progress,
        ) as built:
            return Synced(len(built), 0, 0, 0, **_skipped(source))
    with changing(index) as reader, reporting(progress) as report:
        update = _Update(reader, source, report)
        changed = apply(reader, Changes(update.documents(strict), update, source.checksums), report)
        unchanged = reader.num_documents - changed.replaced - changed.deleted
    remove_unread(reader.path)
    return Synced(**changed._asdict(), unchanged=unchanged, **_skipped(source))


def _skipped(source: Folder) -> dict[str, Any]:
    skipped = source.skipped
    return {"skipped": skipped.files, "errors": skipped.errors, "num_errors": skipped.num_errors}


class _Update(Container[str]):
    """Changes of an index to what a folder holds, and the ids of documents to delete.

    Args:
        source: the folder; its ``checksums`` become those of the new index.
    """

    def __init__(self, index: IndexReader, source: Folder, progress: Progress) -> None:
        self.index, self.source = index, source
        self.known = manifest.read_files(index.folder) or {}
        self.files = source.files()
        indexed = {file_of(name) for name in index.passages.names()}
        self.changed: dict[str, str] = {}
        for done, (name, path) in enumerate(self.files.items(), 1):
            checksum = self.known.get(name, UNREAD)
            if checksum != UNREAD and name in indexed and _checksum(path) == checksum:
                source.checksums[name] = checksum
            else:
                self.changed[name] = path
            progress("files", done, len(self.files))
        self.same: set[str] = set()

    def documents(self, strict: bool) -> DocumentStream:
        """Return the documents of changed files that differ from the documents of the index."""
        records, skipped = self.source.documents(self.changed), self.source.skipped
        return DocumentStream(records, skipped, strict=strict, leave_out=self._is_same)

    def _is_same(self, document: Document) -> bool:
        if document.id not in self.index:
            return False
        stored = self.index.document(document.id)
        if same := self._comparable(stored) == self._comparable(document):
            self.same.add(document.id)
        return same

    def _comparable(self, document: Document) -> Document:
        """Return a document with fields and anchors as an index stores them."""
        types, fields = self.index.fields.types, {}
        for name, value in document.fields.items():
            values = value if isinstance(value, list) else [value]
            is_date = name in types and types[name].name == "date"
            fields[name] = [parse_date(text) for text in values] if is_date else values
        passages = tuple(
            passage._replace(anchor=passage.anchor or str(position))
            for position, passage in enumerate(document.passages, 1)
        )
        return document._replace(fields=fields, passages=passages)

    def __contains__(self, document_id: object) -> bool:
        """Return True if the folder no longer has a document; called after the reading."""
        name = file_of(str(document_id))
        if name not in self.known or document_id in self.same:
            return False
        if name not in self.files:
            return True
        return name in self.changed and self.source.checksums.get(name) != UNREAD


def _choices_of(index: Path, vocabulary: Any, language: str) -> tuple[Any, str]:
    """Return the vocabulary and the language that an older index was built with, or the given
    ones where it does not tell."""
    with suppress(IndexFormatError, KeyError, TypeError):
        stated = manifest.stated_manifest(index)
        names = tuple(entry["name"] for entry in stated["vocabularies"])
        vocabulary = {VOCABULARIES[v]: v for v in ("words", "concepts")}.get(names, "all")
        language = read_json(index / stated["generation"] / "words" / "tokenizer.json")["language"]
    return vocabulary, language


def _included(index: Path) -> list[str]:
    """Return the patterns of further files that an index was made with; none without an index."""
    checksums: dict[str, str] = {}
    with suppress(IndexFormatError, KeyError, TypeError):
        checksums = manifest.read_files(index / manifest.stated_manifest(index)["generation"]) or {}
    return checksums[INCLUDED].split("\n") if INCLUDED in checksums else []


def _differs(index: Path, source: Folder) -> bool:
    """Return True if a folder has other files, or files of other contents, than an index. Raises
    InputError for an index of other documents than a folder's."""
    checksums = manifest.read_files(index / manifest.read_manifest(index)["generation"])
    if checksums is None:
        raise InputError(f"{index}: an unfinished build of other documents; finish or delete it")
    checksums.pop(INCLUDED, None)
    files = source.files()
    source.skipped.files.clear()  # the build notes them again
    return checksums.keys() != files.keys() or any(
        checksum not in (UNREAD, _checksum(files[name])) for name, checksum in checksums.items()
    )


def _checksum(path: str) -> str | None:
    """Return the SHA-256 of a file; None for an unreadable file."""
    try:
        with readable(path):
            return sha256(Path(path))
    except InputError:
        return None
