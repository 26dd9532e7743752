"""A folder of .txt and .md files, one document each."""

import os
import re
from collections.abc import Iterator
from pathlib import PurePath
from urllib.parse import quote

from lexicept.corpora.records import Document, Place, readable
from lexicept.errors import InputError

# Whitespace and NUL may not stand in ids; % goes too, so that two paths never share an id.
_UNSAFE = re.compile(r"[\s%\x00-\x1f\x7f\udc80-\udcff]")


def read_documents(folder: str) -> Iterator[tuple[Place, Document]]:
    """Yield the folder's text files in the order of their paths, which are the ids.

    Raises:
        InputError: a file or folder that cannot be read, or a file that is not UTF-8.
    """
    for name in sorted(_text_files(folder)):
        path = os.path.join(folder, name)
        with readable(path), open(path, "rb") as file:
            content = file.read()
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise InputError(f"{path}: not UTF-8 at byte {error.start}: {error.reason}") from error
        title, text = _split_title(text) if name.lower().endswith(".md") else ("", text)
        yield Place(path), Document(_UNSAFE.sub(_percent, name), text, title)


def _text_files(folder: str) -> Iterator[str]:
    def refuse(error: OSError) -> None:
        raise error  # os.walk would skip a folder that it may not list

    with readable(folder):
        for parent, _, names in os.walk(folder, onerror=refuse):
            for name in names:
                if name.lower().endswith((".txt", ".md")):
                    yield PurePath(parent, name).relative_to(folder).as_posix()


def _percent(match: re.Match[str]) -> str:
    return quote(match[0], errors="surrogateescape")


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
