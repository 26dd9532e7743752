"""Verification of all files of an index, and of the numbers in them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lexicept.engines import ExactEngine
from lexicept.engines.joined import JoinedEngine
from lexicept.errors import IndexFormatError, LexiceptError
from lexicept.index.atlas import Atlas
from lexicept.index.impacts import load_statistics
from lexicept.index.manifest import read_manifest, resolved, unknown_entries
from lexicept.index.query_encoders import IndexVocabulary
from lexicept.index.reader import IndexReader
from lexicept.parallel.shards import shards_of
from lexicept.progress import Progress, silent
from lexicept.storage.manifest import damage
from lexicept.storage.texts import TextStore
from lexicept.vectors import canonical_csr


class Verification(NamedTuple):
    """Result of ``verify``."""

    files: int
    problems: list[str]
    """A line for each problem, with the file; empty for an intact index."""
    unknown: list[str]
    """Names of files in the folder that do not belong to the index; changes leave them alone."""


def verify(path: str | os.PathLike[str], progress: Progress = silent) -> Verification:
    """Check sizes and checksums of all files of an index; that texts decode, arrays
    fit together and numbers are finite.

    Of models, only checksums are compared; a backbone outside of the index is checked whenever the
    model is loaded. A missing index, or one of another version, raises IndexFormatError.
    """
    root = resolved(path)
    while True:
        manifest = read_manifest(root)
        files = manifest["files"]
        problems = list(damage(root, files, checksums=True, progress=progress))
        paths = sorted((root / manifest["generation"]).rglob("*"))
        names = [path.relative_to(root).as_posix() for path in paths if path.is_file()]
        problems += [f"{name} is not in the manifest" for name in names if name not in files]
        problems = problems or [*_misfits(root, progress)]
        # An update may have removed this generation meanwhile.
        if not problems or read_manifest(root)["generation"] == manifest["generation"]:
            break
    return Verification(len(files), problems, unknown_entries(root))


def _misfits(root: Path, progress: Progress) -> Iterator[str]:
    """Yield inconsistencies between the intact files of an index."""
    try:
        index = IndexReader.open(root)
    except LexiceptError as error:
        yield str(error)
        return
    checks: list[Callable[[], None]] = [
        partial(_check_texts, index.ids),
        partial(_check_texts, index.titles),
        partial(_check_texts, index.texts),
        partial(_check_ids, index),
        partial(_check_postings, index),
        partial(_check_statistics, index),
    ]
    checks += [index.fields[name].check for name in index.fields]
    checks += [partial(_check_vocabulary, index, entry) for entry in index.vocabularies]
    if index.vectors is not None:
        checks.append(index.vectors.check)
    if index.atlas is not None:
        checks.append(partial(_check_atlas, index, index.atlas))
    for done, check in enumerate(checks, 1):
        try:
            check()
        except LexiceptError as error:
            yield f"{error}" if str(root) in str(error) else f"{index.folder}: {error}"
        progress("parts", done, len(checks))


def _check_texts(texts: Sequence[str]) -> None:
    for _ in texts:
        pass


def _check_ids(index: IndexReader) -> None:
    """Compare hashes of 64 bits, then the few ids with equal hashes: a set of all ids would take
    most of the memory of large indexes."""
    hashes, counts = np.unique(
        np.fromiter(map(hash, index.ids), np.int64, len(index)), return_counts=True
    )
    repeated = {*hashes[counts > 1].tolist()}
    names = [name for name in index.ids if hash(name) in repeated]
    if len({*names}) < len(names):
        raise IndexFormatError(f"{index.folder}: two documents have one id")


def _check_postings(index: IndexReader) -> None:
    engine, folder = index.engine, index.folder
    assert isinstance(engine, ExactEngine | JoinedEngine)
    for postings in [engine] if isinstance(engine, ExactEngine) else [*engine.engines, engine]:
        df = np.zeros(postings.num_dimensions, np.int64)
        for segment in range(postings.num_segments):
            weights = postings.segment(segment)
            if isinstance(postings, ExactEngine):  # the joined engine's come from these
                weights = canonical_csr(weights)
            df += np.bincount(weights.indices, minlength=df.size)
            postings.let_go()
        if (df != postings.df).any():
            raise IndexFormatError(f"{folder}: document frequencies that are not the postings'")


def _check_statistics(index: IndexReader) -> None:
    folder, engine = index.folder / "postings", index.engine
    weighed = engine.kept if isinstance(engine, JoinedEngine) else engine
    collection = load_statistics(folder, weighed.num_documents)
    if sum(statistics.df.size for statistics in collection) != weighed.num_dimensions:
        raise IndexFormatError(f"{folder}: statistics of other vocabularies")


def _check_vocabulary(index: IndexReader, vocabulary: IndexVocabulary) -> None:
    folder = index.folder / vocabulary.name
    _check_texts(vocabulary.terms or ())
    tf = index.stored_tf(vocabulary)
    if tf.indptr.size != len(index) + 1:
        raise IndexFormatError(f"{folder}: frequencies of {tf.indptr.size - 1} documents")
    for shard in shards_of([tf]):
        canonical_csr(*shard.load())
    if not vocabulary.kind.has_model:
        index.vectorizer(vocabulary.name)


def _check_atlas(index: IndexReader, atlas: Atlas) -> None:
    folder = index.folder / "concepts" / "atlas"
    named = set(TextStore(folder / "documents"))
    # The reader would number all ids.
    positions = {name: position for position, name in enumerate(index.ids) if name in named}

    def content(name: str) -> str | None:
        return index.stored(positions[name]).content if name in positions else None

    for concept in Atlas(folder, atlas.labels, atlas.document_counts, len(index), content):
        for example in concept.examples:
            length = len(content(example.document_id) or "")
            if not 0 <= example.start <= example.end <= length:
                raise IndexFormatError(f"{index.folder}: an example of {concept.number} is outside")
