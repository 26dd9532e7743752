"""Queries without a network: a table from each token of the tokenizer to concepts.

The module requires ``tokenizers``, NumPy and SciPy only.
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
from lexicept.models.windows import read_tokenizer
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
"""Latents of a token, by the largest means."""

REMEMBERED = 2**16
"""Words with remembered tokens: some 15 MB."""


class QueryCut(NamedTuple):
    """The number of tokens at which queries are cut."""

    most: int | None = None
    """None cuts no query."""
    cut: str = "right"
    """The side of a longer query to cut off: right or left."""

    @property
    def slice(self) -> slice:
        """The places of the remaining tokens."""
        if self.most is None:
            return slice(None)
        return slice(-self.most, None) if self.cut == "left" else slice(self.most)

    @classmethod
    def read(cls, content: Any) -> QueryCut | None:
        """Parse a JSON value; None for a malformed value."""
        if not isinstance(content, list) or len(content) != 2:
            return None
        most, cut = content
        sound = (most is None or (type(most) is int and most > 0)) and cut in ("left", "right")
        return cls(most, cut) if sound else None


WHOLE = QueryCut()
"""Queries are not cut."""


def _splits_at_spaces(tokenizer: Tokenizer) -> bool:
    """Return True if a text is tokenized between spaces, as by BERT: the tokens of a word can be
    remembered."""
    added = tokenizer.get_added_tokens_decoder().values()
    return (
        isinstance(tokenizer.normalizer, BertNormalizer)
        and isinstance(tokenizer.pre_tokenizer, BertPreTokenizer)
        and not any(" " in token.content for token in added)
    )


class TokenTable:
    """Token → mean activations of latents over the token's occurrences in the collection.

    A query gets, for each latent, the maximum, the sum or the root of the sum over tokens, as by
    the encoder's pooling. A token that is not in the collection has no latents.

    Args:
        table: CSR [tokens, size].
        combine: the encoder's pooling.
        cut: the encoder's cut of queries.
    """

    name = "concepts"

    def __init__(
        self, tokenizer: Tokenizer, table: sp.csr_array, combine: Combine, cut: QueryCut = WHOLE
    ) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._cut = cut
        self._tokenizer, self._table, self._combine = tokenizer, table, combine
        self._apart = _splits_at_spaces(tokenizer)
        self._seen: dict[str, list[int]] = {}

    @classmethod
    def of(
        cls, tokenizer: Tokenizer, sums: sp.csr_array, pooling: Combine, cut: QueryCut = WHOLE
    ) -> TokenTable:
        """Make the table of a collection from sums by token; see ``models.pooled.TokenSums``."""
        counts = sums[:, [-1]].toarray().ravel()
        means = sp.csr_array(sums[:, :-1])
        means.data = means.data / np.repeat(counts, np.diff(means.indptr))
        return cls(tokenizer, canonical_csr(prune_rows(means, LATENTS)), pooling, cut)

    @property
    def size(self) -> int:
        """Number of latents."""
        return int(self._table.shape[1])

    def encode_query(self, text: str) -> EncodedQuery:
        """Encode a query; the sources of a dimension are words with tokens of the dimension."""
        encoded = self._encoded(text)
        if self._cut.most is not None:
            encoded.truncate(self._cut.most, direction=self._cut.cut)
        return EncodedQuery(
            self.queries([text]),
            lambda dimensions: self._sources(text, encoded, dimensions),
        )

    def document_sources(
        self, texts: Sequence[str], dimensions: Sequence[Sequence[int]]
    ) -> list[dict[int, Sources]]:
        """Return, for each dimension of a document, the words with tokens of the dimension; no word
        for a dimension that only the context fired."""
        return [
            self._sources(text, self._encoded(text), of_text)
            for text, of_text in zip(texts, dimensions, strict=True)
        ]

    def _encoded(self, text: str) -> Encoding:
        # One by one: a batch starts threads, which a server's workers would multiply.
        return self._tokenizer.encode(text, add_special_tokens=False)

    def queries(self, texts: Sequence[str]) -> sp.csr_array:
        """Return the combined activations of the texts' tokens [n, size]."""
        table, largest = self._table, self._combine == "max"
        queries = [self._ids(text)[self._cut.slice] for text in texts]
        entries = sum(map(len, queries)) * LATENTS
        combine = by_work(entries * LOOPED, combine_rows, combine_rows_reference)
        combined = [
            combine(
                np.array(ids, np.int64), table.indptr, table.indices, table.data, self.size, largest
            )
            for ids in queries
        ]
        if self._combine == "sqrt_sum":
            combined = [(indices, np.sqrt(data)) for indices, data in combined]
        if len(combined) == 1:
            ((indices, data),) = combined
            return canonical_entries(data, indices, np.array([0, indices.size]), self.size)
        ends = np.cumsum([0, *(indices.size for indices, _ in combined)])
        indices = np.concatenate([np.empty(0, np.int32), *(indices for indices, _ in combined)])
        data = np.concatenate([np.empty(0, np.float32), *(data for _, data in combined)])
        return canonical_entries(data, indices, ends, self.size)

    def _ids(self, text: str) -> list[int]:
        """Return the tokens of a text in the table."""
        if not self._apart:
            return self._known(text)
        ids: list[int] = []
        for word in text.split(" "):
            word_ids = self._seen.get(word)
            if word_ids is None:
                word_ids = self._known(word)
                if len(word) <= LONGEST_REMEMBERED:
                    if len(self._seen) >= REMEMBERED:  # a server sees new words for ever
                        self._seen.clear()
                    self._seen[word] = word_ids
            ids += word_ids
        return ids

    def _known(self, text: str) -> list[int]:
        # A damaged tokenizer may know more.
        return [token for token in self._encoded(text).ids if token < self._table.shape[0]]

    def _sources(
        self, text: str, encoded: Encoding, dimensions: Sequence[int]
    ) -> dict[int, Sources]:
        """Return the words with tokens of each dimension; with pooling by the maximum, the first
        word with the largest activation."""
        words = whole_words(split_words(text, encoded.word_ids, encoded.offsets), encoded.offsets)
        places = [whole(text, start, end) for start, end in words]
        # Each token has a share of the dimension's weight, in proportion to the table.
        ids = np.array(encoded.ids, np.int64)
        in_table = np.flatnonzero(ids < self._table.shape[0])
        weights = self._table[ids[in_table]][:, list(dimensions)].toarray()
        sources = {}
        for column, dimension in enumerate(dimensions):
            fired = np.flatnonzero(weights[:, column])
            if self._combine == "max" and fired.size:
                fired = fired[[np.argmax(weights[fired, column])]]
            shares = weights[fired, column] / weights[fired, column].sum(dtype=np.float64)
            sources[dimension] = Sources.of(
                zip((places[place] for place in in_table[fired]), shares.tolist(), strict=True)
            )
        return sources

    def save(self, folder: Path) -> None:
        """Write the table and its tokenizer into a new folder."""
        folder.mkdir()
        (folder / "tokenizer.json").write_text(self._tokenizer.to_str(), encoding="utf-8")
        save_csr(folder / "rows", self._table)
        settings = {"combine": self._combine, "latents": self.size, "kept": [*self._cut]}
        write_json(folder / "table.json", settings)

    @classmethod
    def load(cls, folder: Path) -> TokenTable:
        """Read the files of ``save``. Raises IndexFormatError for damaged files."""
        settings = read_json(folder / "table.json")
        combine: Any = settings.get("combine")
        size, cut = settings.get("latents"), QueryCut.read(settings.get("kept"))
        if combine not in get_args(Combine) or type(size) is not int or cut is None:
            raise IndexFormatError(f"{folder}: not the settings of a token table")
        table = load_csr(folder / "rows", size)
        return cls(read_tokenizer(folder / "tokenizer.json"), table, combine, cut)
