"""Milvus: one adapter for a local file, for ``milvus-lite server`` and for a cluster.

A collection holds a number and a sparse vector per document. It is searched exactly, with the
weights as the server stores them: a cluster may round them.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import numpy as np
import scipy.sparse as sp
from pymilvus import DataType, MilvusClient
from pymilvus.exceptions import MilvusException

from lexicept.engines.mask import Mask
from lexicept.engines.wrapped import USED, Extension, Found, Vector, WrappedEngine
from lexicept.errors import IndexFormatError, InputError
from lexicept.progress import Progress, silent
from lexicept.storage.files import read_json, write_json
from lexicept.vectors import Floats, Integers

T = TypeVar("T")

LOCAL_FILE = "documents.db"
STATE = "load.json"

CONSISTENCY = "Strong"
"""Every search and count sees all that was written before it."""

BATCH_NON_ZEROS = 500_000
"""Non-zeros in one upsert, 4 MB: a server accepts at most 64 MB."""

BATCH_DOCUMENTS = 5_000

BATCH_QUERIES = 64

MOST_RESULTS = 16_384
"""A server's limit on results per query."""

MOST_NAMED = 4_096
"""Most allowed documents that are named in a search."""

ATTEMPTS = 8
"""Number of attempts of a call that a server does not answer, with waits from .5 to 16 s."""

FIRST_WAIT = 0.5
LONGEST_WAIT = 16.0
TIMEOUT = 120.0
"""Seconds for one call."""


class MilvusEngine(WrappedEngine):
    """Documents in a Milvus collection. ``LEXICEPT_MILVUS_TOKEN`` holds a server's credentials."""

    name = "milvus"
    files = (USED,)
    exact = True

    def __init__(self, extension: Extension, server: Server, folder: Path) -> None:
        super().__init__(extension)
        self._server = server
        self._folder = folder

    @classmethod
    def build(
        cls,
        folder: Path,
        documents: Any,
        offsets: Any = None,
        *,
        uri: str | None = None,
        progress: Progress = silent,
    ) -> dict[str, Any]:
        """Load a new collection; an interrupted load is resumed after its last batch.

        Args:
            folder: existing; it may hold an interrupted load of the same documents to the same uri.
            documents, offsets: SciPy sparse matrix [N, V] and a number per document [N].
            uri: of a server; None keeps the collection in a file in ``folder``.

        Returns:
            What ``open`` needs, as JSON values.

        Raises:
            InputError: bad weights, no server at ``uri``, or one that lost documents.
        """
        extension, extended = Extension.of(documents, offsets)
        collection = _read(folder).get("collection") or f"lexicept_{uuid4().hex}"
        server = Server(folder, uri, collection)
        if not _read(folder):
            _write(folder, uri, collection, 0)
        load(server, extended, folder, progress)
        return {**extension.save(folder), "uri": uri, "collection": server.collection}

    @classmethod
    def open(cls, folder: Path, numbers: Mapping[str, Any]) -> MilvusEngine:
        """Connect to what ``build`` loaded.

        Raises:
            IndexFormatError: a damaged manifest, or the collection is gone.
            InputError: there is no server, or another process has the file open.
        """
        extension = Extension.load(folder, numbers)
        uri, collection = numbers.get("uri"), numbers.get("collection")
        if not (isinstance(collection, str) and (uri is None or isinstance(uri, str))):
            raise IndexFormatError(f"{folder}: its manifest is damaged")
        server = Server(folder, uri, collection)
        if not server.exists():
            raise IndexFormatError(f"{server.uri}: there is no collection {collection} any more")
        server.make_searchable()
        return cls(extension, server, folder)

    @staticmethod
    def discard(folder: Path) -> None:
        """Drop a server's collection, unless the server is unreachable."""
        state = _read(folder)
        if state.get("uri") is not None:
            with suppress(InputError):
                Server(folder, state["uri"], state["collection"], attempts=1).drop()
        (folder / STATE).unlink(missing_ok=True)

    @property
    def size(self) -> int | None:
        """Bytes of the local file; None for a server."""
        if not self._server.local:
            return None
        return sum(path.stat().st_size for path in self._folder.rglob("*") if path.is_file())

    @property
    def deepest(self) -> int:
        return self.num_documents if self._server.local else MOST_RESULTS

    def _search_allowed(self, queries: Sequence[Vector], top_k: int, mask: Mask) -> list[Found]:
        """Return the best allowed documents: few of them are named to Milvus."""
        if not 0 < mask.count <= MOST_NAMED:
            return super()._search_allowed(queries, top_k, mask)
        return self._search(queries, min(top_k, mask.count), np.flatnonzero(mask.allowed))

    def _search(
        self, queries: Sequence[Vector], top_k: int, numbers: Integers | None = None
    ) -> list[Found]:
        """Search among the documents of these numbers; None for all."""
        expression = "" if numbers is None else f"number in {numbers.tolist()}"
        if top_k > MOST_RESULTS and not self._server.local:
            raise InputError(f"Milvus gives at most {MOST_RESULTS:,} results, not {top_k:,}")
        results: list[Found] = []
        for start in range(0, len(queries), BATCH_QUERIES):
            batch = queries[start : start + BATCH_QUERIES]
            results += self._server.search([as_dict(*one) for one in batch], top_k, expression)
        return results


class Server:
    """A collection of a server, or of a local file; calls are repeated until it answers.

    Raises:
        InputError: nothing answers, or the server refuses; the message is the server's.
    """

    def __init__(
        self, folder: Path, uri: str | None, collection: str, attempts: int = ATTEMPTS
    ) -> None:
        self.local = uri is None
        self.uri = str(folder / LOCAL_FILE) if uri is None else uri
        self.collection = collection
        self.attempts = attempts
        # Both print tracebacks of calls that are retried or that end in one line.
        for logger in ("pymilvus", "milvus_lite"):
            logging.getLogger(logger).setLevel(logging.CRITICAL)
        self._client = self._connect()

    def _connect(self) -> MilvusClient:
        token = "" if self.local else os.environ.get("LEXICEPT_MILVUS_TOKEN", "")
        try:
            return self._call(lambda: MilvusClient(self.uri, token=token, timeout=TIMEOUT))
        except InputError:
            if not self.local:
                raise
            problem = "not a Milvus file, or another process has it open (a server serves many)"
            raise InputError(f"{self.uri}: {problem}") from None

    def _call(self, work: Callable[[], T]) -> T:
        wait = FIRST_WAIT
        for left in reversed(range(self.attempts)):
            try:
                return work()
            except MilvusException as error:
                if not left or not _passing(error):
                    raise InputError(f"{self.uri}: {error.message}") from None
            time.sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT)
        raise AssertionError("at least one attempt is made")

    def exists(self) -> bool:
        return bool(self._call(lambda: self._client.has_collection(self.collection)))

    def create(self) -> None:
        """Create an empty collection in place of an existing one."""
        schema = self._client.create_schema(auto_id=False)
        schema.add_field("number", DataType.INT64, is_primary=True)
        schema.add_field("vector", DataType.SPARSE_FLOAT_VECTOR)
        index = self._client.prepare_index_params()
        # Any of its algorithms is exact as long as drop_ratio_search stays 0.
        index.add_index("vector", index_type="SPARSE_INVERTED_INDEX", metric_type="IP")
        self.drop()
        self._call(
            lambda: self._client.create_collection(
                self.collection, schema=schema, index_params=index, consistency_level=CONSISTENCY
            )
        )

    def drop(self) -> None:
        if self.exists():
            self._call(lambda: self._client.drop_collection(self.collection))

    def upsert(self, rows: list[dict[str, Any]]) -> None:
        self._call(lambda: self._client.upsert(self.collection, rows, timeout=TIMEOUT))

    def flush(self) -> None:
        self._call(lambda: self._client.flush(self.collection, timeout=TIMEOUT))

    def make_searchable(self) -> None:
        """Load the collection into the server's memory, which is lost when the server restarts."""
        self._call(lambda: self._client.load_collection(self.collection, timeout=TIMEOUT))

    def count(self) -> int:
        """Number of documents."""
        fields = ["count(*)"]
        counts = self._call(
            lambda: self._client.query(
                self.collection, filter="", output_fields=fields, consistency_level=CONSISTENCY
            )
        )
        return int(counts[0]["count(*)"])

    def search(
        self, queries: list[dict[int, float]], top_k: int, expression: str = ""
    ) -> list[Found]:
        """Return document numbers and scores of each query, of documents that meet a filter in
        Milvus's language."""
        try:
            rankings = self._search(queries, top_k, expression)
        except InputError:
            self.make_searchable()
            rankings = self._search(queries, top_k, expression)
        return [
            ([hit["entity"]["number"] for hit in hits], [hit["distance"] for hit in hits])
            for hits in rankings
        ]

    def _search(self, queries: list[dict[int, float]], top_k: int, expression: str) -> Any:
        return self._call(
            lambda: self._client.search(
                self.collection,
                data=queries,
                anns_field="vector",
                limit=top_k,
                filter=expression,
                output_fields=["number"],
                search_params={"metric_type": "IP", "params": {"drop_ratio_search": 0.0}},
                consistency_level=CONSISTENCY,
                timeout=TIMEOUT,
            )
        )


def load(server: Server, documents: sp.csr_array, folder: Path, progress: Progress) -> None:
    """Upsert all documents [N, V + 1] that are not empty, batch by batch.

    A file in ``folder`` says how many documents the server has accepted. Documents are identified
    by their numbers, so that a batch that is sent twice is stored once.

    Raises:
        InputError: the server does not answer, or loses documents that it accepted.
    """
    filled = np.flatnonzero(np.diff(documents.indptr))
    uri = None if server.local else server.uri
    for _ in range(2):  # a killed server may have lost inserted documents: insert again
        first = int(_read(folder)["next"])
        if not first or not server.exists():
            first = 0
            server.create()
        for batch in _batches(documents, filled, first):
            spans = ((n, slice(*documents.indptr[n : n + 2])) for n in batch.tolist())
            rows = ((n, as_dict(documents.indices[s], documents.data[s])) for n, s in spans)
            server.upsert([{"number": number, "vector": vector} for number, vector in rows])
            _write(folder, uri, server.collection, int(batch[-1]) + 1)
            progress("milvus", int(batch[-1]) + 1, documents.shape[0])
        server.flush()
        server.make_searchable()
        kept = server.count()
        if kept == filled.size:
            return
        _write(folder, uri, server.collection, 0)
    raise InputError(f"{server.uri}: holds {kept:,} documents of {filled.size:,} after a full load")


def as_dict(dimensions: Integers, weights: Floats) -> dict[int, float]:
    """Return a vector as Milvus takes it."""
    return dict(zip(dimensions.tolist(), weights.tolist(), strict=True))


def _read(folder: Path) -> dict[str, Any]:
    """Return the progress of a load; an empty object before it begins."""
    return read_json(folder / STATE) if (folder / STATE).exists() else {}


def _write(folder: Path, uri: str | None, collection: str, first: int) -> None:
    write_json(folder / STATE, {"uri": uri, "collection": collection, "next": first})


def _batches(documents: sp.csr_array, filled: Any, first: int) -> Iterator[Any]:
    """Yield the numbers of non-empty documents from ``first`` on, in batches of one upsert."""
    start = int(np.searchsorted(filled, first))
    ends = np.cumsum(np.diff(documents.indptr)[filled])
    while start < filled.size:
        before = ends[start - 1] if start else 0
        end = int(np.searchsorted(ends, before + BATCH_NON_ZEROS, side="right"))
        end = min(max(end, start + 1), start + BATCH_DOCUMENTS)
        yield filled[start:end]
        start = end


def _passing(error: MilvusException) -> bool:
    """Return whether a call may succeed later: no connection (2), too many requests (8), gRPC."""
    code = error.code
    return code in (2, 8) or getattr(code, "name", "") in (
        "UNAVAILABLE",
        "DEADLINE_EXCEEDED",
        "RESOURCE_EXHAUSTED",
    )
