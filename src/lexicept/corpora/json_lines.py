"""JSON Lines: one JSON object a line; and JSON arrays of such objects."""

import json
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping
from decimal import Decimal
from functools import partial
from itertools import chain, islice
from numbers import Integral, Real
from typing import Any

from lexicept.corpora.budgets import LARGEST_ARRAY
from lexicept.corpora.lines import decode, filled_lines, open_bytes
from lexicept.corpora.passages import joined
from lexicept.corpora.records import Document, Passage, Place, Query, Records
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
    for place, line in filled_lines(path):
        yield place, partial(_document, place, line, anonymous)


def _document(place: Place, line: bytes, anonymous: bool) -> Document:
    return to_document(place, _object(place, line), str(place.number) if anonymous else None)


def read_json(path: str) -> Records[Document]:
    """Yield the documents of a JSON file: an array of objects, one object, or JSON Lines. Raises
    InputError as ``read_documents`` does, and for an array that is no valid JSON or has more than
    ``LARGEST_ARRAY`` bytes."""
    with open_bytes(path) as file:
        start = file.read(2**16).removeprefix(BOM_UTF8).lstrip()[:1]
    lines = filled_lines(path, LARGEST_ARRAY)
    head = [] if start == b"[" else list(islice(lines, 1))
    values = _one_object(path, head[0][1]) if head else _content(path) if start else None
    if values is None:
        for place, line in chain(head, lines):
            yield place, partial(_document, place, line, True)
        return
    for number, value in enumerate(values, 1):
        place = Place(path, number, "object")
        yield place, partial(_element, place, value)


def _one_object(path: str, first: bytes) -> list[Any] | None:
    """Return a list of the one object in a file; None for a file with an object per line."""
    try:
        json.loads(first)
    except (ValueError, RecursionError):
        try:
            content = _content(path)
        except InputError:
            return None
        return [content] if isinstance(content, dict) else None
    return None


def _content(path: str) -> Any:
    place = Place(path)
    with open_bytes(path) as file:
        content = file.read(LARGEST_ARRAY + 1)
    if len(content) > LARGEST_ARRAY:
        limit = f"{LARGEST_ARRAY / 2**20:.0f} MiB"
        raise place.error(f"an array of more than {limit}: JSON Lines (.jsonl) have no limit")
    try:
        values: Any = json.loads(decode_utf_8(content.removeprefix(BOM_UTF8)))
    except UnicodeDecodeError as error:
        raise place.error(f"not UTF-8 at byte {error.start}: {error.reason}") from error
    except (ValueError, RecursionError) as error:  # an endless number, endless nesting
        raise place.error(f"not valid JSON: {error}") from error
    return values


def _element(place: Place, value: Any) -> Document:
    return to_document(place, _checked(place, value), str(place.number))


def to_document(place: Place, record: Mapping[str, Any], default_id: str | None = None) -> Document:
    """Return the document of an object; members besides id, title, text and passages are fields. A
    missing value (see ``is_missing``) counts as no member, and an id is required without
    ``default_id``. Raises InputError, at the place, for a field that is missing or of the wrong
    type."""
    fields = {name: value for name, value in record.items() if not is_missing(value)}
    title = _text(place, fields, ("title",)) if "title" in fields else ""
    passages = _passages(place, fields.get("passages"))
    text = joined(passages) if passages else _text(place, record, DOCUMENT_TEXTS)
    anonymous = default_id is not None and not any(key in fields for key in DOCUMENT_IDS)
    document_id = default_id if anonymous else None
    document_id = document_id or _id(place, fields, DOCUMENT_IDS)
    return Document(document_id, text, title, fields_in(fields, RESERVED), passages)


def _passages(place: Place, values: Any) -> tuple[Passage, ...]:
    """Return the passages of an object: objects with a text and, optionally, title and anchor."""
    values = values.tolist() if hasattr(values, "tolist") else values
    if not isinstance(values, list | tuple | None):
        raise place.error(f"the passages must be a list, not {_kind(values)}")
    passages = []
    for value in values or ():
        if isinstance(value, str):
            passages.append(Passage(value))
        elif isinstance(value, Passage):
            passages.append(value)
        elif isinstance(value, Mapping):
            texts = [value.get("text"), value.get("title") or "", value.get("anchor") or ""]
            if not all(isinstance(text, str) for text in texts):
                raise place.error("the text, title and anchor of a passage must be strings")
            passages.append(Passage(*map(str, texts)))
        else:
            raise place.error(f"a passage must be an object or a string, not {_kind(value)}")
    return tuple(passages)


def read_queries(path: str) -> Records[Query]:
    """Yield the queries of a JSON Lines file; see ``read_documents``."""
    for place, line in filled_lines(path):
        yield place, partial(_query, place, line)


def _query(place: Place, line: bytes) -> Query:
    fields = _object(place, line)
    return Query(_id(place, fields, _QUERY_IDS), _text(place, fields, _QUERY_TEXTS))


def read_objects(path: str) -> Iterator[tuple[Place, dict[str, Any]]]:
    """Yield the objects of a JSON Lines file, gzipped or not. Raises InputError for a line without
    a JSON object, or an unreadable file."""
    for place, line in filled_lines(path):
        yield place, _object(place, line)


def parse_line(place: Place, line: bytes) -> Any:
    """Return a line's JSON value. Raises InputError for broken JSON or bytes that are not UTF-8."""
    text = decode(place, line)
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        # The error's own line number counts within this line and would mislead.
        raise place.error(f"not valid JSON: {error.msg} (column {error.colno})") from error
    except (ValueError, RecursionError) as error:  # an endless number, endless nesting
        raise place.error(f"not valid JSON: {error}") from error


def _object(place: Place, line: bytes) -> dict[str, Any]:
    return _checked(place, parse_line(place, line))


def _checked(place: Place, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise place.error(f"not a JSON object but {_kind(value)}")
    return value


def _id(place: Place, fields: Mapping[str, Any], keys: tuple[str, ...]) -> str:
    value = _first(place, fields, keys)
    # Whole floats are integers: pandas has no other numbers beside missing ones.
    real = isinstance(value, Real | Decimal) and not isinstance(value, Integral)
    if real and abs(value) < 2**63 and value // 1 == value:
        value = int(value)
    # bool is an int to Python but no id to anyone.
    if isinstance(value, bool) or not isinstance(value, str | Integral):
        raise place.error(f"the id must be a string or an integer, not {_kind(value)}")
    return str(value)


def _text(place: Place, fields: Mapping[str, Any], keys: tuple[str, ...]) -> str:
    value = _first(place, fields, keys)
    if not isinstance(value, str):
        raise place.error(f"the {keys[0]} must be a string, not {_kind(value)}")
    return value


def _first(place: Place, fields: Mapping[str, Any], keys: tuple[str, ...]) -> Any:
    present = [fields[key] for key in keys if key in fields]
    if not present:
        raise place.error(f"the object has none of the keys {', '.join(keys)}")
    return next((value for value in present if not is_missing(value)), None)


def _kind(value: Any) -> str:
    return "null" if value is None else type(value).__name__
