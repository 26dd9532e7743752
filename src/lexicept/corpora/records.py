"""Documents, queries and judgements, and the checks of all readers."""

import re
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple, Self, TypeVar
from urllib.parse import quote

from lexicept.corpora.skipped import Skipped
from lexicept.errors import InputError, LexiceptWarning
from lexicept.fields.values import NOTHING, FieldChecker, Fields, FieldType

MOST_PARTS = 16
"""Most # in an id, which may each separate a document from a passage."""

MOST_CHARACTERS = 2**24
"""Most characters of a document: a small gzipped file may hold a text larger than memory."""

# Whitespace and NUL may not stand in ids.
_UNSAFE = re.compile(r"[\s%#\x00-\x1f\x7f\udc80-\udcff]")


class Passage(NamedTuple):
    """A separately searched section of a document; the document is the hit."""

    text: str
    title: str = ""
    """Heading; may be empty."""
    anchor: str = ""
    """Name in the document: a passage's id is ``DOCUMENT#ANCHOR``. Empty for the number, from 1."""


FOLDER_FIELD = "folder"
"""Field of the folders of a file."""


class Document(NamedTuple):
    """A document of a corpus; ``title`` and ``fields`` may be empty.

    Examples:
        >>> lexicept.Document("cats", "Cats sleep all day.", title="Cats").content
        'Cats Cats sleep all day.'
    """

    id: str
    text: str
    title: str = ""
    fields: Fields = NOTHING
    """Fields of the document by name: texts, numbers, dates, or lists of one type."""
    passages: tuple[Passage, ...] = ()
    """Passages to index in place of the text; empty to index the text whole."""

    @property
    def content(self) -> str:
        """The title and the text in one string, as retrieval models read them."""
        return f"{self.title} {self.text}".strip()


class Query(NamedTuple):
    """A query."""

    id: str
    text: str


class Qrel(NamedTuple):
    """A judgement (qrel): the relevance of a document to a query."""

    query_id: str
    document_id: str
    relevance: int


class Location(NamedTuple):
    """A record's source, and the position in the source, counted in a unit from 1."""

    source: str
    position: int = 0
    unit: str = "line"

    def __str__(self) -> str:
        return f"{self.source}, {self.unit} {self.position}" if self.position else self.source

    def error(self, message: str) -> InputError:
        return InputError(f"{self}: {message}")


Record = TypeVar("Record", Document, Query)

Records = Iterator[tuple[Location, Callable[[], Record]]]
"""The location of each record of a source, and the function that reads the record, so that an
unreadable record does not end the stream."""


def checked(
    records: Records[Record],
    skipped: Skipped | None = None,
    types: Mapping[str, FieldType] = NOTHING,
) -> Iterator[Record]:
    """Yield the records of a source, with normalised fields; ``types`` are those of an index.

    A warning at the end names values of fields that are left out: of types that an index does not
    store, and, with ``skipped``, of another type than before. ``skipped`` notes unreadable records;
    None raises InputError for the first: an unreadable record, a malformed or repeated id, text
    that UTF-8 cannot hold, or a field of a different type than before."""
    checker = FieldChecker(types, lenient=skipped is not None)
    # Only the position is kept, not the location: corpora of millions of ids pass through here.
    positions: dict[str, int] = {}
    anchors = AnchorChecker()
    for location, read in records:
        try:
            record = read()
            _check(location, record)
            if record.id in positions:
                earlier = f"{location.unit} {positions[record.id]}"
                raise location.error(f"id {record.id!r} was already used in {earlier}")
            anchors.check(location, record)
            if isinstance(record, Document) and record.fields is not NOTHING:
                try:
                    record = record._replace(fields=checker.check(record.id, record.fields))
                except ValueError as error:
                    raise location.error(str(error)) from None
        except InputError as error:
            if skipped is None:
                raise
            skipped.error(error)
            continue
        positions[record.id] = location.position
        yield record
    for name, (count, document, reason) in checker.unkept.items():
        more = f" and {count - 1:,} more" if count > 1 else ""
        message = f"the field {name!r} is not kept in document {document!r}{more}: {reason}"
        warnings.warn(message, LexiceptWarning, stacklevel=2)


class DocumentStream(Iterator[Document]):
    """The documents of one source, each checked once, on reading.

    Args:
        skipped: notes skipped files and unreadable documents; warns at the end of the stream. The
            first error is raised if nothing was readable.
        strict: raise the first error.
        leave_out: returns True for a checked document to leave out.
    """

    def __init__(
        self,
        records: Records[Document],
        skipped: Skipped,
        *,
        strict: bool = False,
        leave_out: Callable[[Document], bool] | None = None,
    ) -> None:
        self._records, self._skipped = records, skipped
        self._strict, self._leave_out = strict, leave_out
        self._types: Mapping[str, FieldType] = NOTHING
        self._documents: Iterator[Document] | None = None

    def with_types(self, types: Mapping[str, FieldType]) -> Self:
        """Check fields against the types of an index's fields; before the first document."""
        self._types = types
        return self

    def __next__(self) -> Document:
        if self._documents is None:
            self._documents = self._read()
        return next(self._documents)

    def _read(self) -> Iterator[Document]:
        errors, empty = None if self._strict else self._skipped, True
        for document in checked(self._records, errors, self._types):
            empty = False
            if self._leave_out is None or not self._leave_out(document):
                yield document
        if empty and self._skipped.first is not None and not self._skipped.quiet:
            raise InputError(self._skipped.first)
        self._skipped.warn()


def _check(location: Location, record: Document | Query) -> None:
    if isinstance(record, Document) and record.passages:
        check_passages(location, record)
    for name, value in zip(record._fields, record, strict=True):
        if name in ("fields", "passages"):
            continue
        if not isinstance(value, str):
            raise location.error(f"its {name} must be a text, not {value!r:.80}")
        if len(value) > MOST_CHARACTERS:
            raise location.error(f"its {name} has more than {MOST_CHARACTERS:,} characters")
        _check_encodable(location, value)
    check_id(location, record.id)


class AnchorChecker:
    """Checks that no document has the id of a passage, ``DOCUMENT#ANCHOR``."""

    def __init__(self) -> None:
        self._divided: set[str] = set()
        """Documents with passages."""
        self._beginnings: dict[str, str] = {}
        """The beginning of an id before a #, and the first id with this beginning."""

    def check(self, location: Location, record: Document | Query) -> None:
        """Raise InputError for such a document."""
        if not isinstance(record, Document):
            return
        beginnings = [record.id[:end] for end, sign in enumerate(record.id) if sign == "#"]
        for beginning in beginnings:
            if beginning in self._divided:
                reason = f"document {beginning!r} has passages"
                raise location.error(f"id {record.id!r} looks like one of a passage: {reason}")
        if record.passages:
            if record.id in self._beginnings:
                reason = f"document {self._beginnings[record.id]!r} looks like one of them"
                raise location.error(f"id {record.id!r} can't have passages: {reason}")
            self._divided.add(record.id)
        for beginning in beginnings:
            self._beginnings.setdefault(beginning, record.id)


def check_passages(location: Location, document: Document) -> None:
    """Raise InputError unless all passages hold texts, with distinct anchors."""
    anchors = set()
    for position, passage in enumerate(document.passages, 1):
        if not isinstance(passage, Passage):
            raise location.error(f"passage {position} must be a Passage, not {passage!r:.80}")
        for name, value in zip(passage._fields, passage, strict=True):
            if not isinstance(value, str):
                raise location.error(f"the {name} of passage {position} must be a text")
            _check_encodable(location, value)
        anchor = passage.anchor or str(position)
        check_id(location, anchor)
        if anchor in anchors:
            raise location.error(f"two passages have the anchor {anchor!r}")
        anchors.add(anchor)


def fields_without_folders(document: Document) -> Fields:
    """Return the fields of a document without the folders that its id shows."""
    folders = document.fields.get(FOLDER_FIELD)
    shown = isinstance(folders, list) and all(
        document.id.startswith(f"{id_of(str(folder))}/") for folder in folders
    )
    return {n: value for n, value in document.fields.items() if not (shown and n == FOLDER_FIELD)}


def shown_fields(document: Document) -> Iterator[tuple[str, str]]:
    """Yield the name and the value, as text, of each field of ``fields_without_folders``."""
    for name, value in fields_without_folders(document).items():
        yield name, ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def id_of(name: str) -> str:
    """Return the id of a path in a folder, or of a record in a file there: whitespace, control
    characters, % and # are percent-encoded, so that no two share an id."""
    if name.isspace():  # no id
        return name
    return _UNSAFE.sub(lambda match: quote(match[0], errors="surrogateescape"), name)


def check_id(location: Location, value: str) -> None:
    """Raise InputError unless ``value`` can stand in a TREC run or qrels file."""
    if value.count("#") > MOST_PARTS:
        raise location.error(f"bad id {value[:40]!r}...: an id has at most {MOST_PARTS} #")
    if value.split() != [value] or "\0" in value:
        raise location.error(f"bad id {value!r}: an id is not empty and holds no whitespace or NUL")


def _check_encodable(location: Location, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        surrogate = text[error.start]
        raise location.error(f"lone surrogate {surrogate!r}: UTF-8 cannot hold it") from error


@contextmanager
def readable(source: str) -> Iterator[None]:
    """Turn errors of reading ``source`` (permissions, broken gzip) into InputError."""
    try:
        yield
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{source}: cannot be read: {error}") from error
