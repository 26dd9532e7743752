"""Counts and times of requests, in Prometheus' format."""

from __future__ import annotations

import os

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the histogram's buckets in seconds."""

BATCH_BUCKETS = (1, 2, 4, 8, 16, 32)
"""Upper bounds of the histogram's buckets in queries."""

SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""Environment variable with the folder that several workers share; set before the import."""


class Metrics:
    """The metrics of an application, or of all workers with a shared folder."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "lexicept_requests",
            "Requests that were answered.",
            ("path", "status"),
            registry=self._registry,
        )
        self._seconds = Histogram(
            "lexicept_request_seconds",
            "Time from a request to the end of its answer.",
            ("path",),
            buckets=BUCKETS,
            registry=self._registry,
        )

        self.cache = Counter(
            "lexicept_query_cache",
            "Searches that need the model's encoding of their query, by whether it was kept.",
            ("outcome",),
            registry=self._registry,
        )
        self.batches = Histogram(
            "lexicept_batch_queries",
            "Queries that the model encoded together.",
            buckets=BATCH_BUCKETS,
            registry=self._registry,
        )

    def observe(self, path: str, status: int, seconds: float) -> None:
        """Count an answer by the route's path."""
        self._requests.labels(path, status).inc()
        self._seconds.labels(path).observe(seconds)

    def text(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        registry = self._registry
        if SHARED_FOLDER in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)
