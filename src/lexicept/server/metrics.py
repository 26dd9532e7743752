"""Counts and times of requests, in Prometheus' format."""

from __future__ import annotations

import os

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""Environment variable with the folder that several workers share; set before the import."""

REGISTRY = CollectorRegistry()
"""The metrics of this process."""

REQUESTS = Counter(
    "lexicept_requests", "Requests that were answered.", ("path", "status"), registry=REGISTRY
)
SECONDS = Histogram(
    "lexicept_request_seconds",
    "Time from a request to the end of its answer.",
    ("path",),
    buckets=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
    registry=REGISTRY,
)
CACHE = Counter(
    "lexicept_query_cache",
    "Searches that need the model's encoding of their query, by whether it was kept.",
    ("outcome",),
    registry=REGISTRY,
)
BATCHES = Histogram(
    "lexicept_batch_queries",
    "Queries that the model encoded together.",
    buckets=(1, 2, 4, 8, 16, 32),
    registry=REGISTRY,
)


def text() -> bytes:
    """Return the metrics of all workers in Prometheus' text format."""
    registry = REGISTRY
    if SHARED_FOLDER in os.environ:
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return generate_latest(registry)
