"""Explain a document's score by a model, without an index."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lexicept.checks import Count, Whole, checked_arguments
from lexicept.corpora import Document
from lexicept.encoding.sources import DEFAULT_BACKBONE
from lexicept.errors import ParameterError, require
from lexicept.explanation.contributions import Contribution
from lexicept.explanation.explanation import Explanation
from lexicept.pipelines.documents import as_documents
from lexicept.queries.syntax import ParsedQuery

if TYPE_CHECKING:
    from sentence_transformers import SparseEncoder

    from lexicept.neural.vectorizers.concepts import ConceptVectorizer
    from lexicept.neural.vectorizers.library import LibraryModel


@checked_arguments
def explain(
    query: str,
    document: str | Mapping[str, Any] | Document,
    model: str | os.PathLike[str] | SparseEncoder,
    *,
    backbone: str | os.PathLike[str] | None = None,
    layer: Whole | None = None,
    width: Count | None = None,
    bidirectional: bool | None = None,
) -> Explanation:
    """Explain a model's score of a document by dimensions and by the text behind each.

    The score is ``similarity(encode_query(query), encode_document(document))``, the sum of the
    contributions. Each weight is divided among the words of its tokens: with max pooling the word
    of the largest activation, with sums all words. Special tokens and prompts have no characters,
    so shares may add up to less than 1. An autoencoder after mean pooling (CSR) gets negative
    shares from tokens that lower a latent's activation; after other pooling the autoencoder reads
    the whole text at once, and contributions have no words.

    ``Index.explain`` explains scores in an index, by weights of the collection.

    Args:
        query: a text.
        document: a text, a dict (``text``, and optionally ``id`` and ``title``) or a ``Document``.
        model: a folder or a hub's name of a SPLADE model, a sentence-transformers
            ``SparseEncoder``, a model of lexicept, or a pretrained SAE; "lexicept-
            mini", the model in the package; or a loaded ``SparseEncoder``. An SAE's weights are
            ``log1p`` of the latents' maxima over the tokens, as in SPLADE.
        backbone: the Hugging Face model of an SAE's states; all-MiniLM-L6-v2 by default.
        layer: the number of backbone blocks before the SAE; by default the SAE's own.
        width: the number of latents, to choose among several pretrained SAEs.
        bidirectional: whether a decoder's tokens attend to later tokens; by default as the SAE was
            trained.

    Raises:
        InputError: an unknown model, a similarity that is no sum over dimensions, parameters of
            SAEs for another model, or the extra ``train`` is not installed.

    Examples:
        >>> explanation = lexicept.explain("cats", "A cat sleeps.", "lexicept-mini")
        >>> round(explanation.score, 2)
        3.58
    """
    require("train", "sentence_transformers")
    (read,) = as_documents([document])
    options = {"backbone": backbone, "layer": layer, "width": width, "bidirectional": bidirectional}
    loaded = _load(model, {name: value for name, value in options.items() if value is not None})
    query = ParsedQuery(query).text  # refuses what is no text
    query_text, document_text = loaded.weigh(query, "query"), loaded.weigh(read.content, "document")
    scores = {
        dimension: weight * document_text.weights[dimension]
        for dimension, weight in query_text.weights.items()
        if dimension in document_text.weights
    }
    shared = sorted(scores, key=lambda dimension: (-scores[dimension], dimension))
    in_query, in_document = query_text.sources(shared), document_text.sources(shared)
    contributions = (
        Contribution(
            loaded.kind,
            dimension,
            loaded.term(dimension),
            scores[dimension],
            query_text.weights[dimension],
            document_text.weights[dimension],
            *in_query[dimension],
            *in_document[dimension],
        )
        for dimension in shared
    )
    return Explanation(query, read.id, read.content, tuple(contributions), 0.0)


def _load(model: Any, sae_options: Mapping[str, Any]) -> ConceptVectorizer | LibraryModel:
    """Return a model by name or folder, or from a loaded encoder."""
    from sentence_transformers import SparseEncoder

    from lexicept.neural.converters.reading import ModelLayout, find_model, load_in_own_library
    from lexicept.neural.encoders.encoder import Encoder
    from lexicept.neural.vectorizers.concepts import BackboneSettings, ConceptVectorizer
    from lexicept.neural.vectorizers.library import LibraryModel

    if isinstance(model, SparseEncoder):
        _refuse(sae_options)
        return ConceptVectorizer(model) if isinstance(model, Encoder) else LibraryModel(model)
    source = os.fspath(model)
    folder, layout = find_model(source)
    if layout is None:
        settings = BackboneSettings(
            os.fspath(sae_options.get("backbone", DEFAULT_BACKBONE)),
            sae_options.get("layer"),
            bidirectional=sae_options.get("bidirectional"),
        )
        return ConceptVectorizer.pretrained(source, settings, sae_options.get("width"))
    _refuse(sae_options)
    if layout is ModelLayout.sentence_transformers:  # also models that an index can't hold
        return LibraryModel(load_in_own_library(folder))
    return ConceptVectorizer.load(source)


def _refuse(sae_options: Mapping[str, Any]) -> None:
    """Raise ParameterError for a parameter of SAEs."""
    for name in sae_options:
        raise ParameterError("{0} is for SAEs, and this model has its own backbone", name)
