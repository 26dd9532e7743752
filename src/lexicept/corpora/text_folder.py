"""A folder of .txt and .md files, one document each; front matter of .md files is fields."""

import os
import re
import stat
from collections.abc import Iterator
from functools import partial
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from lexicept.corpora.json_lines import RESERVED
from lexicept.corpora.records import Document, Place, Records, readable
from lexicept.corpora.skipped import Skipped
from lexicept.errors import InputError
from lexicept.storage.yaml_text import parse_yaml

KINDS = ".txt and .md files"
"""The files that are read."""

_FRONT_MATTER = re.compile(r"---[ \t]*\r?\n(.*?)^(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.S | re.M)

# Whitespace and NUL may not stand in ids; % goes too, so that two paths never share an id.
_UNSAFE = re.compile(r"[\s%\x00-\x1f\x7f\udc80-\udcff]")


def read_documents(folder: str, skipped: Skipped) -> Records[Document]:
    """Yield the folder's text files in the order of their paths, which are the ids.

    Args:
        skipped: notes the other files.

    Raises:
        InputError: a folder that cannot be read; from the function of a file, that this can't be
            read or is not UTF-8.
    """
    for name in sorted(_text_files(folder, skipped)):
        path = os.path.join(folder, name)
        yield Place(path), partial(_read, path, name)


def _read(path: str, name: str) -> Document:
    with readable(path), open(path, "rb") as file:
        content = file.read()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 at byte {error.start}: {error.reason}") from error
    document_id = _UNSAFE.sub(_percent, name)
    if not name.lower().endswith(".md"):
        return Document(document_id, text)
    front, text = _split_front_matter(path, text)
    heading, rest = _split_title(text)
    title = front.pop("title", None)
    fields = {key: value for key, value in front.items() if key not in RESERVED}
    if title is None or str(title) == heading:
        return Document(document_id, rest, heading, fields)
    return Document(document_id, text, str(title), fields)


def _text_files(folder: str, skipped: Skipped) -> Iterator[str]:
    def refuse(error: OSError) -> None:
        raise error  # os.walk would skip a folder that it may not list

    with readable(folder):
        for parent, folders, names in os.walk(folder, onerror=refuse):
            inside = PurePath(parent).relative_to(folder)
            for name in folders:
                if os.path.islink(os.path.join(parent, name)):  # it may lead back here
                    skipped.file((inside / name).as_posix(), "links to folders")
            for name in names:
                kind = _kind(os.path.join(parent, name))
                if kind in (".txt", ".md"):
                    yield (inside / name).as_posix()
                else:
                    skipped.file((inside / name).as_posix(), kind)


def _kind(path: str) -> str:
    """Return the extension of a file in lower case, or what a file without one is."""
    extension = os.path.splitext(path)[1].lower()
    try:
        regular = stat.S_ISREG(os.stat(path).st_mode)
    except OSError:  # a broken link: an error where its kind is read
        regular = True
    if not regular:  # reading a pipe or a device may never end
        return "pipes, sockets and devices"
    return extension or "without an extension"


def _percent(match: re.Match[str]) -> str:
    return quote(match[0], errors="surrogateescape")


def _split_front_matter(path: str, markdown: str) -> tuple[dict[str, Any], str]:
    """Return the YAML between lines of --- at the start, if it is a mapping, and the text after it.

    Raises:
        InputError: it is no YAML.
    """
    match = _FRONT_MATTER.match(markdown)
    if match is None:
        return {}, markdown
    try:
        content = parse_yaml(match[1])
    except InputError as error:
        raise InputError(f"{path}: front matter: {error}") from None
    if not isinstance(content, dict):
        return {}, markdown
    return {str(key): value for key, value in content.items()}, markdown[match.end() :].strip()


def _split_title(markdown: str) -> tuple[str, str]:
    """Return the first `# ` heading, and the text without it."""
    lines = markdown.split("\n")
    fenced = False
    for number, line in enumerate(lines):
        if line.startswith(("```", "~~~")):
            fenced = not fenced  # in a code block, "# " starts a comment
        elif line.startswith("# ") and not fenced:
            return line[2:].strip(), "\n".join(lines[:number] + lines[number + 1 :]).strip()
    return "", markdown
