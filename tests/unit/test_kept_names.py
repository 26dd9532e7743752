"""Which names of a model survive its training."""

import numpy as np
import scipy.sparse as sp

from lexicept.concepts.describe import names_for
from lexicept.index.atlas import BINS, SOURCES, Findings

FOUND = ["cats", "#1", "#2", "#3", "#4", "#5"]
"""The first two were described: by a name, and by words of no name."""

KNOWN = ["dogs", "locks", "Paths", "joins", "#4"]


def findings() -> Findings:
    rows, zs = [0, 1, 2], [5.0, 1.96, 1.95]
    return Findings(
        labels=FOUND,
        sources=np.array([SOURCES.index("none" if n else "words") for n in range(6)]),
        tokens=9,
        firings=np.zeros(6, np.int64),
        words=["w"],
        log_odds=sp.csr_array((zs, (rows, [0] * 3)), shape=(6, 1)),
        examples=sp.csr_array((6, 1)),
        spans=np.zeros((0, 2), np.int64),
        detection=np.full(6, 0.9),
        histogram=np.zeros((6, BINS), np.int64),
        octave=4,
        nearest=sp.csr_array((6, 6)),
    )


def test_names_of_latents_that_stayed_themselves():
    before = np.eye(6, dtype=np.float32)[:5]
    after = 7 * np.eye(6, dtype=np.float32)
    after[2] = [0.0, 0.0, 0.81, 0.0, 0.0, (1 - 0.81**2) ** 0.5]
    after[3] = [0.0, 0.0, 0.0, 0.79, 0.0, (1 - 0.79**2) ** 0.5]
    found = names_for(findings(), KNOWN, before, after)
    assert found.labels == ["cats", "#1", "Paths", "#3", "#4", "#5"]
    assert [SOURCES[n] for n in found.sources] == ["words", "none", "words", *["none"] * 3]
    rows = np.eye(6, dtype=np.float32)
    found = names_for(findings(), ["", "", "", "CATS"], rows[:4], rows)
    assert found.labels == ["cats", "#1", "#2", "CATS #3", "#4", "#5"]
