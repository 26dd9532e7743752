"""Settings that ``build`` takes, each with its default, range and help: the concepts, the limits.

The command line has an option for each field.
"""

from __future__ import annotations

import os
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Literal

from lexicept.checks import Count, Positive, settings

if TYPE_CHECKING:
    from lexicept.training.sae.settings import SAESettings

Weighting = Literal["bm25", "splade"]


class Settings:
    """Base of settings that know which of them were given."""

    def changed(self) -> dict[str, Any]:
        """Return the values that are not defaults, by field."""
        values = {field.name: (getattr(self, field.name), field.default) for field in fields(self)}  # type: ignore[arg-type]
        return {name: value for name, (value, default) in values.items() if value != default}


@settings
class ConceptSettings(Settings):
    """Source of concepts, and how their model reads queries and documents.

    Raises:
        InputError: a value of another type or out of range.

    Examples:
        >>> lexicept.ConceptSettings(layer=0)
        Traceback (most recent call last):
        lexicept.errors.ParameterError: layer must be at least 1, not 0
    """

    adapt: bool = False
    """Let the latents of lexicept-mini go on learning from the documents before these are encoded:
    a minute or two for 5,000 abstracts, nothing for some hundred documents. Needs
    ``lexicept[train]``; concepts then mean something else than in other indexes."""
    sae: str | os.PathLike[str] | None = None
    """Pretrained SAE of the backbone: a folder or a Hugging Face name."""
    width: Count | None = None
    """Number of latents, to choose among several pretrained SAEs."""
    explanations: str | os.PathLike[str] | None = None
    """Labels of the SAE's latents: a Neuronpedia export, as a .jsonl file or a folder."""
    backbone: str | os.PathLike[str] | None = None
    """Hugging Face model that an SAE reads; all-MiniLM-L6-v2 by default. Without an SAE, the
    concepts are learned from the documents, and the index has vectors of whole texts."""
    query_prompt: str | None = None
    """Text before every query that a named backbone reads, such as "query: " for E5. By default as
    the backbone's configuration says."""
    document_prompt: str | None = None
    """Text before every document, such as "passage: "."""
    layer: Count | None = None
    """Number of transformer blocks to run. By default all, or as many as a pretrained SAE needs (a
    release's layer 20 is 21)."""
    bidirectional: bool | None = None
    """Attention of a decoder: to all tokens, or to earlier tokens only. By default as a pretrained
    SAE was trained (to earlier tokens if the SAE does not say), and to all tokens for an SAE
    that is trained here."""
    max_query_tokens: Count | None = None
    """Tokens, also special ones, after which the model cuts queries, rounded up to full windows. By
    default the model's length; lexicept-mini, and models without a length, read whole texts."""
    max_document_tokens: Count | None = None
    """Tokens after which the model cuts documents. By default the model's length."""
    embed_model: bool = False
    """Copy the backbone into the index. By default an index refers to a backbone in a package or on
    the hub by its name and checksum, which is verified at every load; a backbone from a folder is
    always copied."""
    train: bool | SAESettings = False
    """Train an SAE on the documents; its latents are the concepts."""


@settings
class Limits(Settings):
    """Weights and limits of concepts; by default those that their model was trained with.

    Examples:
        >>> lexicept.Limits(query_max_active_dims=8).changed()
        {'query_max_active_dims': 8}
    """

    weighting: Weighting | None = None
    """Weighting of concept activations. By default the weighting of the model's training."""
    query_max_active_dims: Count | None = None
    """Most concepts of a query. By default the model's limit."""
    query_max_qd_flops: Positive | None = None
    """Most QD-FLOPs of a query's concepts: the sum of the shares of documents that have each
    concept. By default the model's limit (1.5 for lexicept-mini)."""
    document_max_active_dims: Count | None = None
    """Most concepts of a document. By default the model's limit (160 for lexicept-mini)."""
    pruning: Literal["weight", "impact"] | None = None
    """Concepts of a query that the limits keep: of the largest weight, or of the largest impact
    (weight × the concept's largest document weight). By default as the model says."""
