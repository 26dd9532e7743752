"""Queries without a network: a table of the concepts that each token of the tokenizer stands for.

It needs ``tokenizers``, NumPy and SciPy only.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import scipy.sparse as sp
from tokenizers import Encoding, Tokenizer
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from lexicept.errors import IndexFormatError
from lexicept.explanation.contributions import Sources, whole
from lexicept.models.word_spans import split_words, whole_words
from lexicept.ops.compiled import LOOPED, by_work
from lexicept.ops.query_vectors import combine_rows, combine_rows_reference
from lexicept.storage.arrays import load_csr, save_csr
from lexicept.storage.files import read_json, write_json
from lexicept.vectorizers.interface import EncodedQuery
from lexicept.vectorizers.words import LONGEST_REMEMBERED
from lexicept.vectors import canonical_csr, canonical_entries, prune_rows

Combine = Literal["max", "sum", "sqrt_sum"]

LATENTS = 8
"""Latents of a token, those of the largest means."""

REMEMBERED = 2**16
"""Words whose tokens are kept: some 15 MB."""


class Kept(NamedTuple):
    """The tokens that are read of a query."""

    most: int | None = None
    """Their largest number; None for all."""
    cut: str = "right"
    """The side of a longer query that is not read: right or left."""

    @property
    def slice(self) -> slice:
        """Their places."""
        if self.most is None:
            return slice(None)
        return slice(-self.most, None) if self.cut == "left" else slice(self.most)

    @classmethod
    def read(cls, content: Any) -> Kept | None:
        """Return what a JSON value says; None for a value that says something else."""
        if not isinstance(content, list) or len(content) != 2:
            return None
        most, cut = content
        known = (most is None or (type(most) is int and most > 0)) and cut in ("left", "right")
        return cls(most, cut) if known else None


WHOLE = Kept()
"""All tokens of a query."""


def _splits_at_spaces(tokenizer: Tokenizer) -> bool:
    """Return whether the tokens of a text are those of what stands between its spaces, as BERT's
    are, so that these can be remembered."""
    bert = (tokenizer.normalizer, BertNormalizer), (tokenizer.pre_tokenizer, BertPreTokenizer)
    added = tokenizer.get_added_tokens_decoder().values()
    return all(isinstance(*pair) for pair in bert) and not any(" " in one.content for one in added)


class TokenTable:
    """Token → the mean activations of latents over its occurrences in the collection.

    A query has, for each latent, the maximum, the sum or the root of the sum over its tokens, as
    the encoder pools them. A token that the collection does not have has none.

    Args:
        tokenizer: the backbone's.
        rows: CSR [tokens, size].
        combine: how the tokens of a text are combined: the encoder's pooling.
        kept: the tokens of a query that the encoder reads.
    """

    name = "concepts"

    def __init__(
        self, tokenizer: Tokenizer, rows: sp.csr_array, combine: Combine, kept: Kept = WHOLE
    ) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._kept = kept
        self._tokenizer, self._rows, self._combine = tokenizer, rows, combine
        self._apart = _splits_at_spaces(tokenizer)
        self._seen: dict[str, list[int]] = {}

    @classmethod
    def of(
        cls, tokenizer: Tokenizer, sums: sp.csr_array, pooling: Combine, kept: Kept = WHOLE
    ) -> TokenTable:
        """Make the table of a collection.

        Args:
            sums: see ``models.pooled.TokenSums``.
            pooling: the head's.
            kept: the tokens of a query that the encoder reads.
        """
        counts = sums[:, [-1]].toarray().ravel()
        rows = sp.csr_array(sums[:, :-1])
        rows.data = rows.data / np.repeat(counts, np.diff(rows.indptr))
        return cls(tokenizer, canonical_csr(prune_rows(rows, LATENTS)), pooling, kept)

    @property
    def size(self) -> int:
        """Number of latents."""
        return int(self._rows.shape[1])

    def queries(self, texts: Sequence[str]) -> sp.csr_array:
        """Return what the texts' tokens stand for [n, size]."""
        return self._combined(texts)

    def encode_query(self, text: str) -> EncodedQuery:
        """Encode a query; the sources of a dimension are the words whose tokens have it."""
        encoded = self._encoded(text)
        if self._kept.most is not None:
            encoded.truncate(self._kept.most, direction=self._kept.cut)
        return EncodedQuery(
            self._combined([text]),
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

    def _combined(self, texts: Sequence[str]) -> sp.csr_array:
        """Return the combined rows of each text's tokens [n, size]."""
        rows, largest = self._rows, self._combine == "max"
        table = (rows.indptr, rows.indices, rows.data, self.size, largest)
        kept = [self._ids(text)[self._kept.slice] for text in texts]
        entries = sum(map(len, kept)) * LATENTS
        combine = by_work(entries * LOOPED, combine_rows, combine_rows_reference)
        parts = [combine(np.array(ids, np.int64), *table) for ids in kept]
        if self._combine == "sqrt_sum":
            parts = [(indices, np.sqrt(data)) for indices, data in parts]
        if len(parts) == 1:
            ((indices, data),) = parts
            return canonical_entries(data, indices, np.array([0, indices.size]), self.size)
        ends = np.cumsum([0, *(indices.size for indices, _ in parts)])
        indices = np.concatenate([np.empty(0, np.int32), *(indices for indices, _ in parts)])
        data = np.concatenate([np.empty(0, np.float32), *(data for _, data in parts)])
        return canonical_entries(data, indices, ends, self.size)

    def _ids(self, text: str) -> list[int]:
        """Return the tokens of a text that the table has."""
        if not self._apart:
            return self._known(text)
        ids: list[int] = []
        for part in text.split(" "):
            of_part = self._seen.get(part)
            if of_part is None:
                of_part = self._known(part)
                if len(part) <= LONGEST_REMEMBERED:
                    if len(self._seen) >= REMEMBERED:  # a server sees new words for ever
                        self._seen.clear()
                    self._seen[part] = of_part
            ids += of_part
        return ids

    def _known(self, text: str) -> list[int]:
        # A damaged tokenizer may know more.
        return [token for token in self._encoded(text).ids if token < self._rows.shape[0]]

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
        settings = {"combine": self._combine, "latents": self.size, "kept": [*self._kept]}
        write_json(folder / "table.json", settings)

    @classmethod
    def load(cls, folder: Path) -> TokenTable:
        """Read what ``save`` wrote. Raises IndexFormatError for anything else."""
        settings = read_json(folder / "table.json")
        combine: Any = settings.get("combine")
        size, kept = settings.get("latents"), Kept.read(settings.get("kept"))
        if combine not in get_args(Combine) or type(size) is not int or kept is None:
            raise IndexFormatError(f"{folder}: not the settings of a token table")
        rows = load_csr(folder / "rows", size)
        try:
            tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        except Exception as error:  # the library raises nothing more specific
            raise IndexFormatError(f"{folder / 'tokenizer.json'}: {error}") from None
        return cls(tokenizer, rows, combine, kept)
