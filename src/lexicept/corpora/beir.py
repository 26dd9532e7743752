"""BEIR folders: corpus.jsonl, queries.jsonl or queries.tsv, qrels/SPLIT.tsv, each maybe gzipped."""

import os
import re
from collections.abc import Iterator

from lexicept.corpora import json_lines, tsv
from lexicept.corpora.records import Qrel, Query, Records, readable
from lexicept.errors import InputError


def corpus_file(folder: str) -> str | None:
    """Return the folder's corpus.jsonl or corpus.jsonl.gz; None without either."""
    return _find(folder, "corpus.jsonl")


def read_queries(folder: str) -> Records[Query]:
    """Yield all queries, judged or not. Raises InputError without a file of queries."""
    if path := _find(folder, "queries.jsonl"):
        return json_lines.read_queries(path)
    if path := _find(folder, "queries.tsv"):
        return tsv.read_queries(path)
    raise InputError(f"{folder}: no queries.jsonl or queries.tsv, gzipped or not")


def read_qrels(folder: str, split: str) -> Iterator[Qrel]:
    """Yield the judgements of one split. Raises InputError for an unknown split."""
    qrels = os.path.join(folder, "qrels")
    if path := _find(qrels, f"{split}.tsv"):
        return tsv.read_qrels(path)
    splits = ", ".join(_splits(qrels)) or "none"
    raise InputError(f"{qrels}: no split {split!r}; splits here: {splits}")


def _find(folder: str, name: str) -> str | None:
    paths = (os.path.join(folder, name + ending) for ending in ("", ".gz"))
    return next(filter(os.path.isfile, paths), None)


def _splits(qrels: str) -> list[str]:
    if not os.path.isdir(qrels):
        return []
    with readable(qrels):
        matches = [re.fullmatch(r"(.+)\.tsv(?:\.gz)?", name) for name in os.listdir(qrels)]
    return sorted({match[1] for match in matches if match})
