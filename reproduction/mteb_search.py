"""MTEB: retrieval and reranking tasks, searched with the settings of an index."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

from mteb.models import ModelMeta

from lexicept.corpora import Document
from lexicept.encoding.vectorizer import DocumentEncoder
from lexicept.encoding.words import WordVectorizer
from lexicept.errors import InputError
from lexicept.evaluation.runs import run_of_hits
from lexicept.index.builder import IndexBuilder
from lexicept.index.reader import IndexReader
from lexicept.pipelines.opened import IndexLike, reader_of
from lexicept.queries.syntax import ParsedQuery

OF_DOCUMENTS = ("terms.", "atlas/")
"""Files of a vocabulary that depend on the indexed documents."""

Row = Mapping[str, Any]


class LexiceptSearch:
    """MTEB's ``SearchProtocol``, a model for ``mteb.evaluate``.

    The corpus of every task becomes an index in a temporary folder, built with the settings of the
    given index: language of words, model of concepts, weighting, pruning, RRA and bits of the
    weights. The documents of the given index are not searched; a single document is enough.

    Args:
        index: an opened index, or the path of one.
        vocabulary: build and search one vocabulary only; None takes all vocabularies.

    Raises:
        InputError: the index has no such vocabulary.
    """

    def __init__(self, index: IndexLike, vocabulary: str | None = None) -> None:
        index = reader_of(index)
        if vocabulary is not None:
            index.span(vocabulary)  # raises InputError for an unknown vocabulary
        names = [v.name for v in index.vocabularies if vocabulary in (None, v.name)]
        self._like, self._names = index, names
        self._corpus: IndexReader | None = None
        self._folder = Path(tempfile.mkdtemp(prefix="lexicept-mteb-"))
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        # MTEB keeps results by name and revision: another setting must have another revision.
        self.mteb_model_meta = ModelMeta.create_empty(
            {
                "name": f"lexicept/{'-'.join(names)}",
                "revision": _fingerprint(index, names),
                "model_type": ["sparse"],
            }
        )

    def index(self, corpus: Iterable[Row], **task: Any) -> None:
        """Index the corpus of a task, entries with ``id``, ``text`` and possibly ``title``, in
        place of the previous corpus. Raises InputError without documents or for a duplicate id."""
        self._corpus = None
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir()
        with IndexBuilder(self._folder / "corpus") as builder:
            builder.add_documents(_documents(corpus), {})
            for name in self._names:
                vectorizer = _as_new(self._like.encoders[name].of_documents())
                vectors = self._like.vectors if name == "concepts" else None
                size = 0 if vectors is None else vectors.d
                settings = self._like.settings[name]
                builder.add_vocabulary(vectorizer, settings, vector_size=size)
            self._corpus = builder.commit(self._like.rra, self._like.engine.weight_bits)

    def search(
        self,
        queries: Iterable[Row],
        *,
        top_k: int,
        top_ranked: Mapping[str, Sequence[str]] | None = None,
        **task: Any,
    ) -> dict[str, dict[str, float]]:
        """Search the indexed corpus.

        Args:
            queries: entries with ``id``, ``text`` and possibly ``instruction``, which is appended
                to the text as for MTEB's own models.
            top_ranked: the candidates of each query in a reranking task.

        Returns:
            Query id → document id → score of matching documents.

        Raises:
            InputError: a query that is no text, or nothing was indexed.
        """
        if self._corpus is None:
            raise InputError("search: no corpus was indexed")
        texts = {row["id"]: ParsedQuery(_query(row)) for row in queries}
        if top_ranked is None:
            return run_of_hits(list(texts), self._corpus.search(list(texts.values()), top_k))
        candidates = []
        for name, text in texts.items():
            allowed = set(top_ranked.get(name, ()))
            (hits,) = self._corpus.search([text], len(self._corpus))
            candidates.append([hit for hit in hits if hit.id in allowed][:top_k])
        return run_of_hits(list(texts), candidates)


def _as_new(vectorizer: DocumentEncoder) -> DocumentEncoder:
    """Return a vectorizer, empty if new documents extend the vocabulary."""
    if vectorizer.grows:
        words = cast(WordVectorizer, vectorizer)
        return WordVectorizer(words.tokenizer.language, (), words.query_stop_words)
    return vectorizer


def _documents(corpus: Iterable[Row]) -> Iterator[Document]:
    return (Document(row["id"], row["text"], row.get("title") or "") for row in corpus)


def _query(row: Row) -> str:
    text, instruction = row["text"], row.get("instruction")
    if not isinstance(text, str):
        raise InputError(f"query {row['id']}: only texts are searched, not {text!r:.40}")
    return f"{text} {instruction}" if instruction else text


def _fingerprint(index: IndexReader, names: Sequence[str]) -> str:
    """Return 40 hexadecimal digits of all settings of an index."""
    files = {}
    for name in names:
        prefix = f"{index.folder.name}/{name}/"
        for file, entry in index.manifest["files"].items():
            path = file.removeprefix(prefix)
            if path != file and not path.startswith(OF_DOCUMENTS):
                files[f"{name}/{path}"] = entry["sha256"]
    content = {
        "lexicept": version("lexicept"),
        "files": files,
        "settings": {name: index.settings[name].to_json() for name in names},
        "rra": None if index.rra is None else asdict(index.rra),
        "weight_bits": index.engine.weight_bits,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:40]
