"""Queries without a network: a table of the concepts that each token of the tokenizer stands for.

It needs ``tokenizers``, NumPy and SciPy only.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import scipy.sparse as sp
from tokenizers import Encoding, Tokenizer

from lexicept.errors import IndexFormatError
from lexicept.explanation.contributions import Sources, whole
from lexicept.models.word_spans import split_words, whole_words
from lexicept.storage.arrays import load_csr, save_csr
from lexicept.storage.files import read_json, write_json
from lexicept.vectorizers.interface import EncodedQuery
from lexicept.vectors import canonical_csr, prune_rows, with_entries

Combine = Literal["max", "sum"]

LATENTS = 8
"""Latents of a token, those of the largest means."""

OUT_OF_CONTEXT = 0.25
"""Part of the mean that counts with pooling ``sqrt_sum``: a token that is looked up is less certain
than one that was read in its context. Chosen on CACM and Vaswani."""


class TokenTable:
    """Token → the mean activations of latents over its occurrences in the collection.

    A query has, for each latent, the sum over its tokens; where the encoder pools by the maximum,
    the maximum. A token that the collection does not have has none. With pooling ``sqrt_sum`` no
    root is taken: it would raise the many small means, and was worse on development data.

    Args:
        tokenizer: the backbone's.
        rows: CSR [tokens, size].
        combine: how the tokens of a text are combined.
    """

    name = "concepts"

    def __init__(self, tokenizer: Tokenizer, rows: sp.csr_array, combine: Combine) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer, self._rows, self._combine = tokenizer, rows, combine
        self._read: dict[int, list[tuple[int, float]]] = {}
        self._empty = sp.csr_array((1, self.size), dtype=np.float32)
        self._empty.has_canonical_format = True

    @classmethod
    def of(cls, tokenizer: Tokenizer, sums: sp.csr_array, pooling: str) -> TokenTable:
        """Make the table of a collection.

        Args:
            sums: see ``models.pooled.TokenSums``.
            pooling: the head's.
        """
        counts = sums[:, [-1]].toarray().ravel()
        rows = sp.csr_array(sums[:, :-1])
        means = rows.data / np.repeat(counts, np.diff(rows.indptr))
        rows.data = means * (OUT_OF_CONTEXT if pooling == "sqrt_sum" else 1.0)
        rows = canonical_csr(prune_rows(rows, LATENTS))
        return cls(tokenizer, rows, "max" if pooling == "max" else "sum")

    @property
    def size(self) -> int:
        """Number of latents."""
        return int(self._rows.shape[1])

    def queries(self, texts: Sequence[str]) -> sp.csr_array:
        """Return what the texts' tokens stand for [n, size]."""
        return self._combined([self._encoded(text).ids for text in texts])

    def encode_query(self, text: str) -> EncodedQuery:
        """Encode a query; the sources of a dimension are the words whose tokens have it."""
        encoded = self._encoded(text)
        return EncodedQuery(
            self._combined([encoded.ids]),
            lambda dimensions: self._sources(text, encoded, dimensions),
        )

    def document_sources(
        self, texts: Sequence[str], dimensions: Sequence[Sequence[int]]
    ) -> list[dict[int, Sources]]:
        """Return, for each dimension of a document, the words whose tokens have it, likewise.

        It is what the table knows: a dimension that only the context of a document's words fired
        has none.
        """
        return [
            self._sources(text, self._encoded(text), wanted)
            for text, wanted in zip(texts, dimensions, strict=True)
        ]

    def _encoded(self, text: str) -> Encoding:
        # One by one: a batch starts threads, which a server's workers would multiply.
        return self._tokenizer.encode(text, add_special_tokens=False)

    def _combined(self, texts: Sequence[Sequence[int]]) -> sp.csr_array:
        """Return the combined rows of each text's tokens [n, size].

        A query has so few that Python's dictionaries are faster than NumPy.
        """
        columns: list[int] = []
        values: list[float] = []
        ends = [0]
        for ids in texts:
            found: dict[int, float] = {}
            for token in ids:
                for latent, mean in self._row(token):
                    if latent not in found:
                        found[latent] = mean
                    elif self._combine == "sum":
                        found[latent] += mean
                    elif mean > found[latent]:
                        found[latent] = mean
            order = sorted(found)
            columns += order
            values += map(found.__getitem__, order)
            ends.append(len(columns))
        empty = self._empty if len(texts) == 1 else sp.csr_array((len(texts), self.size))
        data, indices = np.array(values, np.float32), np.array(columns, np.int32)
        return with_entries(empty, data, indices, np.array(ends, np.int32))

    def _row(self, token: int) -> list[tuple[int, float]]:
        """Return the latents of a token and their means."""
        row = self._read.get(token)
        if row is None:
            row = []
            if token < self._rows.shape[0]:  # a damaged tokenizer may know more
                span = slice(*self._rows.indptr[token : token + 2].tolist())
                latents, means = self._rows.indices[span], self._rows.data[span]
                row = list(zip(latents.tolist(), means.tolist(), strict=True))
            self._read[token] = row
        return row

    def _sources(
        self, text: str, encoded: Encoding, dimensions: Sequence[int]
    ) -> dict[int, Sources]:
        """Return the words of the tokens that have each dimension; with pooling by the maximum,
        the first one of those that have most of it."""
        words = whole_words(split_words(text, encoded.word_ids, encoded.offsets), encoded.offsets)
        places = [whole(text, *place) for place in words]
        ids = np.array(encoded.ids, np.int64)
        known = np.flatnonzero(ids < self._rows.shape[0])
        weights = self._rows[ids[known]][:, list(dimensions)].toarray()
        sources = {}
        for column, dimension in enumerate(dimensions):
            fired = np.flatnonzero(weights[:, column])
            if self._combine == "max" and fired.size:
                fired = fired[[np.argmax(weights[fired, column])]]
            shares = weights[fired, column] / weights[fired, column].sum(dtype=np.float64)
            sources[dimension] = Sources.of(
                zip((places[place] for place in known[fired]), shares.tolist(), strict=True)
            )
        return sources

    def save(self, folder: Path) -> None:
        """Write the table and its tokenizer into a new folder."""
        folder.mkdir()
        (folder / "tokenizer.json").write_text(self._tokenizer.to_str(), encoding="utf-8")
        save_csr(folder / "rows", self._rows)
        write_json(folder / "table.json", {"combine": self._combine, "latents": self.size})

    @classmethod
    def load(cls, folder: Path) -> TokenTable:
        """Read what ``save`` wrote. Raises IndexFormatError for anything else."""
        settings = read_json(folder / "table.json")
        combine, size = settings.get("combine"), settings.get("latents")
        if combine not in ("max", "sum") or type(size) is not int:
            raise IndexFormatError(f"{folder}: not the settings of a token table")
        rows = load_csr(folder / "rows", size)
        try:
            tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        except Exception as error:  # the library raises nothing more specific
            raise IndexFormatError(f"{folder / 'tokenizer.json'}: {error}") from None
        return cls(tokenizer, rows, combine)
