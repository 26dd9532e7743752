"""Concepts whose activations in documents are drawn from a Zipf-like distribution."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from lexicept.neural.vectorizers.concepts import ConceptVectorizer

LATENTS, ACTIVE = 8192, 300
"""Concepts, and at most how many of them in a document."""


class Drawn(ConceptVectorizer):
    """A vectorizer whose document activations are drawn and query activations computed."""

    random = np.random.default_rng(0)
    counts_tokens = False  # no activations of tokens are computed

    def documents(self, texts: Sequence[str]) -> sp.csr_array:
        """CSR [n, LATENTS]."""
        shape = (len(texts), ACTIVE)
        # How often n is drawn falls about as n to the power of −.7.
        power = 1 / (1 - 0.7)
        u = self.random.random(shape)
        columns = np.minimum((u**power * LATENTS).astype(np.int64), LATENTS - 1)
        text_indices = np.repeat(np.arange(len(texts)), ACTIVE)
        values = self.random.gamma(2, 1, columns.size).astype(np.float32)
        drawn = sp.coo_array((values, (text_indices, columns.ravel())), shape=(len(texts), LATENTS))
        return sp.csr_array(drawn)
