"""Tab-separated values: documents, queries and judgements."""

import re
from collections.abc import Iterator
from functools import partial
from itertools import islice

from lexicept.corpora.json_lines import DOCUMENT_IDS, DOCUMENT_TEXTS
from lexicept.corpora.lines import decode, filled_lines, read_lines
from lexicept.corpora.records import Document, Location, Qrel, Query, Records, check_id
from lexicept.corpora.tables import column_names, read_table

_IDS = [[name] for name in DOCUMENT_IDS]
_QUERY_IDS = {"id", "_id", "query_id", "query-id", "qid"}
_TEXTS = (["text"], ["title", "text"])


def read_documents(path: str) -> Records[Document]:
    """Yield the documents of a file whose header names an id and a text (see ``read_table``), or of
    one without a header: id, text or id, title, text. Raises InputError if the file can't be read;
    from the function of a line, another number of columns."""
    names: list[str] = []
    for location, line in islice(filled_lines(path), 1):
        names = column_names(_values(location, line))
    plain = names[:1] in _IDS and names[1:] in _TEXTS
    if plain or {*DOCUMENT_IDS}.isdisjoint(names) or {*DOCUMENT_TEXTS}.isdisjoint(names):
        for location, line in islice(filled_lines(path), int(plain), None):
            yield location, partial(_document, location, line)
    else:
        lines = partial(filled_lines, path)
        yield from read_table(lambda: ((at, partial(_values, at, line)) for at, line in lines()))


def _values(location: Location, line: bytes) -> list[str]:
    return line.decode(errors="surrogateescape").rstrip("\r\n").split("\t")


def _document(location: Location, line: bytes) -> Document:
    match decode(location, line).split("\t"):
        case [id, text]:
            return Document(id, text)
        case [id, title, text]:
            return Document(id, text, title)
        case columns:
            raise location.error(f"{len(columns)} columns, expected id, text or id, title, text")


def read_queries(path: str) -> Records[Query]:
    """Yield the queries of a file with the columns id, text; see ``read_documents``."""
    for index, (location, line) in enumerate(filled_lines(path)):
        names = [] if index else [name.strip().lower() for name in _values(location, line)]
        if names[:1] and names[0] in _QUERY_IDS and names[1:] in _TEXTS:
            continue
        yield location, partial(_query, location, line)


def _query(location: Location, line: bytes) -> Query:
    match decode(location, line).split("\t"):
        case [id, text]:
            return Query(id, text)
        case columns:
            raise location.error(f"{len(columns)} columns, expected id, text")


def read_qrels(path: str) -> Iterator[Qrel]:
    """Yield the judgements of a BEIR file (3 columns, usually a header) or a TREC file (4 columns).
    Raises InputError for other columns, a malformed id, or a relevance that is no integer."""
    for index, (location, line) in enumerate(read_lines(path)):
        match line.split():
            case [query_id, _, _] if index == 0 and query_id.lower() in _QUERY_IDS:
                continue
            case [query_id, document_id, relevance] | [query_id, _, document_id, relevance]:
                check_id(location, query_id)
                check_id(location, document_id)
                # int() alone would also take "1_0" and digits of any script.
                if not re.fullmatch(r"[+-]?[0-9]{1,18}", relevance):
                    raise location.error(f"the relevance {relevance!r} is not an integer")
                yield Qrel(query_id, document_id, int(relevance))
            case columns:
                raise location.error(f"{len(columns)} columns, expected 3 (BEIR) or 4 (TREC)")
