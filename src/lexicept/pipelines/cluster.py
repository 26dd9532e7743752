"""Ray clusters that a pipeline works on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from lexicept.errors import ParameterError

if TYPE_CHECKING:
    from lexicept.parallel.ray import Cluster


@contextmanager
def joined(ray: str | None, ray_workers: int | None) -> Iterator[Cluster | None]:
    """Return a Ray cluster while the block runs; None without an address.

    Raises:
        ParameterError: workers without an address.
    """
    if ray is None:
        if ray_workers is not None:
            raise ParameterError("{0} requires {1}", "ray_workers", "ray")
        yield None
        return
    from lexicept.parallel.ray import Cluster

    with closing(Cluster(ray, ray_workers)) as cluster:
        yield cluster
