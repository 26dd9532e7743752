"""Writing indexes: build, update, delete and re-weight.

Everything is written under another name and renamed when it is whole. A build keeps what took
long in ``<index>.partial``, so that the same command continues where a killed one stopped.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from lexicept import pseudo_queries
from lexicept.atlas import SOURCES, Findings, unique_labels
from lexicept.cluster import Cluster
from lexicept.corpora import Document
from lexicept.corpora.records import Place, checked
from lexicept.derive import Derived, RRASettings, VocabularySettings
from lexicept.engines import ExactEngine, store
from lexicept.errors import InputError
from lexicept.frequencies import write_frequencies
from lexicept.index import FORMAT, VERSION, Index, Vectorizer, read_manifest
from lexicept.progress import Progress, silent
from lexicept.shards import Over, over
from lexicept.storage import (
    CSRWriter,
    StoredRows,
    TextStore,
    TextWriter,
    describe_files,
    load_csr,
    lock,
    move,
    read_json,
    remove_unheld,
    save_array,
    sha256,
    sync_folder,
    write_json,
)
from lexicept.vectors import Integers

BLOCK = 2**14
"""Rows that a change of an index moves at once."""

ALPHAS = (1.0, 1.25, 0.75, 1.5, 0.5, 2.0, 3.0)
"""What ``choose_alpha`` chooses from; of equal ones the first, the nearest to the paper's 1."""


class IndexBuilder:
    """Builds one index, step by step: documents, then each vocabulary, then ``commit``.

    Args:
        path: where the index will be. Until ``commit`` renames it, everything is in
            ``<path>.partial``.
        cluster: where documents are encoded and postings derived; on this machine by default. Its
            nodes must see the folder. A vocabulary that grows is found on this machine.

    Raises:
        InputError: something is at ``path`` already, or another process is building there, or a
            node does not see the folder.
    """

    def __init__(self, path: str | os.PathLike[str], cluster: Cluster | None = None) -> None:
        self.path = Path(path)
        self.work, descriptor = claim(self.path)
        self._unlock = weakref.finalize(self, os.close, descriptor)
        self._cluster = cluster
        self._over = _over(cluster, self.work)
        self._generation = self.work / "index" / "000001"
        self._sizes: dict[str, int] = {}
        self._settings: dict[str, VocabularySettings] = {}

    def add_documents(self, documents: Iterable[Document], settings: Mapping[str, Any]) -> None:
        """Store the documents, and forget unfinished work on other documents or settings.

        Args:
            documents: read once, never held in memory together.
            settings: JSON values; what later steps depend on.

        Raises:
            InputError: no documents, or a duplicate id.
        """
        shutil.rmtree(self.work / "index", ignore_errors=True)
        self._generation.mkdir(parents=True)
        count = write_documents(self._generation, documents)
        if not count:
            raise InputError("the corpus has no documents")
        digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
        for name in ("ids.bin", "ids.offsets.npy", "texts.bin", "titles.bin", "texts.offsets.npy"):
            digest.update(sha256(self._generation / name).encode())
        state = {"fingerprint": digest.hexdigest(), "lexicept": version("lexicept")}
        state_file = self.work / "state.json"
        if not state_file.exists() or read_json(state_file) != state:
            for entry in self.work.iterdir():
                if entry.is_dir() and entry.name != "index":
                    shutil.rmtree(entry)
            write_json(state_file, state)
        self.contents = Contents(self._generation)

    def add_vocabulary(
        self, vectorizer: Vectorizer, settings: VocabularySettings, progress: Progress = silent
    ) -> sp.csr_array:
        """Find the vocabulary's frequencies in all documents, memory-mapped [N, size]."""
        folder = self._generation / vectorizer.name
        folder.mkdir()
        prefix = folder / "frequencies"
        encode = shards = None
        if not vectorizer.grows:
            vectorizer.save(folder)
            shards = self._shards(vectorizer.name, folder)
            if self._cluster is not None:
                encode = partial(self._cluster.encode, partial(type(vectorizer).load, folder))
        matrix = write_frequencies(prefix, vectorizer, self.contents, shards, progress, encode)
        if vectorizer.grows:
            vectorizer.save(folder)
        self._sizes[vectorizer.name] = vectorizer.size
        self._settings[vectorizer.name] = settings
        return matrix

    def _shards(self, name: str, model: Path) -> Path:
        """Where the finished shards of this very model are; another one's are forgotten, whatever
        its name and folder."""
        shards = self.work / f"{name}-frequencies"
        files, known = describe_files(model, model), shards / "model.json"
        if known.exists() and read_json(known) != files:
            shutil.rmtree(shards)
        shards.mkdir(exist_ok=True)
        write_json(known, files)
        return shards

    def add_atlas(self, findings: Findings) -> None:
        """Store what was found out about the concepts, once they are added."""
        ids = TextStore(self._generation / "ids")
        findings.save(self._generation / "concepts", ids, self.contents)

    def commit(self, rra: RRASettings | None = None, weight_bits: int = 32) -> Index:
        """Weigh, invert and publish. Afterwards the unfinished work is gone.

        Args:
            weight_bits: of the postings, see ``ExactEngine.build``.
        """
        if not self._sizes:
            raise InputError("an index needs at least one vocabulary")
        staged = self.work / "index"
        commit_generation(
            staged, self._generation, self._sizes, self._settings, rra, weight_bits, self._over
        )
        refuse_existing(self.path)
        move(staged, self.path)
        shutil.rmtree(self.work)
        self.close()  # before this nobody else may build here
        return Index.open(self.path)

    def close(self) -> None:
        """Let others build here. Called by ``commit``; may be called again."""
        self._unlock()


def _over(cluster: Cluster | None, folder: Path) -> Over:
    """What maps over shards that are in this folder."""
    if cluster is None:
        return over
    cluster.check(folder)
    return cluster.over


class Contents(Sequence[str]):
    """What vectorizers see of stored documents: title and text."""

    def __init__(self, folder: Path) -> None:
        self._ids = TextStore(folder / "ids")
        self._titles = TextStore(folder / "titles")
        self._texts = TextStore(folder / "texts")

    def __len__(self) -> int:
        return len(self._texts)

    def __getitem__(self, position: Any) -> Any:
        if isinstance(position, slice):
            return [self[i] for i in range(*position.indices(len(self)))]
        return Document("", self._texts[position], self._titles[position]).content


def update(
    path: str | os.PathLike[str], documents: Iterable[Document], progress: Progress = silent
) -> tuple[int, int]:
    """Add documents, and replace those whose ids are there; return how many of each.

    A replaced document keeps its place. The other documents' frequencies are taken over as they
    are; weights, RRA and postings are made anew.

    Raises:
        InputError: duplicate ids among ``documents``, or another process is writing.
        IndexFormatError: ``path`` is no index.
    """
    with writing(path) as index:
        known = {name: number for number, name in enumerate(index.ids)}
        fresh: dict[str, Document] = {}
        for document in well_formed(documents):
            fresh[document.id] = document
        order = list(range(len(index)))
        for place, document_id in enumerate(fresh, len(index)):
            if document_id in known:
                order[known[document_id]] = place
            else:
                order.append(place)
        if fresh:
            _rewrite(index, list(fresh.values()), np.array(order), progress)
    added = len(order) - len(known)
    return added, len(fresh) - added


def delete(path: str | os.PathLike[str], document_ids: Iterable[str]) -> int:
    """Delete documents and return their number.

    Raises:
        InputError: an unknown id (nothing is deleted then), nothing would be left, or another
            process is writing.
        IndexFormatError: ``path`` is no index.
    """
    with writing(path) as index:
        numbers = {index.document_number(document_id) for document_id in document_ids}
        kept = np.array([n for n in range(len(index)) if n not in numbers], dtype=np.int64)
        if not kept.size:
            raise InputError(f"{index.path}: an index can't be left without documents")
        if numbers:
            _rewrite(index, [], kept, silent)
    return len(numbers)


def reweight(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    settings: RRASettings,
    cluster: Cluster | None = None,
) -> Index:
    """Write the collection of ``path``, re-weighted by RRA, as another index.

    Args:
        cluster: where it is re-weighted; see ``IndexBuilder``.

    Raises:
        InputError: ``out`` exists, settings that ``rra.reweight`` refuses, or a folder that a node
            of the cluster does not see.
        IndexFormatError: ``path`` is no index.
    """
    index = Index.open(path)
    target = Path(out)
    work, descriptor = claim(target)
    staged = work / "index"
    generation = staged / index.folder.name
    try:
        shutil.rmtree(staged, ignore_errors=True)
        staged.mkdir()
        link_folder(index.folder, generation)
        shutil.rmtree(generation / "postings")
        sizes = {vocabulary.name: vocabulary.size for vocabulary in index.vocabularies}
        bits = index.engine.weight_bits
        over = _over(cluster, work)
        commit_generation(staged, generation, sizes, index.settings, settings, bits, over)
        refuse_existing(target)
        move(staged, target)
        shutil.rmtree(work)  # may hold more: what a killed build left
    finally:
        shutil.rmtree(staged, ignore_errors=True)
        os.close(descriptor)
    return Index.open(target)


def relabel(path: str | os.PathLike[str], labels: Mapping[int, str], source: str) -> None:
    """Give concepts of an index other labels; those of all others stay as they are.

    Args:
        labels: by the concepts' numbers.
        source: where they are from; one of ``atlas.SOURCES``.

    Raises:
        InputError: the index has no atlas, or another process is writing.
        IndexFormatError: ``path`` is no index.
    """
    with writing(path) as index:
        if index.atlas is None:
            raise InputError(f"{path}: its concepts were not described")
        terms = list(index.atlas.labels)
        sources = [SOURCES.index(index.atlas.source(number)) for number in range(len(terms))]
        for number, label in labels.items():
            terms[number], sources[number] = label, SOURCES.index(source)
        folder = _next_generation(index)
        link_folder(index.folder, folder)
        concepts = folder / "concepts"
        for old in (*concepts.glob("terms.*"), concepts / "atlas" / "sources.npy"):
            old.unlink()  # a link: to write into it would change the generation before
        TextStore.write(concepts / "terms", unique_labels(terms, labels.keys()))
        save_array(concepts / "atlas" / "sources.npy", np.array(sources, np.uint8))
        publish(index.path, folder, index.manifest)
        _remove_others(index, folder)


def describe(path: str | os.PathLike[str], find: Callable[[Index], Findings]) -> None:
    """Store what ``find`` finds out about an index's concepts, in place of what was known.

    Raises:
        InputError: the index has no concepts, or another process is writing.
        IndexFormatError: ``path`` is no index.
    """
    with writing(path) as index:
        if "concepts" not in index.settings:
            raise InputError(f"{path} has no concepts")
        findings = _with_known_names(index, find(index))
        folder = _next_generation(index)
        link_folder(index.folder, folder)
        for old in (folder / "concepts").glob("terms.*"):
            old.unlink()  # a link: to write into it would change the generation before
        shutil.rmtree(folder / "concepts" / "atlas", ignore_errors=True)
        findings.save(folder / "concepts", index.ids, Contents(folder))
        publish(index.path, folder, index.manifest)
        _remove_others(index, folder)


def _with_known_names(index: Index, findings: Findings) -> Findings:
    """The names of concepts that do not fire here, and those that a language model or a release
    gave, stay: no words of these documents say as much."""
    before = TextStore(index.folder / "concepts" / "terms")
    silent_here = np.diff(findings.log_odds.indptr) == 0
    labels, sources = list(findings.labels), findings.sources.copy()
    kept = []
    for number, label in enumerate(before):
        source = "words" if index.atlas is None else index.atlas.source(number)
        if silent_here[number] or source in ("llm", "explanations"):
            labels[number], sources[number] = label, SOURCES.index(source)
            kept.append(number)
    return replace(findings, labels=unique_labels(labels, kept), sources=sources)


def choose_alpha(
    index: Index, iterations: int = 1, transform: str = "1+x", seed: int = 0
) -> tuple[float, dict[float, float]]:
    """RRA's α without labels: the best nDCG@10 on pseudo-queries.

    The pseudo-queries are a random sentence each of 500 random documents, or the strongest
    dimensions of documents that have no sentences.

    Returns:
        The first best of ``ALPHAS``, and the nDCG@10 of each.
    """
    settings = list(index.settings.values())
    weights = Derived.compute(index.frequencies(), settings, None).engine
    sources, queries = _pseudo_queries(index, weights, seed)
    values = {}
    for alpha in ALPHAS:
        rra = RRASettings(alpha, iterations, transform)
        derived = Derived.compute(index.frequencies(), settings, rra)
        found = derived.engine.search(queries, 10, queries @ derived.background)
        values[alpha] = pseudo_queries.known_item_ndcg([hits for hits, _ in found], sources)
    return max(values, key=lambda alpha: values[alpha]), values


def add_engine(
    path: str | os.PathLike[str],
    name: str,
    settings: Mapping[str, Any],
    queries: Sequence[str] = (),
    progress: Progress = silent,
) -> dict[str, Any]:
    """Build another engine from an index and keep it beside it, for ``Index.open(engine=name)``.

    Args:
        name: seismic or milvus.
        settings: of the engine: ``recall``, or ``uri``; see their ``build``.
        queries: texts that Seismic's pruning is tuned on; pseudo-queries by default.

    Returns:
        What the engine's manifest says.

    Raises:
        InputError: no such engine, its package is missing, or settings that it refuses.
        IndexFormatError: ``path`` is no index.
    """
    index = Index.open(path)
    engine = index.engine
    arguments = {"documents": engine.matrix(), "offsets": engine.offsets, **settings}
    if settings.get("recall", 1.0) != 1.0:
        found = index.query_vectors(queries) if queries else _pseudo_queries(index, engine)[1]
        arguments |= {"queries": found, "query_offsets": found @ index.derived.background}
    folder = index.engine_folder(name)
    return store.build(folder, name, index.postings, {**arguments, "progress": progress})


def _pseudo_queries(
    index: Index, weights: ExactEngine, seed: int = 0
) -> tuple[Integers, sp.csr_array]:
    """The documents that 500 queries come from, and their weights [n, V]."""
    sources, texts = pseudo_queries.from_texts(Contents(index.folder), seed=seed)
    if texts:
        return sources, index.query_vectors(texts)
    return pseudo_queries.from_vectors(weights.matrix(), seed=seed)


def _rewrite(index: Index, fresh: Sequence[Document], order: Integers, progress: Progress) -> None:
    """Publish the next generation: rows ``order`` of the present documents and the fresh ones."""
    folder = _next_generation(index)
    folder.mkdir()
    old = len(index)
    write_documents(
        folder,
        (index.stored(int(i)) if i < old else fresh[int(i) - old] for i in order),
    )
    sizes = {}
    for vocabulary in index.vocabularies:
        target = folder / vocabulary.name
        before = index.folder / vocabulary.name
        link_folder(before, target, replaced=("frequencies.", "terms."))
        size, terms = vocabulary.size, vocabulary.terms or ()
        new = target / "new"
        if fresh:
            vectorizer = index.vectorizer(vocabulary.name)
            write_frequencies(new, vectorizer, [d.content for d in fresh], None, progress)
            size, terms = vectorizer.size, vectorizer.terms
        TextStore.write(target / "terms", terms)
        stored = [load_csr(before / "frequencies", size)]
        stored += [load_csr(new, size)] if fresh else []
        _write_rows(target / "frequencies", stored, order)
        for part in target.glob("new.*"):
            part.unlink()
        sizes[vocabulary.name] = size
    bits = index.engine.weight_bits
    commit_generation(index.path, folder, sizes, index.settings, index.rra, bits)
    _remove_others(index, folder)


def _write_rows(prefix: Path, matrices: Sequence[sp.csr_array], order: Integers) -> None:
    """Write rows ``order`` of one or two memory-mapped matrices, numbered one after the other."""
    count = matrices[0].shape[0]
    with CSRWriter(prefix) as writer:
        for start in range(0, order.size, BLOCK):
            rows = order[start : start + BLOCK]
            second = rows >= count
            taken = [matrices[0][rows[~second]]]
            taken += [matrix[rows[second] - count] for matrix in matrices[1:]]
            places = np.argsort(np.argsort(second, kind="stable"))
            writer.append(sp.csr_array(sp.vstack(taken, format="csr"))[places])


def _next_generation(index: Index) -> Path:
    """The place of the next generation, with nothing there."""
    folder = index.path / f"{int(index.folder.name) + 1:06d}"
    shutil.rmtree(folder, ignore_errors=True)  # left by a change that was killed
    return folder


def _remove_others(index: Index, generation: Path) -> None:
    """Remove what no reader holds: the generation before, and what killed changes left."""
    index.release()
    for entry in index.path.iterdir():
        if entry.name.isdigit() and entry != generation:
            remove_unheld(entry)
        elif entry.name.startswith(".manifest.json."):
            entry.unlink()


def write_documents(folder: Path, documents: Iterable[Document]) -> int:
    """Store ids, titles and texts as they come; return their number."""
    count = 0
    with (
        TextWriter(folder / "ids") as ids,
        TextWriter(folder / "titles") as titles,
        TextWriter(folder / "texts") as texts,
    ):
        for document in well_formed(documents):
            count += 1
            ids.append(document.id)
            titles.append(document.title)
            texts.append(document.text)
    return count


def well_formed(documents: Iterable[Document]) -> Iterator[Document]:
    """Documents as a program hands them over, checked as those of a file are.

    Raises:
        InputError: naming the document by its number, from 1.
    """

    def placed() -> Iterator[tuple[Place, Document]]:
        for number, document in enumerate(documents, 1):
            place = Place("the documents", number, "document")
            for name, value in zip(Document._fields, document, strict=True):
                if not isinstance(value, str):
                    raise place.error(f"its {name} must be a text, not {value!r:.80}")
            yield place, document

    return checked(placed())


def commit_generation(
    path: Path,
    generation: Path,
    sizes: Mapping[str, int],
    settings: Mapping[str, VocabularySettings],
    rra: RRASettings | None,
    weight_bits: int,
    over: Over = over,
) -> None:
    """Derive the postings, then make this generation the one that readers see.

    Args:
        sizes: dimensions of every vocabulary, whose frequencies the generation holds.
        over: see ``Derived.compute``.
    """
    frequencies = [StoredRows(generation / name / "frequencies", n) for name, n in sizes.items()]
    ordered = [settings[name] for name in sizes]
    postings = generation / "postings"
    derived = Derived.compute(frequencies, ordered, rra, postings, weight_bits, over)
    content = {
        "documents": derived.engine.num_documents,
        "vocabularies": [
            {"name": name, "size": size, **settings[name].to_json()} for name, size in sizes.items()
        ],
        "rra": None if rra is None else asdict(rra),
    }
    publish(path, generation, content)


def publish(path: Path, generation: Path, content: Mapping[str, Any]) -> None:
    """Make a whole generation the one that readers see; ``content`` is what its manifest says of
    it beside the files."""
    sync_folder(generation)
    manifest = {
        **content,
        "format": FORMAT,
        "version": VERSION,
        "lexicept": version("lexicept"),
        "generation": generation.name,
        "files": describe_files(generation, path),
    }
    write_json(path / "manifest.json", manifest)


def link_folder(source: Path, target: Path, replaced: tuple[str, ...] = ()) -> None:
    """Copy a folder of files that never change, by links where the file system can.

    Files whose names begin with one of ``replaced`` are left out.
    """

    def copy(old: str, new: str) -> None:
        try:
            os.link(old, new)
        except OSError:
            shutil.copy2(old, new)

    def left_out(_: str, names: list[str]) -> list[str]:
        return [name for name in names if name.startswith(replaced)] if replaced else []

    shutil.copytree(source, target, copy_function=copy, ignore=left_out)


def refuse_existing(path: Path) -> None:
    """Raises InputError where something is at the path of a new index."""
    if path.exists():
        raise InputError(f"{path} exists already: name another place or remove it first")


def claim(path: Path) -> tuple[Path, int]:
    """The folder ``<path>.partial``, where something new is until it is whole, and the lock on it.

    Raises:
        InputError: something is at ``path``, another process is writing there, or the folder is not
            of unfinished work.
    """
    refuse_existing(path)
    work = path.absolute().with_name(f"{path.name}.partial")
    if work.exists() and not (work / ".lock").exists() and any(work.iterdir()):
        raise InputError(f"{work}: not unfinished work of lexicept; move it elsewhere")
    work.mkdir(parents=True, exist_ok=True)
    descriptor = lock(work)
    try:
        refuse_existing(path)  # another process may have finished before the lock was ours
    except InputError:
        shutil.rmtree(work)
        os.close(descriptor)
        raise
    return work, descriptor


@contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[Index]:
    """The newest generation of an index, with no other writer. Readers are not held up."""
    read_manifest(Path(path))  # a lock file must not be left where there is no index
    descriptor = lock(Path(path))
    try:
        index = Index.open(path)
        try:
            yield index
        finally:
            index.release()
    finally:
        os.close(descriptor)
