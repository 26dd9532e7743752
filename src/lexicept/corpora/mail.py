"""Mails: a file each (.eml), or many in a mailbox (.mbox)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import datetime
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from email.utils import parsedate_to_datetime
from functools import partial
from itertools import chain
from typing import Any

from lexicept.corpora.budgets import LARGEST, NothingToRead, check_time, note
from lexicept.corpora.html import parse_html
from lexicept.corpora.lines import open_bytes
from lexicept.corpora.passages import Parsed, Section, with_passages
from lexicept.corpora.records import Document, Location, Records
from lexicept.corpora.text_encoding import BinaryError, decode_text
from lexicept.errors import message_of
from lexicept.sanitize import one_line

MOST_PARTS = 1_000
"""Most parts of a mail, in one another or side by side."""

FORMS = ("text/plain", "text/html")
"""The forms of a text that are read, the preferred first."""

_END = b"From the end\n"
"""A line in place of the one before the next mail."""

ReadAttachment = Callable[[str, bytes], Parsed]
"""Reads an attachment by its name and bytes; raises NothingToRead for an unreadable one."""


def parse_mail(path: str, raw: bytes, attachment: ReadAttachment) -> Parsed:
    """Parse a mail: the subject is the title, sender, recipients and date are fields, and the text,
    else the HTML, is the text; attachments are sections with their names as titles.

    Raises NothingToRead for a file that is no mail.
    """
    try:
        # A mail of thousands of mails in one another overflows Python's stack.
        mail = message_from_bytes(raw, policy=default)
        if not {"from", "subject", "date", "to", "received"} & {name.lower() for name in mail}:
            raise NothingToRead("no mail: headers are missing")
        sections = list(_sections(path, mail, attachment))
    except RecursionError:
        raise NothingToRead("too many parts inside one another") from None
    fields = {"sender": _header(mail, "from"), "to": _header(mail, "to"), "date": _date(mail)}
    stated = {name: value for name, value in fields.items() if value}
    return Parsed.of(sections, _header(mail, "subject"), stated)


def _header(mail: EmailMessage, name: str) -> str:
    """Return a header in one line; nothing if it is absent or damaged."""
    try:
        return one_line(str(mail[name] or ""))
    except Exception:  # the parsers of headers raise errors of many kinds
        return ""


def _date(mail: EmailMessage) -> datetime | None:
    try:
        return parsedate_to_datetime(_header(mail, "date"))
    except (ValueError, OverflowError, IndexError):
        return None


def _sections(path: str, mail: EmailMessage, attachment: ReadAttachment) -> Iterator[Section]:
    unread = {id(part) for part in _other_forms(mail)}
    for index, part in enumerate(mail.walk()):
        check_time()
        if index > MOST_PARTS:
            note(f"only {MOST_PARTS:,} parts are read")
            return
        attached = part.get_filename() or part.get_content_disposition() == "attachment"
        is_text = part.get_content_maintype() == "text" and not attached
        is_read = part.get_content_type() in FORMS and id(part) not in unread
        if not part.is_multipart() and (is_read or not is_text):
            yield from _read(path, part, attachment)


def _other_forms(mail: Any) -> Iterator[EmailMessage]:
    """Yield the parts of all forms of a text but the form that is read: plain, else HTML."""
    for part in mail.walk():
        if part.get_content_type() == "multipart/alternative" and part.is_multipart():
            forms = [[*form.walk()] for form in part.get_payload()]
            types = [{inner.get_content_type() for inner in form} for form in forms]
            ranks = [[name in inside for name in FORMS] for inside in types]
            best = ranks.index(max(ranks)) if ranks else 0
            yield from chain(*forms[:best], *forms[best + 1 :])


def _read(path: str, part: EmailMessage, attachment: ReadAttachment) -> Iterator[Section]:
    """Yield the sections of a part; an unreadable attachment is noted."""
    payload: Any = part.get_payload(decode=True) or b""
    name = os.path.basename(one_line(part.get_filename() or ""))
    try:
        if name:
            parsed = attachment(name, payload)
        elif part.get_content_type() == "text/html":
            parsed = parse_html(path, f"\ufeff{_text(part, payload)}".encode())
        elif part.get_content_maintype() == "text":
            parsed = Parsed("", "", (Section(_text(part, payload)),))
        else:
            return
    # Of any library: one attachment never ends the reading of the mail.
    except Exception as error:
        reason = "binary" if isinstance(error, BinaryError) else message_of(error)
        note(f"attachment {name or part.get_content_type()} skipped: {reason}")
        return
    yield from (section.below(name) for section in parsed.sections)


def _text(part: EmailMessage, payload: bytes) -> str:
    """Decode a text by its declared encoding, else by its bytes."""
    try:
        text = payload.decode(part.get_content_charset() or "ascii")
    except (LookupError, UnicodeDecodeError):
        text = decode_text(payload)
    if part.get_param("format") == "flowed":  # a blank at a line's end: the paragraph goes on
        text = text.replace("\r\n", "\n").replace("-- \n", "--\n").replace(" \n", " ")
    return text.replace("\r\n", "\n").strip()


def read_mailbox(path: str, attachment: ReadAttachment) -> Records[Document]:
    """Yield the mails of a mailbox, in order; the id is the number in the file."""
    with open_bytes(path) as file:
        lines: list[bytes] = []
        position, size, blank = 0, 0, True
        for line in chain(iter(partial(file.readline, LARGEST), b""), [_END]):
            begins = blank and line.startswith(b"From ") and line.count(b":") > 1  # a time
            blank = not line.strip()
            if begins or line is _END:
                if position and lines:
                    read = partial(_mail, path, position, b"".join(lines), attachment)
                    yield Location(path, position, "mail"), read
                position, lines, size = position + 1, [], 0
                continue
            size += len(line)
            if size > LARGEST:
                note(f"mail {position} is cut after {LARGEST / 2**20:.0f} MiB")
                continue
            # Lines of a mail that begin with From are quoted.
            quoted = line.startswith(b">") and line.lstrip(b">").startswith(b"From ")
            lines.append(line[1:] if quoted else line)


def _mail(path: str, position: int, raw: bytes, attachment: ReadAttachment) -> Document:
    try:
        parsed = parse_mail(path, raw, attachment)
    except NothingToRead as reason:
        raise Location(path, position, "mail").error(str(reason)) from None
    mail = Document(str(position), parsed.text, parsed.title, parsed.fields)
    return with_passages(mail, parsed.sections)
