"""Rows of texts, in the layouts of sentence-transformers and of BGE's training data."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from lexicept.corpora.json_lines import read_objects
from lexicept.corpora.records import Place
from lexicept.errors import InputError
from lexicept.training.candidates.lists import finite_score

_QUERIES = ("query", "anchor")
_SCORES = ("score", "scores", "label", "labels")
_FILES = ("*.jsonl", "*.jsonl.gz", "*.ndjson", "*.ndjson.gz")


class TextRow(NamedTuple):
    """A query, the texts to learn from, and a teacher's scores of them."""

    query: str
    texts: list[str]
    relevant: int
    """Number of relevant texts, which come first."""
    scores: list[float] | None
    """A score of each text; None where the row has none."""


def to_row(place: Place, fields: Mapping[str, Any]) -> TextRow:
    """Return the row that columns hold.

    The layout of BGE has ``query``, ``pos`` and ``neg``, lists of texts, and maybe ``pos_scores``
    and ``neg_scores``; others of its columns, such as ``prompt``, say nothing of relevance. That of
    sentence-transformers has ``query`` or ``anchor``, ``positive``, ``negative``, ``negative_1``,
    ..., and maybe ``score``, ``scores``, ``label`` or ``labels``: either a score for each document
    or, as for margin losses, the margins of the positive over each negative.

    Raises:
        InputError: naming the place of a row with other columns.
    """
    return _lists(place, fields) if "pos" in fields else _columns(place, fields)


def read_row_files(path: Path) -> Iterator[tuple[Place, dict[str, Any]]]:
    """Yield the rows of a JSON Lines file, or of all such files in a folder, by their names.

    Raises:
        InputError: no such file, or a line that is no JSON object.
    """
    files = [path]
    if path.is_dir():
        files = sorted({file for pattern in _FILES for file in path.rglob(pattern)})
    if not files:
        raise InputError(f"{path}: no JSON Lines files (.jsonl, .ndjson) here")
    for file in files:
        yield from read_objects(str(file))


def _lists(place: Place, fields: Mapping[str, Any]) -> TextRow:
    query = _text(place, fields, "query", fields.get("query"))
    texts = {name: _texts(place, fields, name) for name in ("pos", "neg")}
    known = {name: fields.get(f"{name}_scores") for name in texts}
    given = [name for name in texts if known[name] is not None]
    if texts["pos"] + texts["neg"] == []:
        raise place.error("pos and neg are empty")
    scores: list[float] | None = None
    if given:
        scores = []
        for name, listed in texts.items():
            scores += _numbers(place, f"{name}_scores", known[name], listed)
    return TextRow(query, texts["pos"] + texts["neg"], len(texts["pos"]), scores)


def _numbers(place: Place, name: str, value: Any, texts: list[str]) -> list[float]:
    """Return the scores of some texts, which may be missing where there are no texts."""
    values = [] if value is None and not texts else value
    if not isinstance(values, list):
        raise place.error(f"{name} must be a list of numbers")
    if len(values) != len(texts):
        raise place.error(f"{len(values)} {name} for {len(texts)} texts")
    return [finite_score(place, number) for number in values]


def _texts(place: Place, fields: Mapping[str, Any], name: str) -> list[str]:
    values = fields.get(name)
    if not isinstance(values, list):
        raise place.error(f"{name} must be a list of texts; columns: {', '.join(fields)}")
    return [_text(place, fields, name, value) for value in values]


def _text(place: Place, fields: Mapping[str, Any], name: str, text: Any) -> str:
    if not isinstance(text, str):
        raise place.error(f"the column {name} must hold a text; columns: {', '.join(fields)}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise place.error(f"the column {name}: {error.reason}") from None
    return text


def _columns(place: Place, fields: Mapping[str, Any]) -> TextRow:
    names = [next((name for name in _QUERIES if name in fields), _QUERIES[0]), "positive"]
    names += [name for name in fields if re.fullmatch(r"negative(_\d+)?", name)]
    query, *texts = [_text(place, fields, name, fields.get(name)) for name in names]
    return TextRow(query, texts, 1, _scores(place, fields, len(texts)))


def _scores(place: Place, fields: Mapping[str, Any], documents: int) -> list[float] | None:
    """Return a score for each document; the positive has 0 where there are margins."""
    value = next((fields[name] for name in _SCORES if name in fields), None)
    if value is None:
        return None
    values = [finite_score(place, v) for v in (value if isinstance(value, list) else [value])]
    if values and len(values) == documents - 1:
        return [0.0, *(-margin for margin in values)]
    if len(values) != documents:
        raise place.error(f"{len(values)} scores for {documents} documents")
    return values
