"""Datasets of texts, in BGE's layout, as lists of ids."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from lexicept.candidates.lists import CandidateList, Lists, assemble, finite_score, write_lists
from lexicept.corpora.json_lines import read_objects
from lexicept.corpora.records import Location
from lexicept.errors import InputError
from lexicept.storage.workspace import new_folder

_FILES = ("*.jsonl", "*.jsonl.gz", "*.ndjson", "*.ndjson.gz")


class TextRow(NamedTuple):
    """A query, the texts to learn from, and a teacher's scores."""

    query: str
    texts: list[str]
    relevant: int
    """Number of relevant texts, which come first."""
    scores: list[float] | None
    """A score for each text; None for a row without scores."""


def import_texts(
    source: str | os.PathLike[str], folder: str | os.PathLike[str], *, scored_only: bool = False
) -> Lists:
    """Write rows of texts (see ``to_row``) as a BEIR folder with a list for each row in
    ``lists.jsonl``, so that training sees ids only: hashes of the texts. ``scored_only`` leaves out
    rows without scores, as SPLARE does (Appendix A).

    Args:
        source: a JSON Lines file or a folder of such files.

    Raises:
        InputError: no such files, a row with other columns, by its line, no rows, or an existing
            ``folder``.
    """
    files, target = [Path(source)], Path(folder)
    if files[0].is_dir():
        files = sorted({file for pattern in _FILES for file in files[0].rglob(pattern)})
    if not files:
        raise InputError(f"{source}: no JSON Lines files (.jsonl, .ndjson) here")
    records = chain.from_iterable(read_objects(str(file)) for file in files)
    with new_folder(target, "dataset") as new:
        (new / "qrels").mkdir()
        with (
            (new / "corpus.jsonl").open("w", encoding="utf-8") as corpus,
            (new / "queries.jsonl").open("w", encoding="utf-8") as queries,
            (new / "qrels" / "train.tsv").open("w", encoding="utf-8") as qrels,
        ):
            write_document, write_query = _once(corpus), _once(queries)
            judged: set[tuple[str, str]] = set()
            qrels.write("query-id\tcorpus-id\tscore\n")

            def lists() -> Iterator[CandidateList]:
                for location, fields in records:
                    row = to_row(location, fields)
                    if row.scores is None and scored_only:
                        continue
                    ids = [write_document(text) for text in row.texts]
                    values = ids if row.scores is None else list(zip(ids, row.scores, strict=True))
                    query, count = write_query(row.query), row.relevant
                    item = assemble(location, query, values[:count], values[count:])
                    for document in item.documents[: item.relevant]:
                        if (query, document) not in judged:
                            judged.add((query, document))
                            qrels.write(f"{query}\t{document}\t1\n")
                    yield item

            write_lists(new / "lists.jsonl", lists())
    return Lists.open(target / "lists.jsonl")


def _once(file: TextIO) -> Callable[[str], str]:
    """Return a function from a text to its id, which writes every new text to a file."""
    written: set[str] = set()

    def write(text: str) -> str:
        name = sha256(text.encode()).digest()[:10].hex()
        if name not in written:
            written.add(name)
            file.write(json.dumps({"_id": name, "text": text}, ensure_ascii=False) + "\n")
        return name

    return write


def to_row(location: Location, fields: Mapping[str, Any]) -> TextRow:
    """Read a row: ``query``, ``pos`` and ``neg``, lists of texts, and optionally ``pos_scores`` and
    ``neg_scores``; further columns are ignored. Raises InputError, naming ``location``, for a row
    with other columns."""
    query = _text(location, fields, "query", fields.get("query"))
    texts: list[str] = []
    scores: list[float] = []
    scored = any(fields.get(f"{name}_scores") is not None for name in ("pos", "neg"))
    for name in ("pos", "neg"):
        listed = fields.get(name)
        if not isinstance(listed, list):
            columns = ", ".join(fields)
            raise location.error(f"{name} must be a list of texts; columns: {columns}")
        texts += [_text(location, fields, name, text) for text in listed]
        values = fields.get(f"{name}_scores")
        if not scored or (values is None and not listed):
            continue
        if not isinstance(values, list):
            raise location.error(f"{name}_scores must be a list of numbers")
        if len(values) != len(listed):
            raise location.error(f"{len(values)} {name}_scores for {len(listed)} texts")
        scores += [finite_score(location, score) for score in values]
    if not texts:
        raise location.error("pos and neg are empty")
    return TextRow(query, texts, len(fields["pos"]), scores if scored else None)


def _text(location: Location, fields: Mapping[str, Any], name: str, text: Any) -> str:
    if not isinstance(text, str):
        raise location.error(f"the column {name} must hold a text; columns: {', '.join(fields)}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise location.error(f"the column {name}: {error.reason}") from None
    return text
