"""Passes over shards, and encoding, on a Ray cluster.

Shards are sent as paths, so every node must see the index folder under the same path. This process
alone writes the results. Ray repeats the task of a process that died.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from lexicept.checks import Count, check
from lexicept.errors import InputError, LexiceptError, ParameterError, first_line_of, require
from lexicept.storage.files import replace_file

RETRIES = 3
"""Repetitions of a task whose process died. A task that raised an error is not repeated."""

QUEUED = 4
"""Blocks of texts in flight per encoding process, so that no process waits for the results of
earlier blocks elsewhere."""

TIMEOUT = 10
"""Seconds to wait for a connection to a cluster."""

S = TypeVar("S")
R = TypeVar("R")
T = TypeVar("T", covariant=True)


class BlockEncoder(Protocol[T]):
    """The model of an encoding process."""

    def documents(self, texts: Sequence[str]) -> T: ...


class Cluster:
    """A Ray cluster that this process joined at ``local`` or the HOST:PORT of a head node, or
    started on this machine.

    Every node needs the same versions of Python, Ray and lexicept, and access to the folders of the
    indexes that are built. Ray listens on all network interfaces and runs the code it receives: a
    cluster started here requires a token, and any other should (``RAY_AUTH_MODE=token``).
    ``workers`` processes work at once, by default one per GPU when encoding, else one per CPU core.
    Raises InputError if Ray is not installed, or no cluster answers."""

    def __init__(self, address: str, workers: int | None = None) -> None:
        check("ray_workers", workers, Count | None)
        self._ray = _join(address, workers)
        self._workers = workers

    def close(self) -> None:
        """Disconnect from the cluster, and stop it if it was started here."""
        self._ray.shutdown()

    def check(self, folder: Path) -> None:
        """Raise InputError unless every node sees the files of this process in a folder."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        probe, token = folder / f".{secrets.token_hex(8)}", secrets.token_bytes(16)
        nodes = [n for n in self._ray.nodes() if n["Alive"] and n["Resources"].get("CPU")]
        read = self._ray.remote(num_cpus=0)(_read)
        replace_file(probe, token)
        try:
            references = []
            for node in nodes:
                there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
                references.append(read.options(scheduling_strategy=there).remote(probe))
            for node, reference in zip(nodes, references, strict=True):
                if self._result(reference) != token:
                    name = node["NodeManagerAddress"]
                    shared = "a build on Ray is for a folder that all nodes share"
                    raise InputError(f"{folder}: not seen on node {name}: {shared}")
        finally:
            probe.unlink()

    def over(self, function: Callable[..., R], shards: Iterable[S], *shared: Any) -> Iterator[R]:
        """Yield ``function(shard, *shared)`` for every shard, in order, computed on all nodes.

        The cluster's ``shards.Over``. Function and shared arguments are sent to each node once.
        Shards are taken from the iterable only as processes have room for them. Raises
        LexiceptError if the process of one shard died ``RETRIES`` + 1 times.
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
        self, load: Callable[[], BlockEncoder[R]], blocks: Iterable[Sequence[str]]
    ) -> Iterator[R]:
        """Yield ``load().documents(block)`` for all blocks of texts, in order.

        Each process loads its encoder once, with its first block of texts. Blocks are taken from
        the iterable only as processes have room for them.
        """
        from ray.util import ActorPool

        encoders = self._encoders(load)
        # Each process is in the pool several times: the next block waits while one is encoded.
        pool = ActorPool(encoders * QUEUED)
        try:
            for block in blocks:
                if not pool.has_free():
                    yield self._unwrapped(pool.get_next)
                pool.submit(lambda encoder, texts: encoder.documents.remote(texts), block)
            while pool.has_next():
                yield self._unwrapped(pool.get_next)
        finally:
            for encoder in encoders:
                self._ray.kill(encoder)

    def _encoders(self, load: Callable[[], BlockEncoder[Any]]) -> list[Any]:
        """Start processes with a GPU each or, without GPUs, with an equal share of the cores."""
        gpus, cpus = self._total("GPU"), self._total("CPU")
        count = min(self._workers or gpus or cpus, gpus or cpus)
        needs = {"num_gpus": 1}
        if not gpus:
            smallest = min(int(n["Resources"].get("CPU") or cpus) for n in self._ray.nodes())
            needs = {"num_cpus": min(cpus // count, smallest)}
        actor = self._ray.remote(max_restarts=-1, max_task_retries=RETRIES, **needs)(_Encoding)
        return [actor.remote(load) for _ in range(count)]

    def _total(self, resource: str) -> int:
        return int(self._ray.cluster_resources().get(resource, 0))

    def _result(self, reference: Any) -> Any:
        return self._unwrapped(partial(self._ray.get, reference))

    def _unwrapped(self, take: Callable[[], Any]) -> Any:
        """Call a function of Ray; raise a task's own error without Ray's wrapping."""
        from ray.exceptions import RayError, RayTaskError

        try:
            return take()
        except RayTaskError as error:
            raise error.cause from None
        except RayError as error:
            raise LexiceptError(f"Ray gave up: {first_line_of(error)}") from None


@contextmanager
def joined_cluster(ray: str | None, ray_workers: int | None) -> Iterator[Cluster | None]:
    """Return a Ray cluster while the block runs; None without an address. Raises ParameterError for
    workers without an address."""
    if ray is None:
        if ray_workers is not None:
            raise ParameterError("{0} requires {1}", "ray_workers", "ray")
        yield None
        return
    with closing(Cluster(ray, ray_workers)) as cluster:
        yield cluster


class _Encoding:
    """An encoding process. The first block raises the error of loading the encoder."""

    def __init__(self, load: Callable[[], BlockEncoder[Any]]) -> None:
        self._load = cache(load)

    def documents(self, texts: Sequence[str]) -> Any:
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
    """Join or start a cluster, and return the module ``ray``."""
    # Ray sends no usage statistics, and hides no GPU from tasks that reserve none.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    require("ray", "ray")
    import ray

    job = ray.job_config.JobConfig()
    # Or Ray has workers import from the current folder first, before Python's own library.
    # Private in Ray 2.60.
    job._runtime_env_has_working_dir = lambda: True
    options = {"job_config": job, "log_to_driver": False, "configure_logging": False}
    try:
        if address == "local":
            ray.init(address="local", num_cpus=workers, include_dashboard=False, **options)
        else:
            _knock(address)
            ray.init(address=address, **options)
    except (OSError, ValueError, RuntimeError) as error:
        raise InputError(f"no Ray cluster at {address!r}: {first_line_of(error)}") from None
    return ray


def _knock(address: str) -> None:
    """Raise OSError or ValueError if nothing listens: Ray itself would wait for minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise ValueError("an address is local, or the HOST:PORT of its head")
    socket.create_connection((host, int(port)), TIMEOUT).close()
