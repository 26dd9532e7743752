"""A Ray cluster: passes over shards, as ``shards.over`` makes them here, and encoding.

Shards are sent as the paths of their files, so that all nodes must see these under the same paths;
what is found comes back, and is written by this process alone. Ray does again what a process that
died was at; what it had finished is here already.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Protocol, TypeVar

import scipy.sparse as sp

from lexicept.errors import InputError, LexiceptError
from lexicept.storage.files import replace_file

RETRIES = 3
"""How often a shard is tried again whose process died; errors of lexicept are not tried again."""

QUEUED = 2
"""Blocks of texts at an encoding process, so that none waits for its next."""

AHEAD = 8
"""Blocks of each encoding process that may wait for an earlier one that takes long."""

TIMEOUT = 10
"""Seconds in which a cluster must answer."""

S = TypeVar("S")
R = TypeVar("R")


class Encoder(Protocol):
    """What a process that encodes has in memory."""

    def documents(self, texts: Sequence[str]) -> sp.csr_array:
        """Frequencies [n, size]."""


class Cluster:
    """A Ray cluster that this process has joined, or one that it has started on this machine.

    Every node has the same versions of Python, Ray and lexicept, and sees the folders of indexes
    that are built. Ray listens on all network interfaces and runs what it is sent; one that is
    started here asks for a token, and so should any other (``RAY_AUTH_MODE=token``).

    Args:
        address: ``local``, or the HOST:PORT of a cluster's head.
        workers: processes that work at once, and in encoding hold a model each; by default one
            for each GPU, in encoding, and one for each processor where there is none.

    Raises:
        InputError: Ray is not installed, or there is no cluster at this address.
    """

    def __init__(self, address: str, workers: int | None = None) -> None:
        if workers is not None and workers < 1:
            raise InputError(f"a cluster has at least 1 worker, not {workers}")
        self._ray = _join(address, workers)
        self._workers = workers

    def close(self) -> None:
        """Leave the cluster, and end one that was started here."""
        self._ray.shutdown()

    def check(self, folder: Path) -> None:
        """Raises InputError unless all nodes read in this folder what this process writes there."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        probe, content = folder / f".{secrets.token_hex(8)}", secrets.token_bytes(16)
        nodes = [n for n in self._ray.nodes() if n["Alive"] and n["Resources"].get("CPU")]
        read = self._ray.remote(num_cpus=0)(_read)
        replace_file(probe, content)
        try:
            found = []
            for node in nodes:
                there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
                found.append(read.options(scheduling_strategy=there).remote(probe))
            for node, reference in zip(nodes, found, strict=True):
                if self._result(reference) != content:
                    name = node["NodeManagerAddress"]
                    shared = "a build on Ray is for a folder that all nodes share"
                    raise InputError(f"{folder}: not seen on node {name}: {shared}")
        finally:
            probe.unlink()

    def over(self, function: Callable[..., R], shards: Sequence[S], *shared: Any) -> Iterator[R]:
        """``function(shard, *shared)`` of every shard, in order, on all nodes; a ``shards.Over``.

        Function and shared arguments are sent to each node once.

        Raises:
            LexiceptError: the process of one shard died again and again.
        """
        apply = self._ray.remote(max_retries=RETRIES)(_apply)
        work = self._ray.put((function, shared))
        count = self._workers or self._total("CPU")
        waiting: deque[Any] = deque()
        for shard in shards:
            waiting.append(apply.remote(work, shard))
            if len(waiting) > count:
                yield self._result(waiting.popleft())
        while waiting:
            yield self._result(waiting.popleft())

    def encode(
        self, load: Callable[[], Encoder], blocks: Iterable[Sequence[str]]
    ) -> Iterator[sp.csr_array]:
        """Frequencies of blocks of texts, in order: ``load().documents(block)``.

        Every process loads its encoder once, as soon as it has texts. The blocks are taken as
        there is room for them.

        Raises:
            LexiceptError: the process of one block died again and again.
        """
        encoders = self._encoders(load)
        free, waiting = deque(encoders * QUEUED), deque[Any]()
        busy: dict[Any, Any] = {}
        try:
            for block in blocks:
                encoder = free.popleft()
                waiting.append(encoder.documents.remote(block))
                busy[waiting[-1]] = encoder
                while not free or len(waiting) >= AHEAD * len(encoders):
                    for done in self._ray.wait(list(busy))[0]:
                        free.append(busy.pop(done))
                    while waiting and waiting[0] not in busy:
                        yield self._result(waiting.popleft())
            while waiting:
                yield self._result(waiting.popleft())
        finally:
            for encoder in encoders:
                self._ray.kill(encoder)

    def _encoders(self, load: Callable[[], Encoder]) -> list[Any]:
        """Processes with a GPU each, or else with all processors together."""
        gpus, cpus = self._total("GPU"), self._total("CPU")
        count = min(self._workers or gpus or cpus, gpus or cpus)
        needs = {"num_gpus": 1}
        if not gpus:
            smallest = min(int(n["Resources"].get("CPU") or cpus) for n in self._ray.nodes())
            needs = {"num_cpus": min(cpus // count, smallest)}
        kind = self._ray.remote(max_restarts=-1, max_task_retries=RETRIES, **needs)(_Encoding)
        return [kind.remote(load) for _ in range(count)]

    def _total(self, resource: str) -> int:
        return int(self._ray.cluster_resources().get(resource, 0))

    def _result(self, reference: Any) -> Any:
        """What a task returned or, without Ray's wrapping, raised."""
        from ray.exceptions import RayError, RayTaskError

        try:
            return self._ray.get(reference)
        except RayTaskError as error:
            raise error.cause from None
        except RayError as error:
            raise LexiceptError(f"Ray gave up: {_first_line(error)}") from None


class _Encoding:
    """A process that encodes. An encoder that can't be loaded is an error of its first block."""

    def __init__(self, load: Callable[[], Encoder]) -> None:
        self._load = cache(load)

    def documents(self, texts: Sequence[str]) -> sp.csr_array:
        return self._load().documents(texts)


def _apply(work: tuple[Callable[..., R], tuple[Any, ...]], shard: Any) -> R:
    function, shared = work
    return function(shard, *shared)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _join(address: str, workers: int | None) -> Any:
    """Ray, once this process has joined a cluster."""
    # Nothing leaves the machines: Ray would report on its use. And only GPUs that are asked for.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ModuleNotFoundError as error:
        raise InputError(f"{error.name} missing: pip install 'lexicept[ray]'") from None
    quiet = {"log_to_driver": False, "configure_logging": False}
    try:
        if address == "local":
            ray.init(address="local", num_cpus=workers, include_dashboard=False, **quiet)
        else:
            _knock(address)
            ray.init(address=address, **quiet)
    except (OSError, ValueError, RuntimeError) as error:
        raise InputError(f"no Ray cluster at {address!r}: {_first_line(error)}") from None
    return ray


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _knock(address: str) -> None:
    """Raises OSError or ValueError where nothing listens: Ray itself would wait for minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise ValueError("an address is local, or the HOST:PORT of its head")
    socket.create_connection((host, int(port)), TIMEOUT).close()
