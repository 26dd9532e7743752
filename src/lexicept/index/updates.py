"""Changes of an index: update, delete, re-weight, merge, and new descriptions of concepts.

Each writes the next generation under another name and publishes it in one step (see
``index.generations``), so that readers see the index before or after the change. Each raises
InputError while another process writes, or for a node of a cluster that does not see the folder,
and IndexFormatError for a path without an index and for damage, which is left as it is. A
``cluster`` encodes documents and derives postings.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lexicept.corpora import Document
from lexicept.corpora.folder import UNREAD, file_of
from lexicept.engines.joined import ADDED, JoinedEngine
from lexicept.errors import InputError
from lexicept.explanation.contributions import unnamed
from lexicept.fields.writing import join_columns
from lexicept.index.added_postings import PostingsChange, write_added
from lexicept.index.atlas import SOURCES, Findings, unique_labels
from lexicept.index.builder import Contents, map_over, write_documents
from lexicept.index.generations import (
    IndexLayout,
    carry_over,
    changing,
    commit_generation,
    matching_files,
    next_generation,
    publish,
    refuse_unfinished,
)
from lexicept.index.impacts import RRASettings
from lexicept.index.manifest import FILES, read_files, write_files
from lexicept.index.parts import (
    ORDER,
    PARTS,
    Parts,
    check_number,
    frequencies,
    part_name,
    part_number,
    write_parts,
)
from lexicept.index.passages import check_joined, join_passages
from lexicept.index.reader import IndexReader
from lexicept.index.stored import StoredDocuments
from lexicept.index.term_frequencies import encode_on, write_tf
from lexicept.index.text_vectors import TextVectors, write_vectors
from lexicept.parallel.ray import Cluster
from lexicept.progress import Progress, silent
from lexicept.storage.arrays import save_array
from lexicept.storage.files import move, remove
from lexicept.storage.manifest import check_files, generation_name
from lexicept.storage.texts import TextStore
from lexicept.storage.workspace import new_folder
from lexicept.vectors import Integers

_UNWEIGHED = (
    "*/postings/*",
    *(f"*/{PARTS}/*/{name}" for name in ("titles.*", "texts.*", "vectors.npy")),
)
"""Files that no weights are computed from."""

_UNREAD = (*_UNWEIGHED, f"*/{PARTS}/*/*.frequencies.*")
"""Files that a change of documents does not read, except in parts that it merges or weighs."""

_READ_POSTINGS = (
    *(f"postings/{name}.npy" for name in ("df", "bounds", "offsets", "scales", "sizes")),
    "postings/statistics.*",
    f"postings/{ADDED}/*",
)
"""Files of postings that ``index.added_postings`` reads, or opens together with new ones."""


@dataclass(frozen=True)
class Changes:
    """Changes of an index's documents, made together in one generation."""

    documents: Iterable[Document] = ()
    """Documents to add, each in the place of a document with its id; read once."""
    deleted: Container[str] = ()
    """Ids of documents to delete unless replaced; used once the documents are read."""
    files: Mapping[str, str] | None = None
    """Checksums of the files that the documents come from (see ``manifest.write_files``), complete
    once the documents are read; None leaves the list as it is."""


class Changed(NamedTuple):
    """The numbers of documents that changed."""

    added: int
    replaced: int
    deleted: int


class Added(NamedTuple):
    """The number of documents that ``update`` stored."""

    added: int
    """Documents with new ids."""
    replaced: int
    """Documents with ids of the index."""


def _check(index: IndexReader, patterns: Iterable[str]) -> None:
    """Compare files of a generation, by ``fnmatch`` patterns, with their checksums."""
    full = [f"{index.folder.name}/{pattern}" for pattern in patterns]
    check_files(index.path, matching_files(index.manifest, full), checksums=True)


def _check_parts(index: IndexReader, folders: Iterable[Path], files: str = "*") -> None:
    """Compare files of parts with their checksums."""
    _check(index, [f"{PARTS}/{folder.name}/{files}" for folder in folders])


def update(
    path: str | os.PathLike[str],
    documents: Iterable[Document] | Callable[[IndexReader], Iterable[Document]],
    progress: Progress = silent,
    cluster: Cluster | None = None,
) -> Added:
    """Add documents, perhaps a function of the newest generation, or replace documents of the same
    ids; return the numbers of both.

    A replaced document keeps its place. The files of other documents are linked. In a small index,
    or with RRA, all weights and postings are computed again; in a large index those of the new
    documents alone, from older statistics (see ``index.added_postings``). Raises InputError for a
    bad document, or duplicate ids among ``documents``.
    """
    with changing(path, _UNREAD) as index:
        fresh = documents(index) if callable(documents) else documents
        changed = apply(index, Changes(fresh), progress, cluster)
    return Added(changed.added, changed.replaced)


def apply(
    index: IndexReader,
    changes: Changes,
    progress: Progress = silent,
    cluster: Cluster | None = None,
) -> Changed:
    """Write the next generation of an index of ``changing``, if anything changes. Raises
    InputError for a bad document, duplicate ids, or an index without documents."""
    with next_generation(index) as folder:
        # On disk, because there may be any number of them.
        staged = folder / "fresh"
        staged.mkdir()
        write_documents(staged, changes.documents, index.fields.types)
        fresh = StoredDocuments(staged)
        order, changed = _order(index, fresh, changes.deleted)
        if changes.files is None and (files := read_files(index.folder)):
            # A sync has to read the files of replaced and deleted documents again.
            new, gone = {*fresh.passages.names()}, changes.deleted
            present = index.passages.names()
            read_again = {file_of(name) for name in present if name in new or name in gone}
            unread = dict.fromkeys(read_again & files.keys(), UNREAD)
            changes = replace(changes, files=files | unread)
        check_number(order.size)
        if not order.size:
            raise InputError(f"{index.path}: an index can't be left without documents")
        if any(changed):
            _rewrite(index, folder, fresh, order, changes.files, progress, cluster)
        elif changes.files is not None and changes.files != read_files(index.folder):
            remove(staged)
            linked = carry_over(index, folder, [FILES])
            write_files(folder, changes.files)
            publish(index.path, folder, index.manifest, linked)
    return changed


def _weigh(index: IndexReader, rra: RRASettings | None, cluster: Cluster | None = None) -> None:
    """Weigh all documents again, as the next generation."""
    with next_generation(index) as folder:
        linked, over = carry_over(index, folder, ["postings/"]), map_over(cluster, folder)
        commit_generation(index.path, folder, IndexLayout.of(index, rra), over, linked)


def merge(path: str | os.PathLike[str], cluster: Cluster | None = None) -> bool:
    """Weigh all documents again, and merge added postings; return True if there were any.
    Changes of a large index without RRA do that by themselves once they are a sixteenth of the
    index (see ``index.added_postings``)."""
    with changing(path, _UNWEIGHED) as index:
        joined = isinstance(index.engine, JoinedEngine)
        if joined:
            _weigh(index, index.rra, cluster)
    return joined


def _order(
    index: IndexReader, fresh: StoredDocuments, deleted: Container[str]
) -> tuple[Integers, Changed]:
    """Return the order of a changed index, counted through present and then fresh entries, and the
    numbers of changed documents. An entry is a document or a passage."""
    present = np.arange(len(index))
    added = np.arange(len(index), len(index) + len(fresh.ids))
    new = {name: added[span.start : span.stop] for name, span in fresh.passages.spans()}
    bounds = np.append(index.passages.firsts, len(index))
    # Runs of unchanged documents are copied whole, between the replaced and deleted ones.
    order, end = [], 0
    gone: set[str] = set()
    for number, name in enumerate(index.passages.names()):
        if name not in new and name not in deleted:
            continue
        order.append(present[end : bounds[number]])
        end = bounds[number + 1]
        gone.add(name)
        if name in new:
            order.append(new[name])
    check_joined(index.passages, fresh.passages, gone)
    replaced = gone & new.keys()
    order += [present[end:], *(entries for name, entries in new.items() if name not in replaced)]
    changed = Changed(len(new) - len(replaced), len(replaced), len(gone) - len(replaced))
    return np.concatenate(order), changed


def delete(path: str | os.PathLike[str], document_ids: Iterable[str]) -> int:
    """Delete documents and return their number. Raises InputError for an unknown id or a
    passage's (nothing is deleted then), or an index without documents."""
    with changing(path, _UNREAD) as index:
        ids = [*document_ids]
        texts = {document_id for document_id in ids if isinstance(document_id, str)}
        names = {name for name in index.passages.names() if name in texts}
        for document_id in ids:
            if not (isinstance(document_id, str) and document_id in names):
                passage = index.document_number(document_id)
                problem = f"is a passage of document {index.document_ids[passage]!r}"
                raise InputError(f"{document_id!r} {problem}, and can't be deleted alone")
        return apply(index, Changes((), names)).deleted


def reweight_in_place(path: str | os.PathLike[str], settings: RRASettings) -> None:
    """Re-weight an index by RRA. Raises InputError for settings that ``rra.reweight`` refuses."""
    with changing(path) as index:
        _weigh(index, settings)


def reweight(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    settings: RRASettings,
    cluster: Cluster | None = None,
) -> IndexReader:
    """Write the collection of ``path``, re-weighted by RRA, as another index. Raises
    InputError if ``out`` exists, and for settings that ``rra.reweight`` refuses."""
    index = IndexReader.open(path, checksums=True)
    refuse_unfinished(index.path, index.missing)
    with new_folder(out, "reweight") as staged:
        generation = staged / generation_name(1)
        linked, over = carry_over(index, generation, ["postings/"]), map_over(cluster, staged)
        commit_generation(staged, generation, IndexLayout.of(index, settings), over, linked)
    return IndexReader.open(out)


def _rewrite(
    index: IndexReader,
    folder: Path,
    fresh: StoredDocuments,
    order: Integers,
    files: Mapping[str, str] | None,
    progress: Progress,
    cluster: Cluster | None,
) -> None:
    """Publish the next generation, with present and fresh documents in this order.

    Args:
        fresh: stored in ``folder``, where they are removed.
    """
    staged, outdated = folder / "fresh", ["fields/", "passages/", ORDER]
    outdated += [] if files is None else [FILES]
    layout, over = IndexLayout.of(index, index.rra), map_over(cluster, folder)
    sizes, parts = dict(layout.sizes), index.parts
    if len(fresh.ids):
        outdated += _encode_fresh(index, folder, fresh, sizes, progress, cluster)
        parts += Parts.open(folder)
    # New parts, merged parts and the order; all other parts are linked.
    documents = parts[order]
    vectors = layout.vectors

    def write_more(of_part: Parts, part: Path) -> None:
        if vectors is not None:
            write_vectors(part, TextVectors(of_part, vectors))

    linked_parts = write_parts(documents, folder, sizes, partial(_check_parts, index), write_more)
    for part in set(parts.folders).difference(linked_parts):
        if part.parent.parent == folder:
            remove(part)
        outdated.append(f"{PARTS}/{part.name}/")
    change = PostingsChange.plan(index.engine, order) if index.rra is None else None
    outdated += ["postings/" if change is None else f"postings/{ADDED}/"]
    linked = carry_over(index, folder, outdated)
    if files is not None:
        write_files(folder, files)
    join_columns(folder / "fields", index.fields, fresh.fields, order, documents.texts("ids"))
    join_passages(folder, index.passages, fresh.passages, order)
    remove(staged)
    layout = replace(layout, sizes=sizes)
    # Without added postings, all frequencies are read, and all postings derived again.
    read, write_postings = parts.folders, None
    if change is not None:
        _check(index, _READ_POSTINGS)
        weighed = [documents.order[change.added], index.parts.order[change.deleted]]
        numbers = np.unique(parts.part_of(np.concatenate(weighed))).tolist()
        read = tuple(parts.folders[number] for number in numbers)
        write_postings = partial(write_added, index, change, sizes, folder / "postings")
    _check_parts(index, read, "*.frequencies.*")
    commit_generation(index.path, folder, layout, over, linked, write_postings)


def _encode_fresh(
    index: IndexReader,
    folder: Path,
    fresh: StoredDocuments,
    sizes: dict[str, int],
    progress: Progress,
    cluster: Cluster | None,
) -> list[str]:
    """Count or encode the fresh documents, and make them a part of a generation. Returns the
    beginnings of the names of files that are written anew; ``sizes`` may grow."""
    (part,), outdated = fresh.parts.folders, []
    contents = Contents(folder / "fresh")
    for name in [*sizes]:
        vectorizer = index.encoders[name].of_documents()
        encode = encode_on(cluster, vectorizer, index.folder / name)
        vector_size = index.vectors.d if index.vectors is not None and name == "concepts" else 0
        prefix = frequencies(part, name)
        tf = write_tf(prefix, vectorizer, contents, None, progress, encode, vector_size)
        if tf.shape[1] > sizes[name]:
            outdated.append(f"{name}/terms.")
            (folder / name).mkdir()
            TextStore.write(folder / name / "terms", index.vectorizer(name).terms)
        sizes[name] = tf.shape[1]
    (folder / PARTS).mkdir()
    last = max(map(part_number, index.parts.folders))
    move(part, folder / PARTS / part_name(last + 1))
    return outdated


def relabel(path: str | os.PathLike[str], labels: Mapping[int, str], source: str) -> None:
    """Give concepts of an index new labels. Raises InputError if the index has no atlas or no
    concept of a number, or for an unknown source.

    Args:
        source: the origin of the labels, one of ``atlas.SOURCES``.
    """
    if source not in SOURCES:
        raise InputError(f"unknown source of labels {source!r}; sources are {', '.join(SOURCES)}")
    with changing(path) as index:
        if index.atlas is None:
            raise InputError(f"{path}: its concepts were not described")
        terms = list(index.atlas.labels)
        sources = [SOURCES.index(index.atlas.source(number)) for number in range(len(terms))]
        for number, label in labels.items():
            if not 0 <= number < len(terms):
                raise InputError(f"{path} has no concept {number}; it has {len(terms)}")
            terms[number], sources[number] = label, SOURCES.index(source)
        with next_generation(index) as folder:
            changed = ["terms.", "atlas/sources.npy", "atlas/detection.npy"]
            linked = carry_over(index, folder, [f"concepts/{name}" for name in changed])
            TextStore.write(folder / "concepts" / "terms", unique_labels(terms, labels.keys()))
            atlas, detection = folder / "concepts" / "atlas", index.atlas.detection.copy()
            detection[list(labels)] = np.nan  # of the words' names, not of the new labels
            save_array(atlas / "sources.npy", np.array(sources, np.uint8))
            save_array(atlas / "detection.npy", detection)
            publish(index.path, folder, index.manifest, linked)


def describe(path: str | os.PathLike[str], find: Callable[[IndexReader], Findings]) -> None:
    """Replace the descriptions of an index's concepts, if it has any, by the result of ``find``."""
    with changing(path) as index:
        if "concepts" not in index.settings:
            raise InputError(f"{path} has no concepts")
        findings = _with_known_names(index, find(index))
        with next_generation(index) as folder:
            linked = carry_over(index, folder, ["concepts/terms.", "concepts/atlas/"])
            findings.save(folder / "concepts", index.ids, Contents(folder))
            publish(index.path, folder, index.manifest, linked)


def _with_known_names(index: IndexReader, findings: Findings) -> Findings:
    """Keep the names of concepts that do not fire in these documents, and names from a language
    model or a release."""
    silent_here = np.diff(findings.log_odds.indptr) == 0
    names = {}
    for number, label in enumerate(TextStore(index.folder / "concepts" / "terms")):
        source = "none" if label == unnamed(number) else "words"
        if index.atlas is not None:
            source = index.atlas.source(number)
        if silent_here[number] or source in ("llm", "explanations"):
            names[number] = label, source
    return findings.renamed(names)
