"""JSON Lines: one JSON object a line; and JSON arrays of such objects."""

import json
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping
from contextlib import suppress
from decimal import Decimal
from functools import partial
from itertools import chain, islice
from numbers import Integral, Real
from typing import Any

from lexicept.corpora.budgets import LARGEST_ARRAY
from lexicept.corpora.lines import decode, filled_lines, open_bytes
from lexicept.corpora.passages import joined
from lexicept.corpora.records import Document, Location, Passage, Query, Records
from lexicept.corpora.text_encoding import decode_utf_8
from lexicept.errors import InputError
from lexicept.fields.values import fields_in, is_missing

DOCUMENT_IDS = ("_id", "id", "docno", "doc_id")
DOCUMENT_TEXTS = ("text", "contents", "body")
RESERVED = {*DOCUMENT_IDS, *DOCUMENT_TEXTS, "title", "passages"}
"""Names that are no fields."""

_QUERY_IDS = ("_id", "id", "query_id", "qid")
_QUERY_TEXTS = ("text", "query")


def read_documents(path: str, *, anonymous: bool = True) -> Records[Document]:
    """Yield the documents of a JSON Lines file; without an id it is the line's number, unless
    ``anonymous`` is False. Raises InputError if the file can't be read; from the function of a
    line, for broken JSON, or a field that is missing or of the wrong type."""
    for location, line in filled_lines(path):
        yield location, partial(_document, location, line, anonymous)


def _document(location: Location, line_or_value: Any, anonymous: bool = True) -> Document:
    default_id = str(location.position) if anonymous else None
    return to_document(location, _object(location, line_or_value), default_id)


def read_json(path: str) -> Records[Document]:
    """Yield the documents of a JSON file: an array of objects, one object, or JSON Lines. Raises
    InputError as ``read_documents`` does, and for an array that is no valid JSON or has more than
    ``LARGEST_ARRAY`` bytes."""
    with open_bytes(path) as file:
        start = file.read(2**16).removeprefix(BOM_UTF8).lstrip()[:1]
    lines = filled_lines(path, LARGEST_ARRAY)
    head = [] if start == b"[" else list(islice(lines, 1))
    entries: Iterator[tuple[Location, Any]] = chain(head, lines)
    values = _one_object(path, head[0][1]) if head else None
    if start == b"[":
        values = _parsed(path)
    if values is not None:
        entries = ((Location(path, n, "object"), value) for n, value in enumerate(values, 1))
    for location, line_or_value in entries:
        yield location, partial(_document, location, line_or_value)


def _one_object(path: str, first_line: bytes) -> list[Any] | None:
    """Return a list of the one object in a file; None for a file with an object per line."""
    with suppress(ValueError, RecursionError):
        json.loads(first_line)
        return None
    with suppress(InputError):
        return [parsed] if isinstance(parsed := _parsed(path), dict) else None
    return None


def _parsed(path: str) -> Any:
    location = Location(path)
    with open_bytes(path) as file:
        raw = file.read(LARGEST_ARRAY + 1)
    if len(raw) > LARGEST_ARRAY:
        limit = f"{LARGEST_ARRAY / 2**20:.0f} MiB"
        raise location.error(f"an array of more than {limit}: JSON Lines (.jsonl) have no limit")
    try:
        values: Any = json.loads(decode_utf_8(raw.removeprefix(BOM_UTF8)))
    except UnicodeDecodeError as error:
        raise location.error(f"not UTF-8 at byte {error.start}: {error.reason}") from error
    except (ValueError, RecursionError) as error:  # an endless number, endless nesting
        raise location.error(f"not valid JSON: {error}") from error
    return values


def to_document(
    location: Location, record: Mapping[str, Any], default_id: str | None = None
) -> Document:
    """Return the document of an object; members besides id, title, text and passages are fields. A
    missing value (see ``is_missing``) counts as no member, and an id is required without
    ``default_id``. Raises InputError, at the location, for a missing or mistyped field."""
    fields = {name: value for name, value in record.items() if not is_missing(value)}
    title = _text(location, fields, ("title",)) if "title" in fields else ""
    passages = _passages(location, fields.get("passages"))
    text = joined(passages) if passages else _text(location, record, DOCUMENT_TEXTS)
    anonymous = default_id is not None and not any(key in fields for key in DOCUMENT_IDS)
    document_id = default_id if anonymous else None
    document_id = document_id or _id(location, fields, DOCUMENT_IDS)
    return Document(document_id, text, title, fields_in(fields, RESERVED), passages)


def _passages(location: Location, values: Any) -> tuple[Passage, ...]:
    """Return the passages of an object: objects with a text and, optionally, title and anchor."""
    values = values.tolist() if hasattr(values, "tolist") else values
    if not isinstance(values, list | tuple | None):
        raise location.error(f"the passages must be a list, not {_json_type(values)}")
    passages = []
    for value in values or ():
        if isinstance(value, str):
            passages.append(Passage(value))
        elif isinstance(value, Passage):
            passages.append(value)
        elif isinstance(value, Mapping):
            texts = [value.get("text"), value.get("title") or "", value.get("anchor") or ""]
            if not all(isinstance(text, str) for text in texts):
                raise location.error("the text, title and anchor of a passage must be strings")
            passages.append(Passage(*map(str, texts)))
        else:
            type_name = _json_type(value)
            raise location.error(f"a passage must be an object or a string, not {type_name}")
    return tuple(passages)


def read_queries(path: str) -> Records[Query]:
    """Yield the queries of a JSON Lines file; see ``read_documents``."""
    for location, line in filled_lines(path):
        yield location, partial(_query, location, line)


def _query(location: Location, line: bytes) -> Query:
    fields = _object(location, line)
    return Query(_id(location, fields, _QUERY_IDS), _text(location, fields, _QUERY_TEXTS))


def read_objects(path: str) -> Iterator[tuple[Location, dict[str, Any]]]:
    """Yield the objects of a JSON Lines file, gzipped or not. Raises InputError for a line without
    a JSON object, or an unreadable file."""
    for location, line in filled_lines(path):
        yield location, _object(location, line)


def parse_line(location: Location, line: bytes) -> Any:
    """Return a line's JSON value. Raises InputError for broken JSON or bytes that are not UTF-8."""
    text = decode(location, line)
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        # The error's own line number counts within this line and would mislead.
        raise location.error(f"not valid JSON: {error.msg} (column {error.colno})") from error
    except (ValueError, RecursionError) as error:  # an endless number, endless nesting
        raise location.error(f"not valid JSON: {error}") from error


def _object(location: Location, line_or_value: Any) -> dict[str, Any]:
    is_line = isinstance(line_or_value, bytes)
    value = parse_line(location, line_or_value) if is_line else line_or_value
    if not isinstance(value, dict):
        raise location.error(f"not a JSON object but {_json_type(value)}")
    return value


def _id(location: Location, fields: Mapping[str, Any], keys: tuple[str, ...]) -> str:
    value = _first_value(location, fields, keys)
    # Whole floats are integers: pandas has no other numbers beside missing ones.
    real = isinstance(value, Real | Decimal) and not isinstance(value, Integral)
    if real and abs(value) < 2**63 and value // 1 == value:
        value = int(value)
    # bool is an int to Python but no id to anyone.
    if isinstance(value, bool) or not isinstance(value, str | Integral):
        raise location.error(f"the id must be a string or an integer, not {_json_type(value)}")
    return str(value)


def _text(location: Location, fields: Mapping[str, Any], keys: tuple[str, ...]) -> str:
    value = _first_value(location, fields, keys)
    if not isinstance(value, str):
        raise location.error(f"the {keys[0]} must be a string, not {_json_type(value)}")
    return value


def _first_value(location: Location, fields: Mapping[str, Any], keys: tuple[str, ...]) -> Any:
    present = [fields[key] for key in keys if key in fields]
    if not present:
        raise location.error(f"the object has none of the keys {', '.join(keys)}")
    return next((value for value in present if not is_missing(value)), None)


def _json_type(value: Any) -> str:
    return "null" if value is None else type(value).__name__
