"""Small indexes of words, and of vowels as their concepts."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lexicept.corpora import Document
from lexicept.index.builder import IndexBuilder
from lexicept.index.impacts import RRASettings, VocabularySettings
from lexicept.index.reader import IndexReader
from lexicept.storage.manifest import describe_files, save_manifest
from lexicept.vectorizers.words import WordVectorizer
from lexicept.weighting import BM25
from support.vowels import Vowels, findings


def build(
    path: Path,
    texts: dict[str, str],
    *,
    concepts: VocabularySettings | None = None,
    rra: RRASettings | None = None,
    words: VocabularySettings | None = None,
) -> IndexReader:
    """An index of words, and of vowels where ``concepts`` says how to weigh them."""
    builder = IndexBuilder(path)
    builder.add_documents([Document(name, text) for name, text in texts.items()], {})
    builder.add_vocabulary(WordVectorizer("en"), words or VocabularySettings(BM25()))
    if concepts is not None:
        builder.add_vocabulary(Vowels(), concepts)
    return builder.commit(rra)


def edit_manifest(path: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Change a manifest, of an index or of an engine, and its own checksum with it."""
    manifest = json.loads((path / "manifest.json").read_bytes())
    del manifest["sha256"]
    edit(manifest)
    save_manifest(path / "manifest.json", manifest)


def redescribe(path: Path) -> None:
    """Make the manifest of an index agree with its files, as they are now."""
    edit_manifest(path, lambda m: m.update(files=describe_files(path / m["generation"], path)))


DESCRIBED = [Document("d/0", "cat a"), Document("d/1", "dog", "A title:"), Document("d/2", "a bee")]


def build_described(path: Path) -> Path:
    """Index ``DESCRIBED`` with words, vowels and the atlas of the vowels."""
    builder = IndexBuilder(path)
    builder.add_documents(DESCRIBED, {})
    builder.add_vocabulary(WordVectorizer(), VocabularySettings(BM25()))
    builder.add_vocabulary(Vowels(), VocabularySettings(BM25()))
    builder.add_atlas(findings(len(DESCRIBED)))
    return builder.commit().path
