"""Changes of an index: update, delete, re-weight and merge; another engine.

Each writes the next generation under another name and publishes it in one step (see
``index.generations``), so that readers see the index before or after the change.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from lexicept.corpora import Document, pseudo_queries
from lexicept.engines import PostingsEngine, store
from lexicept.engines.joined import JoinedEngine
from lexicept.errors import InputError, LexiceptError, LexiceptWarning
from lexicept.fields.joining import join_columns
from lexicept.index import extension
from lexicept.index.builder import Contents, map_over, write_documents
from lexicept.index.extension import Extension
from lexicept.index.generations import (
    carry_over,
    changing,
    commit_generation,
    next_generation,
    publish,
)
from lexicept.index.impacts import RRASettings
from lexicept.index.manifest import FILES, read_files, write_files
from lexicept.index.parts import (
    ORDER,
    PARTS,
    Parts,
    check_rows,
    frequencies,
    part_name,
    write_parts,
)
from lexicept.index.passages import check_joined, join_passages
from lexicept.index.reader import IndexReader
from lexicept.index.stored import StoredDocuments
from lexicept.index.term_frequencies import encode_on, write_vocabularies
from lexicept.parallel.ray import Cluster
from lexicept.progress import Progress, silent
from lexicept.storage.files import move, remove
from lexicept.storage.manifest import check_files, generation_name
from lexicept.storage.texts import TextStore
from lexicept.storage.workspace import new_folder
from lexicept.vectorizers.interface import parts_of
from lexicept.vectors import Integers

_UNWEIGHED = ("*/postings/*", f"*/{PARTS}/*/titles.*", f"*/{PARTS}/*/texts.*")
"""Files that no weights are computed from."""

_UNREAD = (*_UNWEIGHED, f"*/{PARTS}/*/*.frequencies.*")
"""Files that a change of documents does not read, except those of parts that it merges or weighs.
"""

_EXTENDED = (
    "postings/joined/*",
    *(f"postings/{name}.npy" for name in ("df", "bounds", "offsets", "scales", "sizes")),
    "postings/statistics.*",
    *(f"postings/added/*/{name}.npy" for name in ("df", "offsets", "scales", "sizes")),
)
"""Files of postings that ``index.extension`` reads, or that what it writes is opened with."""


@dataclass(frozen=True)
class Changes:
    """Changes of an index's documents that become one generation."""

    documents: Iterable[Document] = ()
    """Documents to add, or to put in the place of those with their ids; read once."""
    deleted: Container[str] = ()
    """Ids of documents to delete, unless they are replaced; used once the documents are read."""
    files: Mapping[str, str] | None = None
    """The files that the documents come from (see ``index.files``), complete once the documents are
    read; None leaves the list as it is."""


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
    """Documents whose ids the index had."""


def _check(index: IndexReader, *patterns: str) -> None:
    """Compare files of a generation with their checksums; IndexFormatError on damage.

    Args:
        patterns: as of ``fnmatch``, of names in the generation.
    """
    full = [f"{index.folder.name}/{pattern}" for pattern in patterns]
    files = index.manifest["files"].items()
    own = {n: entry for n, entry in files if any(fnmatchcase(n, one) for one in full)}
    check_files(index.path, own, checksums=True)


def _check_parts(index: IndexReader, folders: Iterable[Path], files: str = "*") -> None:
    """Compare files of parts with their checksums; IndexFormatError on damage."""
    _check(index, *(f"{PARTS}/{folder.name}/{files}" for folder in folders))


def update(
    path: str | os.PathLike[str],
    documents: Iterable[Document],
    progress: Progress = silent,
    cluster: Cluster | None = None,
) -> Added:
    """Add documents, and replace those whose ids are there; return how many of each.

    A replaced document keeps its place. The files of other documents are linked. Of a small index,
    or one with RRA, all weights and postings are computed again; of a large one, those of the new
    documents, from the statistics of the last time that all were (see ``index.extension``).

    Args:
        cluster: encodes the documents and derives postings; see ``IndexBuilder``.

    Raises:
        InputError: a bad document or duplicate ids among ``documents``, another process is writing,
            or a node of the cluster does not see the folder.
        IndexFormatError: ``path`` is no index, or a damaged one; it is left as it was.
    """
    with changing(path, *_UNREAD) as index:
        changed = apply(index, Changes(documents), progress, cluster)
    return Added(changed.added, changed.replaced)


def apply(
    index: IndexReader,
    changes: Changes,
    progress: Progress = silent,
    cluster: Cluster | None = None,
) -> Changed:
    """Write the next generation of an index that ``changing`` yielded, if anything changes.

    Args:
        cluster: see ``update``.

    Raises:
        InputError: a bad document or duplicate ids among the documents, nothing would be left, or a
            node of the cluster does not see the folder.
    """
    with next_generation(index) as folder:
        # On disk, because there may be any number of them.
        staged = folder / "fresh"
        staged.mkdir()
        write_documents(staged, changes.documents, index.fields.kinds)
        fresh = StoredDocuments(staged)
        order, changed = _order(index, fresh, changes.deleted)
        check_rows(order.size)
        if not order.size:
            raise InputError(f"{index.path}: an index can't be left without documents")
        due = False
        if any(changed):
            due = _rewrite(index, folder, fresh, order, changes.files, progress, cluster)
        elif changes.files is not None and changes.files != read_files(index.folder):
            remove(staged)
            kept = carry_over(index, folder, FILES)
            write_files(folder, changes.files)
            publish(index.path, folder, index.manifest, kept)
    if due:
        try:
            later = IndexReader.open(index.path)
            try:
                _weigh(later, None, cluster)
            finally:
                later.release()
        except (LexiceptError, OSError) as error:
            problem = f"the change is made, but not all documents could be weighed anew: {error}"
            message = f"{problem}; lexicept index merge does that, and so does the next change"
            warnings.warn(message, LexiceptWarning, stacklevel=3)
    return changed


def _weigh(index: IndexReader, rra: RRASettings | None, cluster: Cluster | None = None) -> None:
    """Weigh all documents again, as the next generation."""
    with next_generation(index) as folder:
        kept = carry_over(index, folder, "postings/")
        sizes = {vocabulary.name: vocabulary.size for vocabulary in index.vocabularies}
        over, bits = map_over(cluster, folder), index.engine.weight_bits
        commit_generation(index.path, folder, sizes, index.settings, rra, bits, over, kept)


def merge(path: str | os.PathLike[str], cluster: Cluster | None = None) -> bool:
    """Weigh all documents again, and merge the parts of postings; return whether there were any.

    Changes of a large index without RRA do that by themselves once they are a sixteenth of it (see
    ``index.extension``).

    Args:
        cluster: see ``update``.

    Raises:
        InputError: another process is writing, or a node of the cluster does not see the folder.
        IndexFormatError: ``path`` is no index, or a damaged one; it is left as it was.
    """
    with changing(path, *_UNWEIGHED) as index:
        joined = isinstance(index.engine, JoinedEngine)
        if joined:
            _weigh(index, index.rra, cluster)
    return joined


def _order(
    index: IndexReader, fresh: StoredDocuments, deleted: Container[str]
) -> tuple[Integers, Changed]:
    """Return the rows of a changed index, counted through its own and then the fresh ones, and how
    many documents change."""
    rows, new = np.arange(len(index)), np.arange(len(index), len(index) + len(fresh.ids))
    waiting = {name: new[span.start : span.stop] for name, span in fresh.passages.spans()}
    bounds = np.append(index.passages.firsts, len(index))
    order, end = [], 0
    gone: set[str] = set()
    numbered = enumerate(index.passages.names())
    for number, name in [one for one in numbered if one[1] in waiting or one[1] in deleted]:
        order.append(rows[end : bounds[number]])
        end = bounds[number + 1]
        gone.add(name)
        if name in waiting:
            order.append(waiting.pop(name))
    check_joined(index.passages, fresh.passages, gone)
    order += [rows[end:], *waiting.values()]
    replaced = fresh.passages.num_documents - len(waiting)
    changed = Changed(len(waiting), replaced, len(gone) - replaced)
    return np.concatenate(order), changed


def delete(path: str | os.PathLike[str], document_ids: Iterable[str]) -> int:
    """Delete documents and return their number.

    Raises:
        InputError: an unknown id or that of a passage (nothing is deleted then), nothing would be
            left, or another process is writing.
        IndexFormatError: ``path`` is no index, or a damaged one; it is left as it was.
    """
    with changing(path, *_UNREAD) as index:
        given = [*document_ids]
        wanted = {name for name in given if isinstance(name, str)}
        names = {name for name in index.passages.names() if name in wanted}
        for document_id in given:
            if not (isinstance(document_id, str) and document_id in names):
                row = index.document_number(document_id)
                problem = f"is a passage of document {index.document_ids[row]!r}"
                raise InputError(f"{document_id!r} {problem}, and can't be deleted alone")
        return apply(index, Changes((), names)).deleted


def reweight_in_place(path: str | os.PathLike[str], settings: RRASettings) -> None:
    """Re-weight an index by RRA, as its next generation.

    Raises:
        InputError: settings that ``rra.reweight`` refuses, or another process is writing.
        IndexFormatError: ``path`` is no index, or a damaged one; it is left as it was.
    """
    with changing(path) as index:
        _weigh(index, settings)


def reweight(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    settings: RRASettings,
    cluster: Cluster | None = None,
) -> IndexReader:
    """Write the collection of ``path``, re-weighted by RRA, as another index.

    Args:
        cluster: where it is re-weighted; see ``IndexBuilder``.

    Raises:
        InputError: ``out`` exists, settings that ``rra.reweight`` refuses, or a folder that a node
            of the cluster does not see.
        IndexFormatError: ``path`` is no index, or a damaged one; it is left as it was.
    """
    index = IndexReader.open(path, checksums=True)
    sizes = {vocabulary.name: vocabulary.size for vocabulary in index.vocabularies}
    bits = index.engine.weight_bits
    with new_folder(out, "reweight") as staged:
        generation = staged / generation_name(1)
        kept = carry_over(index, generation, "postings/")
        over = map_over(cluster, staged)
        commit_generation(staged, generation, sizes, index.settings, settings, bits, over, kept)
    return IndexReader.open(out)


def add_engine(
    path: str | os.PathLike[str],
    name: str,
    settings: Mapping[str, Any],
    queries: Sequence[str] = (),
    progress: Progress = silent,
    *,
    restart: bool = False,
) -> dict[str, Any]:
    """Build another engine from an index and keep it beside it, for
    ``IndexReader.open(engine=name)``.

    Args:
        name: seismic or milvus.
        settings: arguments of the engine's ``build``: ``recall`` of Seismic, ``uri`` of Milvus.
        queries: texts that Seismic's pruning is tuned on; pseudo-queries by default.
        restart: discard an interrupted build instead of resuming it.

    Returns:
        What the engine's manifest says.

    Raises:
        InputError: no such engine, its package is missing, settings that it refuses, or what
            ``store.build`` refuses.
        IndexFormatError: ``path`` is no index, or a damaged one; it is left as it was.
    """
    index = IndexReader.open(path, checksums=True)
    engine = index.engine
    arguments = {"documents": engine.matrix(), "offsets": engine.offsets, **settings}
    if settings.get("recall", 1.0) != 1.0:
        encoded = index.query_vectors(queries) if queries else _pseudo_queries(index, engine)
        arguments |= {"queries": encoded, "query_offsets": encoded @ index.derived.background}
    folder = index.engine_folder(name)
    arguments["progress"] = progress
    return store.build(folder, name, index.postings, arguments, restart=restart)


def _pseudo_queries(index: IndexReader, weights: PostingsEngine) -> sp.csr_array:
    """Return the weights of 500 queries [n, V]."""
    _, texts = pseudo_queries.from_texts(Contents(index.folder))
    return index.query_vectors(texts) if texts else pseudo_queries.from_vectors(weights.matrix())[1]


def _rewrite(
    index: IndexReader,
    folder: Path,
    fresh: StoredDocuments,
    order: Integers,
    files: Mapping[str, str] | None,
    progress: Progress,
    cluster: Cluster | None,
) -> bool:
    """Publish the next generation: rows ``order`` of the present ones and the fresh ones.

    Args:
        fresh: stored in ``folder``, where they are removed.

    Returns:
        Whether all documents are to be weighed again.
    """
    staged, replaced = folder / "fresh", ["fields/", "passages/", ORDER]
    replaced += [] if files is None else [FILES]
    sizes = {vocabulary.name: vocabulary.size for vocabulary in index.vocabularies}
    parts, over = index.parts, map_over(cluster, folder)
    if len(fresh.ids):
        replaced += _count(index, folder, fresh, sizes, progress, cluster)
        parts += Parts.open(folder)
    rows = parts[order]
    linked = write_parts(rows, folder, sizes, partial(_check_parts, index))
    for place in set(parts.folders).difference(linked):
        if place.parent.parent == folder:
            remove(place)
        replaced.append(f"{PARTS}/{place.name}/")
    extended = extension.plan(index.engine, order) if index.rra is None else None
    if extended is None:
        replaced.append("postings/")
    else:
        replaced += extended.outdated(extension.added_parts(index.folder / "postings"))
    kept = carry_over(index, folder, *replaced)
    if files is not None:
        write_files(folder, files)
    join_columns(folder / "fields", index.fields, fresh.fields, order, rows.texts("ids"))
    join_passages(folder, index.passages, fresh.passages, order)
    remove(staged)
    if extended is None:
        _check_parts(index, parts.folders, "*.frequencies.*")
        extend = None
    else:
        _check(index, *_EXTENDED)
        read = np.concatenate([rows.order[extended.written], index.parts.order[extended.gone]])
        numbers = np.unique(np.searchsorted(np.cumsum(parts.counts), read, "right"))
        weighed = [parts.folders[number] for number in numbers]
        _check_parts(index, parts.folders if extended.due else weighed, "*.frequencies.*")
        extend = partial(_extend, index, extended, folder / "postings", sizes)
    bits = index.engine.weight_bits
    settings = (sizes, index.settings, index.rra, bits, over, kept, extend)
    commit_generation(index.path, folder, *settings)
    return extended is not None and extended.due


def _count(
    index: IndexReader,
    folder: Path,
    fresh: StoredDocuments,
    sizes: dict[str, int],
    progress: Progress,
    cluster: Cluster | None,
) -> list[str]:
    """Count or encode the fresh documents, and make them a part of a generation.

    Args:
        folder: of the generation.
        sizes: dimensions of each vocabulary, which may grow.

    Returns:
        The beginnings of the names of files that are written anew.
    """
    (place,), replaced = fresh.parts.folders, []
    for vectorizer in index.vectorizers.of([*sizes]):
        own = parts_of(vectorizer)
        prefixes = [frequencies(place, part.name) for part in own]
        encode = encode_on(cluster, vectorizer, index.folder / vectorizer.name, counts=False)
        contents = Contents(folder / "fresh")
        write_vocabularies(prefixes, vectorizer, contents, None, progress, encode)
        for part in own:
            if part.size > sizes[part.name]:
                replaced.append(f"{part.name}/terms.")
                (folder / part.name).mkdir()
                TextStore.write(folder / part.name / "terms", part.terms)
            sizes[part.name] = part.size
    (folder / PARTS).mkdir()
    last = max(int(part.name) for part in index.parts.folders)
    move(place, folder / PARTS / part_name(last + 1))
    return replaced


def _extend(
    index: IndexReader, extended: Extension, folder: Path, sizes: Mapping[str, int], changed: Parts
) -> None:
    """Write the postings that ``extended`` says."""
    settings = [index.settings[name] for name in sizes]
    documents = index.parts, changed
    postings = index.folder / "postings"
    extension.extend(postings, index.engine, extended, folder, documents, sizes, settings)
