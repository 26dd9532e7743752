"""Tab-separated values: documents, queries and judgements."""

import re
from collections.abc import Iterator
from functools import partial

from lexicept.corpora.lines import decode, filled_lines, read_lines
from lexicept.corpora.records import Document, Place, Qrel, Query, Records, check_id

_DOCUMENT_IDS = {"id", "_id", "doc_id", "docno"}
_QUERY_IDS = {"id", "_id", "query_id", "query-id", "qid"}
_TEXTS = (["text"], ["title", "text"])


def read_documents(path: str) -> Records[Document]:
    """Yield the documents of a file with the columns id, text or id, title, text.

    Raises:
        InputError: the file can't be read; from the function of a line, another number of columns.
    """
    for place, line in _rows(path, _DOCUMENT_IDS):
        yield place, partial(_document, place, line)


def _document(place: Place, line: bytes) -> Document:
    match decode(place, line).split("\t"):
        case [id, text]:
            return Document(id, text)
        case [id, title, text]:
            return Document(id, text, title)
        case columns:
            expected = "id, text or id, title, text"
            raise place.error(f"{len(columns)} columns, expected {expected}")


def read_queries(path: str) -> Records[Query]:
    """Yield the queries of a file with the columns id, text.

    Raises:
        InputError: the file can't be read; from the function of a line, another number of columns.
    """
    for place, line in _rows(path, _QUERY_IDS):
        yield place, partial(_query, place, line)


def _query(place: Place, line: bytes) -> Query:
    columns = decode(place, line).split("\t")
    if len(columns) != 2:
        raise place.error(f"{len(columns)} columns, expected id, text")
    return Query(*columns)


def read_qrels(path: str) -> Iterator[Qrel]:
    """Yield the judgements of a BEIR file (3 columns, usually a header) or a TREC file (4 columns).

    Raises:
        InputError: another number of columns, a malformed id, or a relevance that is no integer.
    """
    for index, (place, line) in enumerate(read_lines(path)):
        match line.split():
            case [query_id, _, _] if index == 0 and query_id.lower() in _QUERY_IDS:
                continue
            case [query_id, document_id, relevance] | [query_id, _, document_id, relevance]:
                check_id(place, query_id)
                check_id(place, document_id)
                # int() alone would also take "1_0" and digits of any script.
                if not re.fullmatch(r"[+-]?[0-9]{1,18}", relevance):
                    raise place.error(f"the relevance {relevance!r} is not an integer")
                yield Qrel(query_id, document_id, int(relevance))
            case columns:
                raise place.error(f"{len(columns)} columns, expected 3 (BEIR) or 4 (TREC)")


def _rows(path: str, id_names: set[str]) -> Iterator[tuple[Place, bytes]]:
    """Yield the lines without a header."""
    for index, (place, line) in enumerate(filled_lines(path)):
        if index == 0:
            names = [name.strip().lower() for name in line.decode(errors="replace").split("\t")]
            if names[0] in id_names and names[1:] in _TEXTS:
                continue
        yield place, line
