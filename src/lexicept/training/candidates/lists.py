"""Candidate lists, the training data: a query, its relevant documents, and others beside them.

Our files are JSON Lines, with scores for the relevant documents first and then the candidates::

    {"query_id": "q", "relevant": ["d1"], "candidates": ["d7", "d3"], "scores": [9.1, 2, 1.5]}
"""

from __future__ import annotations

import codecs
import json
import math
import os
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, TextIO, overload

import numpy as np

from lexicept.corpora import Qrel
from lexicept.corpora.records import Place, check_id, readable
from lexicept.errors import InputError
from lexicept.storage.files import replacing_text
from lexicept.storage.workspace import new_folder
from lexicept.vectors import Integers

_ACCEPTED = (
    "accepted: lexicept's lists, ColBERT's JSON Lines ([qid, [pid, score], ...]), hard negatives "
    'of sentence-transformers ({"qid", "pos", "neg"}), and triples (qid, positive, negative) '
    "between tabs"
)

_QUERIES = ("query", "anchor")
_SCORES = ("score", "scores", "label", "labels")


class CandidateList(NamedTuple):
    """A query and documents to learn from: those known to be relevant, then others."""

    query_id: str
    documents: tuple[str, ...]
    """Distinct ids, the relevant ones first."""
    relevant: int
    """How many of the documents, from the first on, are known to be relevant; maybe none."""
    scores: tuple[float, ...] | None = None
    """A teacher's score of every document."""


def from_qrels(qrels: Iterable[Qrel]) -> list[CandidateList]:
    """A list per query of its relevant documents (relevance above 0) alone, as they come."""
    relevant: dict[str, dict[str, None]] = {}
    for qrel in qrels:
        if qrel.relevance > 0:
            relevant.setdefault(qrel.query_id, {})[qrel.document_id] = None
    return [CandidateList(query, tuple(ids), len(ids)) for query, ids in relevant.items()]


def write_lists(path: str | os.PathLike[str], lists: Iterable[CandidateList]) -> Lists:
    """Write lists as they come, atomically, and open the file.

    Raises:
        InputError: no lists, or what ``to_line`` refuses.
    """
    target = Path(path)
    with replacing_text(target) as file:
        number = 0
        for number, item in enumerate(lists, 1):
            file.write(to_line(item, Place(str(target), number)) + "\n")
        if not number:
            raise InputError(f"{target}: no lists to write")
    return Lists.open(target)


def to_line(item: CandidateList, place: Place) -> str:
    """A list as a line of our files.

    Raises:
        InputError: at ``place``: no documents, one twice, bad ids, or scores that are not finite
            or not one for each document.
    """
    _check(place, item)
    for value in (item.query_id, *item.documents):
        _id(place, value)
    fields: dict[str, Any] = {
        "query_id": item.query_id,
        "relevant": item.documents[: item.relevant],
        "candidates": item.documents[item.relevant :],
    }
    if item.scores is not None:
        fields["scores"] = [float(score) for score in item.scores]
    return json.dumps(fields, ensure_ascii=False)


class _Format(NamedTuple):
    """A kind of line."""

    parse: Callable[[Place, str], CandidateList]
    plausible: Callable[[bytes], bool]
    """Whether bytes look like such a line; what does not is parsed at once, to be refused."""


class Lists(Sequence[CandidateList]):
    """The lists of a file, parsed one at a time when they are asked for; see ``open``."""

    def __init__(
        self, path: str, offsets: Integers, parse: Callable[[Place, str], CandidateList]
    ) -> None:
        self.path = path
        self._offsets = offsets
        self._parse = parse
        self._bytes: Any = np.memmap(path, dtype=np.uint8, mode="r")

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Lists:
        """Find the lists of a file, whose format its first line tells.

        Read are our own files; ColBERT's JSON Lines ``[qid, [pid, score], ...]`` and ``[qid, pid,
        ...]``, the first document being the relevant one; sentence-transformers'
        ``msmarco-hard-negatives``, all systems' negatives in their order; and triples ``qid \\t
        positive \\t negative`` of ids. In the formats of others a document that comes again is
        left out. Lines that are plainly of another kind are refused now, others when they are
        asked for.

        Raises:
            InputError: not such a file, gzipped, without lists, or a bad line.
        """
        name = os.fspath(path)
        offsets = array("q")
        kind: _Format | None = None
        position = 0
        with readable(name), open(name, "rb") as file:
            for number, raw in enumerate(file, 1):
                if number == 1 and raw.startswith(b"\x1f\x8b"):
                    raise InputError(f"{name}: gzipped, and read in random order: gunzip it first")
                if line := _line(raw, first=number == 1):
                    place = Place(name, number)
                    if kind is None:
                        kind = _format(place, _decode(place, line))
                        kind.parse(place, _decode(place, line))
                    elif not kind.plausible(line):
                        kind.parse(place, _decode(place, line))
                    offsets.append(position)
                position += len(raw)
        if kind is None:
            raise InputError(f"{name}: no lists; {_ACCEPTED}")
        offsets.append(position)
        return cls(name, np.frombuffer(offsets, dtype=np.int64), kind.parse)

    def __len__(self) -> int:
        return int(self._offsets.size) - 1

    @overload
    def __getitem__(self, position: int) -> CandidateList: ...
    @overload
    def __getitem__(self, position: slice) -> list[CandidateList]: ...
    def __getitem__(self, position: int | slice) -> CandidateList | list[CandidateList]:
        """One list or several. Raises InputError for a bad line."""
        if isinstance(position, slice):
            return [self[i] for i in range(*position.indices(len(self)))]
        if position < 0:
            position += len(self)
        if not 0 <= position < len(self):
            raise IndexError(position)
        start, end = (int(offset) for offset in self._offsets[position : position + 2])
        line = _line(self._bytes[start:end].tobytes(), first=start == 0)
        try:
            return self._parse_line(Place(self.path), line)
        except InputError:
            # Lines are counted for the message only.
            before = (self._bytes[i : min(i + 2**20, start)] for i in range(0, start, 2**20))
            number = 1 + sum(part.tobytes().count(b"\n") for part in before)
            return self._parse_line(Place(self.path, number), line)

    def __iter__(self) -> Iterator[CandidateList]:
        return (self[i] for i in range(len(self)))

    def _parse_line(self, place: Place, line: bytes) -> CandidateList:
        return self._parse(place, _decode(place, line))


def _line(raw: bytes, *, first: bool) -> bytes:
    return (raw.removeprefix(codecs.BOM_UTF8) if first else raw).strip(b" \r\n")


def _format(place: Place, line: str) -> _Format:
    """The kind of a file that has this first line."""
    if line.startswith("["):
        return _Format(_parse_colbert, lambda raw: raw[:1] == b"[" and raw[-1:] == b"]")
    if line.startswith("{"):
        fields = _json(place, line)
        for key, parse in (("query_id", _parse_ours), ("qid", _parse_hard_negatives)):
            if key in fields:
                return _Format(parse, lambda raw: raw[:1] == b"{" and raw[-1:] == b"}")
    elif line.count("\t") == 2:
        return _Format(_parse_triple, lambda raw: raw.count(b"\t") == 2)
    raise place.error(f"not a line of lists; {_ACCEPTED}")


def _parse_ours(place: Place, line: str) -> CandidateList:
    fields = _json(place, line)
    if not isinstance(fields, dict):
        raise place.error("not a JSON object")
    relevant, candidates = (
        tuple(_id(place, value) for value in _array(place, fields, key))
        for key in ("relevant", "candidates")
    )
    scores = None
    if fields.get("scores") is not None:
        scores = tuple(_score(place, value) for value in _array(place, fields, "scores"))
    query = _id(place, fields.get("query_id"))
    found = CandidateList(query, relevant + candidates, len(relevant), scores)
    _check(place, found)
    return found


def _parse_colbert(place: Place, line: str) -> CandidateList:
    values = _json(place, line)
    if not isinstance(values, list) or len(values) < 2:
        raise place.error("not a JSON array of a query and its documents")
    return _assemble(place, values[0], values[1:2], values[2:])


def _parse_hard_negatives(place: Place, line: str) -> CandidateList:
    fields = _json(place, line)
    if not isinstance(fields, dict):
        raise place.error("not a JSON object")
    systems = fields.get("neg")
    if not isinstance(systems, dict):
        raise place.error("neg must be an object of arrays, by system")
    negatives = [value for system in systems for value in _array(place, systems, system)]
    return _assemble(place, fields.get("qid"), _array(place, fields, "pos"), negatives)


def _parse_triple(place: Place, line: str) -> CandidateList:
    columns = line.split("\t")
    if len(columns) != 3:
        raise place.error(f"{len(columns)} columns, expected query, positive, negative")
    query, positive, negative = columns
    if positive == negative:
        raise place.error(f"{positive!r} is both positive and negative")
    return _assemble(place, query, [positive], [negative])


def _assemble(
    place: Place, query: Any, relevant: Sequence[Any], others: Sequence[Any]
) -> CandidateList:
    """A list from ids, ``[id, score]`` or ``{"pid": id, "ce-score": score}``, each id once."""
    scores: dict[str, float | None] = {}
    count = 0
    for number, value in enumerate([*relevant, *others]):
        match value:
            case [name, score] | {"pid": name, "ce-score": score}:
                scores.setdefault(_id(place, name), _score(place, score))
            case {"pid": name} | name:
                scores.setdefault(_id(place, name), None)
        if number < len(relevant):
            count = len(scores)
    known = tuple(score for score in scores.values() if score is not None)
    if known and len(known) < len(scores):
        raise place.error("some documents have scores and others have none")
    found = CandidateList(_id(place, query), tuple(scores), count, known or None)
    _check(place, found)
    return found


def _check(place: Place, item: CandidateList) -> None:
    if not item.documents:
        raise place.error(f"query {item.query_id!r} has no documents")
    if len(set(item.documents)) < len(item.documents):
        twice = next(d for n, d in enumerate(item.documents) if d in item.documents[:n])
        raise place.error(f"document {twice!r} is there twice")
    if not 0 <= item.relevant <= len(item.documents):
        raise place.error(f"{item.relevant} of {len(item.documents)} documents relevant")
    if item.scores is not None:
        if len(item.scores) != len(item.documents):
            raise place.error(f"{len(item.scores)} scores for {len(item.documents)} documents")
        for document, score in zip(item.documents, item.scores, strict=True):
            if not math.isfinite(score):
                raise place.error(f"score {score} of {document!r} is not finite")


def _decode(place: Place, line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise place.error(f"not UTF-8: {error.reason}") from None


def _json(place: Place, line: str) -> Any:
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise place.error(f"not valid JSON: {error.msg} (column {error.colno})") from None
    except (ValueError, RecursionError) as error:  # an endless number, endless nesting
        raise place.error(f"not valid JSON: {error}") from None


def _array(place: Place, fields: Mapping[str, Any], key: str) -> list[Any]:
    value = fields.get(key)
    if not isinstance(value, list):
        raise place.error(f"{key} must be an array")
    return value


def _id(place: Place, value: Any) -> str:
    # bool is an int to Python but no id to anyone.
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise place.error(f"an id must be a string or an integer, not {value!r:.40}")
    name = str(value)
    check_id(place, name)
    try:
        name.encode()
    except UnicodeEncodeError:
        raise place.error(f"bad id {name!r}: UTF-8 cannot hold it") from None
    return name


def _score(place: Place, value: Any) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    try:
        score = float(value) if number else math.nan
    except OverflowError:  # an integer of hundreds of digits
        score = math.nan
    if not math.isfinite(score):
        raise place.error(f"a score must be a finite number, not {value!r:.40}")
    return score


# Datasets of texts


def read_texts_dataset(
    name_or_path: str, split: str = "train", config: str | None = None
) -> Iterator[dict[str, Any]]:
    """Stream the rows of a Hugging Face dataset: a folder of ``save_to_disk``, or a hub name.

    Raises:
        InputError: the package ``datasets`` is missing or can't read it.
    """
    try:
        datasets = import_module("datasets")
    except ImportError:
        raise InputError("Hugging Face datasets need `pip install datasets`") from None
    folder = Path(name_or_path)
    saved = [folder / name for name in ("dataset_info.json", "dataset_dict.json")]
    try:
        if any(path.is_file() for path in saved):
            found = datasets.load_from_disk(name_or_path)
            rows = found[split] if isinstance(found, datasets.DatasetDict) else found
        else:
            rows = datasets.load_dataset(name_or_path, config, split=split, streaming=True)
        yield from rows
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"dataset {name_or_path!r}, split {split!r}: {error}") from None


def write_texts_dataset(rows: Iterable[Mapping[str, Any]], folder: str | os.PathLike[str]) -> Lists:
    """Write rows of texts as a BEIR folder with lists, so that training sees ids only.

    The columns are those of sentence-transformers: ``query`` or ``anchor``; ``positive``;
    ``negative``, ``negative_1``, ...; and maybe ``score``, ``scores``, ``label`` or ``labels``:
    either a score for each document or, as for margin losses, what the positive's score is above
    each negative's. Ids are hashes of the texts.

    Returns:
        The lists, one for each row, in ``lists.jsonl`` beside ``corpus.jsonl``, ``queries.jsonl``
        and ``qrels/train.tsv``.

    Raises:
        InputError: naming the row that has other columns; or the folder exists.
    """
    target = Path(folder)
    with new_folder(target, "dataset") as new:
        (new / "qrels").mkdir()
        with (
            (new / "corpus.jsonl").open("w", encoding="utf-8") as corpus,
            (new / "queries.jsonl").open("w", encoding="utf-8") as queries,
            (new / "qrels" / "train.tsv").open("w", encoding="utf-8") as qrels,
        ):
            lists = _rows_to_lists(rows, str(target), _once(corpus), _once(queries), qrels)
            write_lists(new / "lists.jsonl", lists)
    return Lists.open(target / "lists.jsonl")


def _rows_to_lists(
    rows: Iterable[Mapping[str, Any]],
    target: str,
    write_document: Callable[[str], str],
    write_query: Callable[[str], str],
    qrels: TextIO,
) -> Iterator[CandidateList]:
    judged: set[tuple[str, str]] = set()
    qrels.write("query-id\tcorpus-id\tscore\n")
    for number, row in enumerate(rows, 1):
        place = Place(f"rows for {target}", number, "row")
        query, texts = _texts(place, row)
        ids = [write_document(text) for text in texts]
        scores = _scores(place, row, len(texts))
        values = ids if scores is None else list(zip(ids, scores, strict=True))
        found = _assemble(place, write_query(query), values[:1], values[1:])
        pair = (found.query_id, ids[0])
        if pair not in judged:
            judged.add(pair)
            qrels.write(f"{pair[0]}\t{pair[1]}\t1\n")
        yield found


def _once(file: TextIO) -> Callable[[str], str]:
    """A function that gives a text's id, and writes the text where it is new."""
    known: set[bytes] = set()

    def write(text: str) -> str:
        digest = sha256(text.encode()).digest()[:10]
        if digest not in known:
            known.add(digest)
            fields = {"_id": digest.hex(), "text": text}
            file.write(json.dumps(fields, ensure_ascii=False) + "\n")
        return digest.hex()

    return write


def _texts(place: Place, row: Mapping[str, Any]) -> tuple[str, list[str]]:
    """The query, and the positive and the negatives of a row."""
    columns = [next((name for name in _QUERIES if name in row), _QUERIES[0]), "positive"]
    columns += [name for name in row if re.fullmatch(r"negative(_\d+)?", name)]
    texts = []
    for name in columns:
        text = row.get(name)
        if not isinstance(text, str):
            raise place.error(f"the column {name} must hold a text; columns: {', '.join(row)}")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise place.error(f"the column {name}: {error.reason}") from None
        texts.append(text)
    return texts[0], texts[1:]


def _scores(place: Place, row: Mapping[str, Any], documents: int) -> list[float] | None:
    """A score for each document; the margins of negatives become scores below the positive's 0."""
    value = next((row[name] for name in _SCORES if name in row), None)
    if value is None:
        return None
    values = [_score(place, v) for v in (value if isinstance(value, list) else [value])]
    if values and len(values) == documents - 1:
        return [0.0, *(-margin for margin in values)]
    if len(values) != documents:
        raise place.error(f"{len(values)} scores for {documents} documents")
    return values
