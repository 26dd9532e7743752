"""Candidate lists, the training data: a query, its relevant documents, and more candidates.

lexicept's files are JSON Lines; scores are those of the relevant documents, then of candidates::

    {"query_id": "q", "relevant": ["d1"], "candidates": ["d7", "d3"], "scores": [9.1, 2, 1.5]}
"""

from __future__ import annotations

import codecs
import json
import math
import os
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lexicept.corpora import Qrel
from lexicept.corpora.json_lines import parse_line
from lexicept.corpora.lines import decode
from lexicept.corpora.records import Location, check_id, readable
from lexicept.errors import InputError
from lexicept.storage.files import replacing_text
from lexicept.storage.sequences import LazySequence
from lexicept.storage.workspace import GrowingFile
from lexicept.vectors import Integers

_ACCEPTED = (
    "accepted: lexicept's lists, ColBERT's JSON Lines ([qid, [pid, score], ...]), hard negatives "
    'of sentence-transformers ({"qid", "pos", "neg"}), and between tabs triples (qid, positive, '
    "negative) or scored triples (positive's score, negative's score, qid, positive, negative)"
)


class CandidateList(NamedTuple):
    """A query and documents to learn from: relevant documents first, then other candidates."""

    query_id: str
    documents: tuple[str, ...]
    """Distinct ids, the relevant ones first."""
    relevant: int
    """Number of relevant documents, at the front of ``documents``; may be 0."""
    scores: tuple[float, ...] | None = None
    """A teacher's score of every document."""


def from_qrels(qrels: Iterable[Qrel]) -> list[CandidateList]:
    """Return a list per query of its relevant documents (relevance above 0), in their order."""
    relevant: dict[str, dict[str, None]] = {}
    for qrel in qrels:
        if qrel.relevance > 0:
            relevant.setdefault(qrel.query_id, {})[qrel.document_id] = None
    return [CandidateList(query, tuple(ids), len(ids)) for query, ids in relevant.items()]


def write_lists(path: str | os.PathLike[str], lists: Iterable[CandidateList]) -> Lists:
    """Write lists atomically and open the file. Raises InputError for no lists and, by line, for no
    documents, repeated or bad ids, or scores that are not finite or not one per document."""
    target = Path(path)
    with replacing_text(target) as file:
        line_number = 0
        for line_number, item in enumerate(lists, 1):
            file.write(_to_line(item, Location(str(target), line_number)) + "\n")
        if not line_number:
            raise InputError(f"{target}: no lists to write")
    return Lists.open(target)


def append_lists(
    file: GrowingFile,
    count: int,
    size: int,
    lists_of: Callable[[range], Iterable[CandidateList]],
    report: Callable[[int, int], None],
) -> None:
    """Append the lists of the remaining of ``count`` queries, in units of work of ``size`` queries:
    ``lists_of`` makes a span's lists, ``report`` gets the counts of finished and all queries."""
    for start in range(file.done, count, size):
        span = range(start, min(start + size, count))
        lists = lists_of(span)
        lines = [_to_line(item, Location(f"query {item.query_id!r}")) for item in lists]
        file.append_lines(lines, span.stop)
        report(span.stop, count)


def _to_line(item: CandidateList, location: Location) -> str:
    _check(location, item)
    for value in (item.query_id, *item.documents):
        _id(location, value)
    fields: dict[str, Any] = {
        "query_id": item.query_id,
        "relevant": item.documents[: item.relevant],
        "candidates": item.documents[item.relevant :],
    }
    if item.scores is not None:
        fields["scores"] = [float(score) for score in item.scores]
    return json.dumps(fields, ensure_ascii=False)


Parser = Callable[[Location, bytes], CandidateList]


class Lists(LazySequence[CandidateList]):
    """The lists of a file, each parsed when it is read; see ``open``."""

    def __init__(self, path: str, offsets: Integers, parse: Parser) -> None:
        self.path = path
        self._offsets = offsets
        self._parse = parse
        self._bytes: Any = np.memmap(path, dtype=np.uint8, mode="r")

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Lists:
        """Find the lists of a file; the first line decides the format.

        Formats: lexicept's files; ColBERT's JSON Lines ``[qid, [pid, score], ...]`` and ``[qid,
        pid, ...]``, with the relevant document first; sentence-transformers'
        ``msmarco-hard-negatives``, with the negatives of all systems in order; triples of ids
        ``qid \\t positive \\t negative``; and MarginMSE's triples with a teacher's scores in front
        (Hofstätter et al. 2020). Repeated documents of ColBERT's lists and of hard negatives are
        dropped. A line of another format is refused here, any other bad line when it is read.
        Raises InputError for an unreadable, gzipped or empty file, or a bad line."""
        name = os.fspath(path)
        offsets = array("q")
        parse: Parser | None = None
        frame: tuple[bytes, bytes] | int = 0
        position = 0
        with readable(name), open(name, "rb") as file:
            # One pass notes where lines begin; lists are parsed when read.
            for line_number, raw in enumerate(file, 1):
                if line_number == 1 and raw.startswith(b"\x1f\x8b"):
                    raise InputError(f"{name}: gzipped, and read in random order: gunzip it first")
                if line := _line(raw, at_start=line_number == 1):
                    location = Location(name, line_number)
                    if parse is None:
                        parse, frame = _parser(location, line), _frame(line)
                        parse(location, line)
                    elif _frame(line) != frame:
                        parse(location, line)
                    offsets.append(position)
                position += len(raw)
        if parse is None:
            raise InputError(f"{name}: no lists; {_ACCEPTED}")
        offsets.append(position)
        return cls(name, np.frombuffer(offsets, dtype=np.int64), parse)

    def __len__(self) -> int:
        return int(self._offsets.size) - 1

    def _read(self, index: int) -> CandidateList:
        """Parse a list. Raises InputError for a bad line."""
        start, end = (int(offset) for offset in self._offsets[index : index + 2])
        line = _line(self._bytes[start:end].tobytes(), at_start=start == 0)
        try:
            return self._parse(Location(self.path), line)
        except InputError:
            # Lines are counted for the error message only.
            blocks = (self._bytes[i : min(i + 2**20, start)] for i in range(0, start, 2**20))
            line_number = 1 + sum(block.tobytes().count(b"\n") for block in blocks)
            return self._parse(Location(self.path, line_number), line)


def _line(raw: bytes, *, at_start: bool) -> bytes:
    return (raw.removeprefix(codecs.BOM_UTF8) if at_start else raw).strip(b" \r\n")


def _frame(line: bytes) -> tuple[bytes, bytes] | int:
    """Return the brackets around a line, or the number of tabs: a cheap test of the format."""
    return (line[:1], line[-1:]) if line[:1] in (b"[", b"{") else line.count(b"\t")


def _parser(location: Location, line: bytes) -> Parser:
    if line.startswith(b"["):
        return _parse_colbert
    if line.startswith(b"{"):
        fields = parse_line(location, line)
        for key, parse in (("query_id", _parse_ours), ("qid", _parse_hard_negatives)):
            if key in fields:
                return parse
    elif line.count(b"\t") in (2, 4):
        return _parse_triple
    raise location.error(f"not a line of lists; {_ACCEPTED}")


def _parse_ours(location: Location, line: bytes) -> CandidateList:
    fields = parse_line(location, line)
    if not isinstance(fields, dict):
        raise location.error("not a JSON object")
    relevant, candidates = (
        tuple(_id(location, value) for value in _array(location, fields, key))
        for key in ("relevant", "candidates")
    )
    scores = None
    if fields.get("scores") is not None:
        values = _array(location, fields, "scores")
        scores = tuple(finite_score(location, value) for value in values)
    query = _id(location, fields.get("query_id"))
    listed = CandidateList(query, relevant + candidates, len(relevant), scores)
    _check(location, listed)
    return listed


def _parse_colbert(location: Location, line: bytes) -> CandidateList:
    values = parse_line(location, line)
    if not isinstance(values, list) or len(values) < 2:
        raise location.error("not a JSON array of a query and its documents")
    return assemble(location, values[0], values[1:2], values[2:])


def _parse_hard_negatives(location: Location, line: bytes) -> CandidateList:
    fields = parse_line(location, line)
    if not isinstance(fields, dict):
        raise location.error("not a JSON object")
    systems = fields.get("neg")
    if not isinstance(systems, dict):
        raise location.error("neg must be an object of arrays, by system")
    negatives = [value for system in systems for value in _array(location, systems, system)]
    return assemble(location, fields.get("qid"), _array(location, fields, "pos"), negatives)


def _parse_triple(location: Location, line: bytes) -> CandidateList:
    columns = decode(location, line).split("\t")
    if len(columns) not in (3, 5):
        expected = "query, positive, negative, after two scores or none"
        raise location.error(f"{len(columns)} columns, expected {expected}")
    *scores, query, positive, negative = columns
    if positive == negative:
        raise location.error(f"{positive!r} is both positive and negative")
    if not scores:
        return assemble(location, query, [positive], [negative])
    try:
        values = [float(score) for score in scores]
    except ValueError:
        raise location.error(f"scores must be numbers, not {scores!r:.40}") from None
    return assemble(location, query, [[positive, values[0]]], [[negative, values[1]]])


def assemble(
    location: Location, query: Any, relevant: Sequence[Any], negatives: Sequence[Any]
) -> CandidateList:
    """Make a list of ids, ``[id, score]`` or ``{"pid": id, "ce-score": score}``, without repeats.
    Raises InputError, naming ``location``, for bad ids, bad scores or no documents."""
    scores: dict[str, float | None] = {}
    count = 0
    for position, value in enumerate([*relevant, *negatives]):
        match value:
            case [name, score] | {"pid": name, "ce-score": score}:
                scores.setdefault(_id(location, name), finite_score(location, score))
            case {"pid": name} | name:
                scores.setdefault(_id(location, name), None)
        if position < len(relevant):
            count = len(scores)
    finite = tuple(score for score in scores.values() if score is not None)
    if finite and len(finite) < len(scores):
        raise location.error("some documents have scores and others have none")
    listed = CandidateList(_id(location, query), tuple(scores), count, finite or None)
    _check(location, listed)
    return listed


def _check(location: Location, item: CandidateList) -> None:
    if not item.documents:
        raise location.error(f"query {item.query_id!r} has no documents")
    if len(set(item.documents)) < len(item.documents):
        twice = next(d for n, d in enumerate(item.documents) if d in item.documents[:n])
        raise location.error(f"document {twice!r} is there twice")
    if not 0 <= item.relevant <= len(item.documents):
        raise location.error(f"{item.relevant} of {len(item.documents)} documents relevant")
    if item.scores is not None:
        if len(item.scores) != len(item.documents):
            raise location.error(f"{len(item.scores)} scores for {len(item.documents)} documents")
        for document, score in zip(item.documents, item.scores, strict=True):
            if not math.isfinite(score):
                raise location.error(f"score {score} of {document!r} is not finite")


def _array(location: Location, fields: Mapping[str, Any], key: str) -> list[Any]:
    value = fields.get(key)
    if not isinstance(value, list):
        raise location.error(f"{key} must be an array")
    return value


def _id(location: Location, value: Any) -> str:
    # bool is an int to Python but no id to anyone.
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise location.error(f"an id must be a string or an integer, not {value!r:.40}")
    name = str(value)
    check_id(location, name)
    try:
        name.encode()
    except UnicodeEncodeError:
        raise location.error(f"bad id {name!r}: UTF-8 cannot hold it") from None
    return name


def finite_score(location: Location, value: Any) -> float:
    """Return a finite number. Raises InputError, at ``location``, for any other value."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    try:
        score = float(value) if is_number else math.nan
    except OverflowError:  # an integer of hundreds of digits
        score = math.nan
    if not math.isfinite(score):
        raise location.error(f"a score must be a finite number, not {value!r:.40}")
    return score
