"""Files by kind: one document, which is cut into passages if long, or many documents."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from lexicept.corpora import comma_separated, json_lines, tables, tsv
from lexicept.corpora.budgets import LARGEST, MOST_SECONDS, Budget, NothingToRead
from lexicept.corpora.epub import parse_epub
from lexicept.corpora.html import parse_html
from lexicept.corpora.mail import parse_mail, read_mailbox
from lexicept.corpora.markdown import parse_markdown, parse_notebook
from lexicept.corpora.markup import EXTENSIONS as _MARKUP
from lexicept.corpora.markup import parse_markup
from lexicept.corpora.office import EXTENSIONS as _OFFICE
from lexicept.corpora.office import parse_office
from lexicept.corpora.passages import TOO_LONG, Parsed, Section, with_passages
from lexicept.corpora.pdf import parse_pdf
from lexicept.corpora.records import MOST_CHARACTERS, Document, Location, Records, id_of, readable
from lexicept.corpora.restructured import parse_restructured
from lexicept.corpora.skipped import Skipped
from lexicept.corpora.text_encoding import BinaryError, decode_text

Parser: TypeAlias = Callable[[str, bytes], Parsed]


def _of_text(parse: Callable[[str], Parsed]) -> Parser:
    return lambda _, raw: parse(decode_text(raw))


_PLAIN = _of_text(lambda text: Parsed(text, "", (Section(text),)))
_PARSERS: dict[str, Parser] = {
    **dict.fromkeys((".txt", ".text"), _PLAIN),
    **dict.fromkeys((".md", ".markdown"), _of_text(parse_markdown)),
    **dict.fromkeys((".rst", ".rest"), _of_text(parse_restructured)),
    **dict.fromkeys((".html", ".htm", ".xhtml"), parse_html),
    ".ipynb": _of_text(parse_notebook),
    ".pdf": parse_pdf,
    **dict.fromkeys(_OFFICE, parse_office),
    ".epub": parse_epub,
    ".eml": lambda path, raw: parse_mail(path, raw, parse_attachment),
    **{extension: _of_text(partial(parse_markup, extension)) for extension in _MARKUP},
}
ONE_DOCUMENT = tuple(_PARSERS)
"""Extensions of files that are one document."""

RECORDS: dict[str, Callable[[str], Records[Document]]] = {
    ".csv": comma_separated.read_documents,
    ".tsv": tsv.read_documents,
    ".json": json_lines.read_json,
    ".jsonl": json_lines.read_documents,
    ".ndjson": json_lines.read_documents,
    ".parquet": tables.read_parquet,
    ".mbox": lambda path: read_mailbox(path, parse_attachment),
}
"""Readers of files with many documents, by extension."""

EXTENSIONS = (*ONE_DOCUMENT, *RECORDS)
"""Extensions of readable files."""

NEWER = {
    **dict.fromkeys((".doc", ".docm", ".dot", ".dotx", ".rtf", ".wpd", ".pages"), ".docx"),
    **dict.fromkeys((".ppt", ".pps", ".ppsx", ".pptm", ".key"), ".pptx"),
    **dict.fromkeys((".xls", ".xlsb", ".xlsm", ".numbers"), ".xlsx"),
    **{".mobi": ".epub", ".msg": ".eml"},
}
"""Readable kinds that programs save files of other kinds as."""

SOURCE_CODE = frozenset((
    ".bat", ".c", ".cc", ".clj", ".cpp", ".cs", ".css", ".dart", ".ex", ".go", ".h", ".hpp", ".hs",
    ".java", ".jl", ".js", ".jsx", ".kt", ".lua", ".m", ".php", ".pl", ".ps1", ".py", ".r", ".rb",
    ".rs", ".scala", ".sh", ".sql", ".swift", ".toml", ".ts", ".tsx", ".vue", ".yaml", ".yml",
))  # fmt: skip
"""Extensions of files that are read where they are asked for."""


def extension_of(path: str) -> str:
    """Return the extension of a file in lower case, without gzip's."""
    return os.path.splitext(path.lower().removesuffix(".gz"))[1]


def within_budget(path: str, records: Records[Document], skipped: Skipped) -> Records[Document]:
    """Yield the records of a file within its budget; ``skipped`` notes what of the file is ignored.

    Raises NothingToRead for a file without a document, or over its budget, else InputError for
    whatever goes wrong. The functions of the records raise InputError.
    """

    def read_record(location: Location, read: Callable[[], Document]) -> Document:
        try:
            return budget.run(location, read)
        except NothingToRead as reason:
            raise location.error(str(reason)) from None

    with readable(path):
        budget = Budget(path, MOST_SECONDS if path.lower().endswith(ONE_DOCUMENT) else math.inf)
    try:
        while (record := budget.run(path, partial(next, records, None))) is not None:
            budget.check_record()
            location, read = record
            yield location, partial(read_record, location, read)
    finally:
        skipped.flaws += [(path, flaw) for flaw in budget.flaws]


def read_file(path: str, name: str) -> Records[Document]:
    """Yield the documents of a file. Errors are those of ``read_one``, or of the file's reader.

    ``name`` is the id of the only document, or the beginning of the ids of several.
    """
    extension = extension_of(path)
    if extension not in RECORDS:
        document = read_one(path, name)
        yield Location(path), lambda: document
        return
    empty = True
    for location, read in RECORDS[extension](path):
        empty = False
        yield location, partial(_within, name, read)
    if empty:
        raise NothingToRead("empty")


def read_records(path: str) -> Records[Document]:
    """Yield the documents of a file with many; ids with whitespace or NUL are encoded (``id_of``),
    others may be those of judgements."""
    records = RECORDS[extension_of(path)](path)
    return ((location, partial(_with_id, read)) for location, read in records)


def _with_id(read: Callable[[], Document]) -> Document:
    document = read()
    encoded = id_of(document.id) if re.search(r"[\s\0]", document.id) else document.id
    return document._replace(id=encoded)


def read_one(path: str, name: str) -> Document:
    """Read a file that is one document. Raises NothingToRead for an empty file, no text, encrypted
    or the like. Raises InputError for an unreadable file."""
    with readable(path), open(path, "rb") as file:
        raw = file.read(LARGEST + 1)
    if len(raw) > LARGEST:
        raise NothingToRead(f"larger than {LARGEST / 2**20:.0f} MiB")
    if not raw.strip():
        raise NothingToRead("empty")
    try:
        parsed = _PARSERS.get(extension_of(path), _PLAIN)(path, raw)
    except BinaryError:
        raise NothingToRead("binary") from None
    if len(parsed.text) > MOST_CHARACTERS:
        raise NothingToRead(TOO_LONG)
    if not parsed.text.strip() and not parsed.title.strip():
        raise NothingToRead("empty")
    return with_passages(Document(name, parsed.text, parsed.title, parsed.fields), parsed.sections)


def parse_attachment(name: str, raw: bytes) -> Parsed:
    """Parse an attachment by its name's extension. Raises NothingToRead for an extension without a
    parser of single documents."""
    extension = os.path.splitext(name.lower())[1]
    if extension not in _PARSERS:
        raise NothingToRead(extension or "without an extension")
    return _PARSERS[extension](name, raw)


def _within(name: str, read: Callable[[], Document]) -> Document:
    """Read a record, with the file's id before the record's; cut a long text without passages."""
    document = read()
    document = document._replace(id=f"{name}#{id_of(document.id)}")
    return document if document.passages else with_passages(document, (Section(document.text),))
