"""The interface of a vectorizer, which turns texts into term frequencies over one vocabulary."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias, cast, runtime_checkable

import scipy.sparse as sp

from lexicept.errors import IndexFormatError, InputError, require
from lexicept.explanation.contributions import Sources
from lexicept.models.exemplars import Exemplars

# Named, not imported: searching words must not import torch.
VECTORIZERS = {
    "words": ("lexicept.vectorizers.words", "WordVectorizer"),
    "concepts": ("lexicept.vectorizers.concepts", "ConceptVectorizer"),
    "texts": ("lexicept.vectorizers.texts", "TextVectorizer"),
}


TOKEN_TABLE = "token_table"
"""The folder of a token table in that of its vocabulary."""


class EncodedQuery(NamedTuple):
    """A query that was encoded once, for search and explanation."""

    tf: sp.csr_array
    """Term frequencies, CSR [1, size]."""
    sources: Callable[[Sequence[int]], dict[int, Sources]]
    """Returns the characters that activate each of some dimensions."""


class WeightedText(NamedTuple):
    """The vector of a text, and what made it."""

    weights: dict[int, float]
    """The weights that are not 0, by dimension."""
    sources: Callable[[Sequence[int]], dict[int, Sources]]
    """Returns the characters of the text that made the weights of some dimensions."""


class EncodedDocuments(NamedTuple):
    """Documents that were encoded together."""

    tf: sp.csr_array
    """Term frequencies, CSR [n, size]."""
    tokens: sp.csr_array | None = None
    """Sums of activations by token; see ``models.pooled.TokenSums``. None where they were not
    counted."""


class CountedPart(NamedTuple):
    """Documents that were counted without those before them."""

    terms: list[str]
    """Their terms, in the order in which they come."""
    tf: sp.csr_array
    """Term frequencies over these, CSR [n, terms]."""


class Vectorizer(Protocol):
    """Texts to term frequencies (tf) over one vocabulary."""

    name: str
    grows: bool
    """True if documents can add dimensions."""

    @property
    def size(self) -> int:
        """The number of dimensions."""

    @property
    def terms(self) -> Sequence[str]:
        """The name of each dimension."""

    def documents(self, texts: Sequence[str]) -> sp.csr_array:
        """Return CSR [n, size]; may add dimensions where the vocabulary grows."""

    def queries(self, texts: Sequence[str]) -> sp.csr_array:
        """Return CSR [n, size]; never adds dimensions."""

    def encode_query(self, text: str) -> EncodedQuery:
        """Return the tf of one query, and a function that finds its sources without encoding it
        again."""

    def document_sources(
        self, texts: Sequence[str], dimensions: Sequence[Sequence[int]]
    ) -> list[dict[int, Sources]]:
        """Return the characters of each document that activate each of its dimensions.

        Args:
            dimensions: those to look for in each text.
        """

    def save(self, folder: Path) -> None:
        """Write into an existing folder what ``load`` needs."""

    @classmethod
    def load(cls, folder: Path) -> Vectorizer:
        """Read what ``save`` wrote."""


@runtime_checkable
class JointVectorizer(Protocol):
    """A vectorizer of several vocabularies side by side, which reads a text once for all of them.

    Its folder and its name are those of the first.
    """

    name: str
    grows: bool
    parts: Sequence[Vectorizer]
    """A vectorizer of each."""

    @property
    def size(self) -> int:
        """The number of dimensions of all together."""

    def documents(self, texts: Sequence[str]) -> sp.csr_array:
        """See ``Vectorizer``."""

    def queries(self, texts: Sequence[str]) -> sp.csr_array:
        """See ``Vectorizer``."""

    def save(self, folder: Path) -> None:
        """Write each part into an existing folder of its name, beside this one."""

    def encode_parts(self, text: str) -> list[EncodedQuery]:
        """Encode a query once, for each of the vocabularies."""


class JoinedVectorizer(Vectorizer, Protocol):
    """A part of a joint vectorizer that knows it."""

    @property
    def joint(self) -> JointVectorizer:
        """The joint vectorizer."""


AnyVectorizer: TypeAlias = Vectorizer | JointVectorizer


class QueryVectorizer(Protocol):
    """The part of a vectorizer that queries and explanations need."""

    @property
    def size(self) -> int:
        """See ``Vectorizer``."""

    def queries(self, texts: Sequence[str]) -> sp.csr_array:
        """See ``Vectorizer``."""

    def encode_query(self, text: str) -> EncodedQuery:
        """See ``Vectorizer``."""

    def document_sources(
        self, texts: Sequence[str], dimensions: Sequence[Sequence[int]]
    ) -> list[dict[int, Sources]]:
        """See ``Vectorizer``."""


@runtime_checkable
class ModelVectorizer(Protocol):
    """A vectorizer that reads texts by a neural network."""

    query_precision: str
    """Number format of its matrix products for queries, float32 or bfloat16."""


class QueryModel(Protocol):
    """A model that encodes few short queries, and is loaded faster than a vectorizer."""

    @property
    def size(self) -> int:
        """See ``Vectorizer``."""

    def queries(self, texts: Sequence[str]) -> tuple[sp.csr_array, list[int]] | None:
        """Return what ``Vectorizer.queries`` returns, and the places of queries that it can't
        encode, whose rows are empty; None for too many queries."""


class QueryTable(QueryVectorizer, Protocol):
    """A table that queries are looked up in."""

    def save(self, folder: Path) -> None:
        """Write it into a new folder."""


@runtime_checkable
class TokenCounter(Protocol):
    """A vectorizer that a token table can stand in for."""

    @property
    def counts_tokens(self) -> bool:
        """True if its settings allow that."""

    def encode_documents(self, texts: Sequence[str]) -> EncodedDocuments:
        """Return the tf of documents, and the sums of their tokens."""

    def token_table(self, sums: sp.csr_array) -> QueryTable:
        """Return the token table of a collection.

        Args:
            sums: of ``encode_documents`` over the collection.
        """


@runtime_checkable
class PartJoiner(Protocol):
    """A vectorizer whose vocabulary grows, and whose documents other processes can count."""

    def part_counter(self) -> Callable[[Sequence[str]], CountedPart]:
        """Return a function that counts documents, for any process."""

    def join(self, part: CountedPart) -> sp.csr_array:
        """Return what ``documents`` returns for the documents of a part, and add their terms."""


def parts_of(vectorizer: AnyVectorizer) -> Sequence[Vectorizer]:
    """Return a vectorizer of each vocabulary that a vectorizer has."""
    return vectorizer.parts if isinstance(vectorizer, JointVectorizer) else [vectorizer]


def load_token_table(folder: Path) -> QueryTable:
    """Load the token table in the folder of a vocabulary.

    Raises:
        IndexFormatError: it is damaged.
        InputError: a package that it needs is missing.
    """
    require("lookup", "tokenizers", hint=", or search the words alone")
    table = importlib.import_module("lexicept.vectorizers.token_table").TokenTable
    return cast(QueryTable, table.load(folder / TOKEN_TABLE))


def load_query_model(folder: Path, texts: Path | None, precision: str) -> QueryModel | None:
    """Load the model in the folder of the concepts for queries alone.

    Args:
        texts: the folder of whole texts, whose weights follow the concepts'; None without any.
        precision: see ``ModelVectorizer``.

    Returns:
        None where it can't be loaded: ``load_vectorizer`` then loads it or raises the error.
    """
    try:
        model = importlib.import_module("lexicept.models.query_model").QueryModel
        exemplars = None if texts is None else Exemplars.load(texts)
        return cast(QueryModel | None, model.load(folder / "model", exemplars, precision))
    except Exception:  # a package is missing, or a file is damaged
        return None


def load_vectorizer(name: str, folder: Path, *others: Vectorizer) -> Vectorizer:
    """Load the vectorizer that was saved for a vocabulary.

    Args:
        others: other vectorizers that it uses: that of whole texts needs that of the concepts.

    Raises:
        IndexFormatError: a vocabulary of an unknown kind.
        InputError: a package that it needs is missing, or it can't be loaded.
    """
    if name not in VECTORIZERS:
        raise IndexFormatError(f"{folder}: the vocabulary {name!r} has an unknown kind")
    module, kind = VECTORIZERS[name]
    try:
        vectorizer = getattr(importlib.import_module(module), kind)
    except ModuleNotFoundError as error:
        missing = f"{error.name} missing: pip install 'lexicept[concepts]'"
        raise InputError(f"{folder}: {missing}, or search the words alone") from None
    return cast(Vectorizer, vectorizer.load(folder, *others))
