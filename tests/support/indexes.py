"""Small indexes of words, and of vowels as concepts."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lexicept.corpora import Document
from lexicept.encoding.words import WordVectorizer
from lexicept.index.atlas import Findings
from lexicept.index.builder import IndexBuilder
from lexicept.index.impacts import RRASettings, VocabularySettings
from lexicept.index.reader import IndexReader
from lexicept.storage.manifest import describe_files, save_manifest
from lexicept.weighting import BM25
from support.vowels import Vowels, findings


def build_of(
    path: Path,
    documents: Mapping[str, str] | Sequence[Document],
    *vocabularies: tuple[Any, VocabularySettings],
    rra: RRASettings | None = None,
    weight_bits: int = 32,
    atlas: Findings | None = None,
) -> IndexReader:
    """An index of documents, or of texts by id, with each vectorizer and its settings."""
    if isinstance(documents, Mapping):
        documents = [Document(name, text) for name, text in documents.items()]
    with IndexBuilder(path) as builder:
        builder.add_documents(documents, {})
        for vectorizer, settings in vocabularies:
            builder.add_vocabulary(vectorizer, settings)
        if atlas is not None:
            builder.add_atlas(atlas)
        return builder.commit(rra, weight_bits=weight_bits)


def build(
    path: Path,
    documents: Mapping[str, str] | Sequence[Document],
    *,
    concepts: VocabularySettings | None = None,
    rra: RRASettings | None = None,
    words: VocabularySettings | None = None,
) -> IndexReader:
    """An index of words, and of vowels if ``concepts`` says how to weigh them."""
    vocabularies: list[tuple[Any, VocabularySettings]] = [
        (WordVectorizer("en"), words or VocabularySettings(BM25()))
    ]
    if concepts is not None:
        vocabularies.append((Vowels(), concepts))
    return build_of(path, documents, *vocabularies, rra=rra)


def scores_of(index: IndexReader, query: str, vocabulary: str | None = None) -> dict[str, float]:
    return {hit.id: hit.score for hit in index.search([query], 100, vocabulary)[0]}


def contents(folder: Path) -> dict[str, bytes]:
    """The bytes of every file below a folder, but for the locks of indexes."""
    files = (file for file in folder.rglob("*") if file.is_file() and file.name != ".lock")
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in files}


def edit_manifest(path: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Change a manifest, of an index or of an engine, and its checksum."""
    manifest = json.loads((path / "manifest.json").read_bytes())
    del manifest["sha256"]
    edit(manifest)
    save_manifest(path / "manifest.json", manifest)


def redescribe(path: Path) -> None:
    """Make the manifest of an index agree with its present files."""
    edit_manifest(path, lambda m: m.update(files=describe_files(path / m["generation"], path)))


DESCRIBED = [Document("d/0", "cat a"), Document("d/1", "dog", "A title:"), Document("d/2", "a bee")]


def build_described(path: Path) -> Path:
    """Index ``DESCRIBED`` with words, vowels and the atlas of the vowels."""
    words, vowels = ((v, VocabularySettings(BM25())) for v in (WordVectorizer(), Vowels()))
    return build_of(path, DESCRIBED, words, vowels, atlas=findings(len(DESCRIBED))).path
