"""Pseudo-queries: judged queries made from the documents, for tuning and training."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np

from lexicept.corpora import Document, Qrel, Query
from lexicept.errors import InputError
from lexicept.storage.files import replacing_text
from lexicept.storage.workspace import refuse_existing

_SENTENCE_END = re.compile(r"(?<=[.!?。！？])\s+|\n+")
_MIN_WORDS, _MAX_WORDS = 5, 30
_MAX_SPAN = 15


def random_for(seed: int, name: str) -> np.random.Generator:
    """Return a random generator of a document or query, independent of other names."""
    return np.random.default_rng((seed, *hashlib.sha256(name.encode()).digest()))


def generate(
    documents: Iterable[Document], source: str = "mixed", per_document: int = 1, seed: int = 0
) -> Iterator[tuple[str, str]]:
    """Yield document ids and queries, up to ``per_document`` different queries of each document,
    which depend on the seed and the document alone. Raises InputError for no such source, or
    ``per_document`` below 1.

    Args:
        source: ``title``; ``sentence``, a random sentence of 5 words or more, cut at 30; ``span``,
            a random run of 5 to 15 words of the text; or ``mixed``, random for each query.
    """
    if source not in (*_SOURCES, "mixed"):
        accepted = ", ".join([*_SOURCES, "mixed"])
        raise InputError(f"no kind {source!r} of pseudo-queries, only: {accepted}")
    if per_document < 1:
        raise InputError(f"per_document must be at least 1, not {per_document}")
    makers = list(_SOURCES.values()) if source == "mixed" else [_SOURCES[source]]
    for document in documents:
        random = random_for(seed, document.id)
        queries = [make(document, random) for make in makers]
        texts: set[str] = set()
        while queries and len(texts) < per_document:
            drawn = queries[random.integers(len(queries))]
            query = next(drawn, None)
            if query is None:
                queries.remove(drawn)
            elif query not in texts:
                texts.add(query)
                yield document.id, query


def _title(document: Document, random: np.random.Generator) -> Iterator[str]:
    if words := document.title.split():
        yield " ".join(words)


def _sentences(document: Document, random: np.random.Generator) -> Iterator[str]:
    sentences = sentences_of(document.text)
    for index in random.permutation(len(sentences)):
        yield " ".join(sentences[index])


def sentences_of(text: str) -> list[list[str]]:
    """Return the words of each sentence of 5 words or more, cut at 30."""
    sentences = (sentence.split()[:_MAX_WORDS] for sentence in _SENTENCE_END.split(text))
    return [words for words in sentences if len(words) >= _MIN_WORDS]


def _spans(document: Document, random: np.random.Generator) -> Iterator[str]:
    words = document.text.split()
    for start in random.permutation(max(0, len(words) - _MIN_WORDS + 1)):
        length = random.integers(_MIN_WORDS, min(_MAX_SPAN, len(words) - start), endpoint=True)
        yield " ".join(words[start : start + length])


_Source = Callable[[Document, np.random.Generator], Iterator[str]]
_SOURCES: dict[str, _Source] = {"title": _title, "sentence": _sentences, "span": _spans}


def named(pairs: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str, str]]:
    """Yield query id, document id and query; a query's id is the document's id with a number."""
    counts: Counter[str] = Counter()
    for document, query in pairs:
        counts[document] += 1
        yield f"{document}-{counts[document]}", document, query


def write(folder: str | os.PathLike[str], pairs: Iterable[tuple[str, str]]) -> int:
    """Write pairs of document ids and pseudo-queries as a BEIR folder, and return the number; see
    ``write_judged``. Raises InputError for a folder with queries."""
    for path in (Path(folder, "queries.jsonl"), Path(folder, "qrels", "train.tsv")):
        refuse_existing(path)
    judged = ((Query(id_, text), [Qrel(id_, doc, 1)]) for id_, doc, text in named(pairs))
    return write_judged(Path(folder), "train", judged)


def write_judged(folder: Path, split: str, judged: Iterable[tuple[Query, Iterable[Qrel]]]) -> int:
    """Write queries with judgements as a BEIR folder's ``queries.jsonl`` and ``qrels/SPLIT.tsv``;
    return the number of queries. Raises InputError without queries."""
    count = 0
    queries, qrels = folder / "queries.jsonl", folder / "qrels" / f"{split}.tsv"
    with replacing_text(queries) as query_file, replacing_text(qrels) as qrels_file:
        qrels_file.write("query-id\tcorpus-id\tscore\n")
        for query, judgements in judged:
            count += 1
            fields = {"_id": query.id, "text": query.text}
            query_file.write(json.dumps(fields, ensure_ascii=False) + "\n")
            for qrel in judgements:
                qrels_file.write(f"{query.id}\t{qrel.document_id}\t{qrel.relevance:g}\n")
        if not count:
            raise InputError(f"{queries}: there are no queries to write")
    return count
