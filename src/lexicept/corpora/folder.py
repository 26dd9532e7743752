"""A folder of files: texts, Markdown, HTML and PDF are a document each, tables and JSON many."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path, PurePath

from lexicept.corpora.budgets import LARGEST, NothingToRead
from lexicept.corpora.files import (
    EXTENSIONS,
    NEWER,
    ONE_DOCUMENT,
    RECORDS,
    SOURCE_CODE,
    extension_of,
    read_file,
    within_budget,
)
from lexicept.corpora.records import FOLDER_FIELD, Document, Location, Records, id_of, readable
from lexicept.corpora.skipped import UNREADABLE, Skipped, UnreadFileError
from lexicept.errors import InputError
from lexicept.fields.values import plain
from lexicept.storage.files import sha256

KINDS = f"{', '.join(EXTENSIONS)} files"
"""The readable files, in words."""

UNREAD = ""
"""In place of the checksum of an unreadable file, which is tried again next time."""

INCLUDED = "#include"
"""In place of a file's id, before the patterns of further files in a list of checksums."""


class Folder:
    """The files of a folder and of the folders inside.

    Hidden files and folders (named with a dot first), links to folders, which may lead back, links
    to files outside, and the folders ``without``, such as the index itself, are left out.
    ``skipped`` notes the reasons. Files of other kinds whose paths match a pattern in ``include``
    are read as text.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        skipped: Skipped,
        without: Collection[str | os.PathLike[str]] = (),
        include: Sequence[str] = (),
    ) -> None:
        self.path, self.skipped = os.fspath(path), skipped
        self._without = {os.path.realpath(folder) for folder in without}
        try:
            plain(include)
        except ValueError as error:  # the list of checksums, which has the patterns, is UTF-8
            raise InputError(f"include: {error}") from None
        self._include = tuple(include)
        self.checksums: dict[str, str] = {INCLUDED: "\n".join(include)} if include else {}
        """The SHA-256 of each file by id; ``UNREAD`` after errors, or without a parser."""

    def files(self) -> dict[str, str]:
        """Return the paths of the files to read by id, sorted. Raises InputError if unreadable."""
        return {id_of(name): os.path.join(self.path, name) for name in sorted(self._names())}

    def documents(self, files: dict[str, str] | None = None) -> Records[Document]:
        """Yield the documents of files, by default of all files, one file after the other; the id
        is the file's, or ``FILE#ID`` with the id or number in the file. The field ``folder`` has
        the folders inside this folder that the file is in. The function of a document raises
        InputError for an unreadable document, UnreadFileError for a file without any."""
        for name, path in (self.files() if files is None else files).items():
            errors, inside = self.skipped.num_errors, os.path.relpath(path, self.path)
            yielded = False
            try:
                with readable(path):
                    if os.path.getsize(path) > LARGEST and extension_of(path) not in RECORDS:
                        raise NothingToRead(f"larger than {LARGEST / 2**20:.0f} MiB")
                    checksum = sha256(Path(path))
                parents = _parents(inside)
                for location, read in within_budget(path, read_file(path, name), self.skipped):
                    yield location, partial(_with_folders, parents, read)
                    yielded = True
                complete = self.skipped.num_errors == errors
                self.checksums[name] = checksum if complete else UNREAD
            except NothingToRead as reason:
                if yielded:  # the rest of the file is unread
                    self.checksums[name] = UNREAD
                yield Location(path), partial(_raise, path, inside, str(reason))
            except InputError as error:
                self.checksums[name] = UNREAD
                damage = str(error).removeprefix(path).lstrip(",: ")
                yield Location(path), partial(_raise, path, inside, f"{UNREADABLE}: {damage}")

    def _names(self) -> Iterator[str]:
        def refuse(error: OSError) -> None:
            raise error  # os.walk would skip a folder that it may not list

        root = os.path.realpath(self.path)
        with readable(self.path):
            for parent, folders, names in os.walk(self.path, onerror=refuse):
                inside = PurePath(parent).relative_to(self.path)
                # ``os.walk`` enters the folders that stay in its list.
                folders[:] = [
                    name
                    for name in folders
                    if self._keeps(inside / name, self._reason(os.path.join(parent, name), name))
                ]
                for name in names:
                    path = (inside / name).as_posix()
                    # With a slash before it, **/ stands for no folder, too.
                    forms = ((form, p) for form in (path, f"/{path}") for p in self._include)
                    included = any(fnmatchcase(form, pattern) for form, pattern in forms)
                    reason = _skip_reason(os.path.join(parent, name), name, root, included)
                    if self._keeps(inside / name, reason):
                        yield path

    def _keeps(self, path: PurePath, reason: str | None) -> bool:
        """Return True without a reason to leave a file or folder out; note the reason."""
        if reason is not None:
            self.skipped.files.append((path.as_posix(), reason))
        return reason is None

    def _reason(self, path: str, name: str) -> str | None:
        """Return the reason to leave a folder out; None for a readable folder."""
        if os.path.realpath(path) in self._without:
            return "an index"
        if os.path.islink(path):
            return "links to folders"
        return "hidden" if name.startswith(".") else None


def _parents(inside: str) -> list[str]:
    """Return the folders of a file's path, the outermost first: of a/b/c, a and a/b."""
    path = inside.encode("utf-8", "replace").decode()
    return [parent.as_posix() for parent in reversed(PurePath(path).parents[:-1])]


def _with_folders(parents: list[str], read: Callable[[], Document]) -> Document:
    """Read a document and add the field of folders; a field of that name remains, as texts."""
    document = read()
    try:
        given = plain(document.fields.get(FOLDER_FIELD))
    except ValueError:  # the check of all fields names the document
        return document
    if given is None and not parents:
        return document
    value = parents if given is None else given
    texts = [*map(str, value)] if isinstance(value, list) else str(value)
    return document._replace(fields={**document.fields, FOLDER_FIELD: texts})


def file_of(document_id: str) -> str:
    return document_id.partition("#")[0]


def _skip_reason(path: str, name: str, root: str, included: bool) -> str | None:
    """Return the reason to skip a file: hidden, no plain file, or its type; None for a readable or
    ``included`` file."""
    if name.startswith("."):
        return "hidden"
    if os.path.islink(path):
        target = os.path.realpath(path)
        if not target.startswith(os.path.join(root, "")):
            return "links to the outside"
        if not os.path.exists(target):
            return "broken links"
    with suppress(FileNotFoundError):  # a file that goes meanwhile
        if not stat.S_ISREG(os.stat(path).st_mode):  # reading a pipe or a device may never end
            return "pipes, sockets and devices"
    extension = extension_of(name)
    zipped = name.lower().endswith(".gz") and extension in ONE_DOCUMENT
    if included or (extension in EXTENSIONS and not zipped):
        return None
    extension = os.path.splitext(name)[1].lower()
    if extension in SOURCE_CODE:
        return f"{extension} (which --include '*{extension}' reads)"
    if extension in NEWER:
        return f"{extension} (to be saved as {NEWER[extension]})"
    return extension or "without an extension"


def _raise(path: str, name: str, reason: str) -> Document:
    raise UnreadFileError(path, name, reason)
