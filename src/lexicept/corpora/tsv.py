"""Tab-separated values: documents, queries and judgements."""

import re
from collections.abc import Iterator

from lexicept.corpora.lines import read_lines
from lexicept.corpora.records import Document, Place, Qrel, Query, check_id

_DOCUMENT_IDS = {"id", "_id", "doc_id", "docno"}
_QUERY_IDS = {"id", "_id", "query_id", "query-id", "qid"}
_TEXTS = (["text"], ["title", "text"])


def read_documents(path: str) -> Iterator[tuple[Place, Document]]:
    """Yield the documents of a file with the columns id, text or id, title, text.

    Raises:
        InputError: a line with another number of columns.
    """
    for place, columns in _read_rows(path, _DOCUMENT_IDS):
        match columns:
            case [id, text]:
                yield place, Document(id, text)
            case [id, title, text]:
                yield place, Document(id, text, title)
            case _:
                expected = "id, text or id, title, text"
                raise place.error(f"{len(columns)} columns, expected {expected}")


def read_queries(path: str) -> Iterator[tuple[Place, Query]]:
    """Yield the queries of a file with the columns id, text.

    Raises:
        InputError: a line with another number of columns.
    """
    for place, columns in _read_rows(path, _QUERY_IDS):
        if len(columns) != 2:
            raise place.error(f"{len(columns)} columns, expected id, text")
        yield place, Query(*columns)


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


def _read_rows(path: str, id_names: set[str]) -> Iterator[tuple[Place, list[str]]]:
    for index, (place, line) in enumerate(read_lines(path)):
        columns = line.split("\t")
        names = [column.strip().lower() for column in columns]
        if index == 0 and names[0] in id_names and names[1:] in _TEXTS:
            continue
        yield place, columns
