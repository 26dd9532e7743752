"""Datasets of texts, the rows of sentence-transformers, as training data of ids."""

from __future__ import annotations

import json
import os
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
    write_lists,
)
from lexicept.training.candidates.text_rows import read_row_files, to_row


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
    try:
        if _saved(Path(name_or_path)):
            dataset = datasets.load_from_disk(name_or_path)
            rows = dataset[split] if isinstance(dataset, datasets.DatasetDict) else dataset
        else:
            rows = datasets.load_dataset(name_or_path, config, split=split, streaming=True)
        yield from rows
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"dataset {name_or_path!r}, split {split!r}: {error}") from None


def _saved(folder: Path) -> bool:
    """Return whether ``save_to_disk`` wrote a folder."""
    return any((folder / name).is_file() for name in ("dataset_info.json", "dataset_dict.json"))


def import_texts(
    source: str,
    folder: str | os.PathLike[str],
    *,
    split: str = "train",
    config: str | None = None,
    scored_only: bool = False,
) -> Lists:
    """Write a dataset of texts as ``write_texts_dataset`` does.

    Args:
        source: a JSON Lines file or a folder of them, a folder of ``save_to_disk``, or a hub name.
        split, config: of a Hugging Face dataset.
        scored_only: leave out rows without scores.

    Raises:
        InputError: a source that can't be read, or as ``write_texts_dataset``.
    """
    path = Path(source)
    if path.exists() and not _saved(path):
        return write_placed_rows(read_row_files(path), folder, scored_only=scored_only)
    return write_texts_dataset(
        read_texts_dataset(source, split, config), folder, scored_only=scored_only
    )


def write_texts_dataset(
    rows: Iterable[Mapping[str, Any]], folder: str | os.PathLike[str], *, scored_only: bool = False
) -> Lists:
    """Write rows of texts as a BEIR folder with lists, so that training sees ids only.

    Ids are hashes of the texts.

    Args:
        rows: columns in the layout of sentence-transformers or of BGE; see ``text_rows.to_row``.
        scored_only: leave out rows without scores, as SPLARE does (Appendix A).

    Returns:
        The lists, one for each row, in ``lists.jsonl`` beside ``corpus.jsonl``, ``queries.jsonl``
        and ``qrels/train.tsv``.

    Raises:
        InputError: naming the row that has other columns; no rows; or the folder exists.
    """
    source = f"rows for {Path(folder)}"
    placed = ((Place(source, number, "row"), row) for number, row in enumerate(rows, 1))
    return write_placed_rows(placed, folder, scored_only=scored_only)


def write_placed_rows(
    rows: Iterable[tuple[Place, Mapping[str, Any]]],
    folder: str | os.PathLike[str],
    *,
    scored_only: bool = False,
) -> Lists:
    """Write rows as ``write_texts_dataset`` does; errors name each row's place."""
    target = Path(folder)
    with new_folder(target, "dataset") as new:
        (new / "qrels").mkdir()
        with (
            (new / "corpus.jsonl").open("w", encoding="utf-8") as corpus,
            (new / "queries.jsonl").open("w", encoding="utf-8") as queries,
            (new / "qrels" / "train.tsv").open("w", encoding="utf-8") as qrels,
        ):
            lists = _rows_to_lists(rows, scored_only, _once(corpus), _once(queries), qrels)
            write_lists(new / "lists.jsonl", lists)
    return Lists.open(target / "lists.jsonl")


def _rows_to_lists(
    rows: Iterable[tuple[Place, Mapping[str, Any]]],
    scored_only: bool,
    write_document: Callable[[str], str],
    write_query: Callable[[str], str],
    qrels: TextIO,
) -> Iterator[CandidateList]:
    judged: set[tuple[str, str]] = set()
    qrels.write("query-id\tcorpus-id\tscore\n")
    for place, fields in rows:
        row = to_row(place, fields)
        if scored_only and row.scores is None:
            continue
        ids = [write_document(text) for text in row.texts]
        values = ids if row.scores is None else list(zip(ids, row.scores, strict=True))
        query = write_query(row.query)
        item = assemble(place, query, values[: row.relevant], values[row.relevant :])
        for document in item.documents[: item.relevant]:
            if (query, document) not in judged:
                judged.add((query, document))
                qrels.write(f"{query}\t{document}\t1\n")
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
