"""Datasets of texts, the rows of sentence-transformers, as training data of ids."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

from lexicept.corpora.records import Place
from lexicept.errors import InputError
from lexicept.storage.workspace import new_folder
from lexicept.training.candidates.lists import (
    CandidateList,
    Lists,
    assemble,
    finite_score,
    write_lists,
)

_QUERIES = ("query", "anchor")
_SCORES = ("score", "scores", "label", "labels")


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
            dataset = datasets.load_from_disk(name_or_path)
            rows = dataset[split] if isinstance(dataset, datasets.DatasetDict) else dataset
        else:
            rows = datasets.load_dataset(name_or_path, config, split=split, streaming=True)
        yield from rows
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"dataset {name_or_path!r}, split {split!r}: {error}") from None


def write_texts_dataset(rows: Iterable[Mapping[str, Any]], folder: str | os.PathLike[str]) -> Lists:
    """Write rows of texts as a BEIR folder with lists, so that training sees ids only.

    The columns are those of sentence-transformers: ``query`` or ``anchor``; ``positive``;
    ``negative``, ``negative_1``, ...; and maybe ``score``, ``scores``, ``label`` or ``labels``:
    either a score for each document or, as for margin losses, the margins of the positive over
    each negative. Ids are hashes of the texts.

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
        item = assemble(place, write_query(query), values[:1], values[1:])
        pair = (item.query_id, ids[0])
        if pair not in judged:
            judged.add(pair)
            qrels.write(f"{pair[0]}\t{pair[1]}\t1\n")
        yield item


def _once(file: TextIO) -> Callable[[str], str]:
    """Return a function that returns a text's id and writes the text if it is new."""
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
    """Return the query, and the positive and the negatives of a row."""
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
    """Return a score for each document; the positive has 0 where there are margins."""
    value = next((row[name] for name in _SCORES if name in row), None)
    if value is None:
        return None
    values = [finite_score(place, v) for v in (value if isinstance(value, list) else [value])]
    if values and len(values) == documents - 1:
        return [0.0, *(-margin for margin in values)]
    if len(values) != documents:
        raise place.error(f"{len(values)} scores for {documents} documents")
    return values
