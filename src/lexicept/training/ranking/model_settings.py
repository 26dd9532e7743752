"""Settings of the encoder to train for ranking."""

from __future__ import annotations

from dataclasses import field
from typing import Annotated, Literal

from annotated_types import Ge

from lexicept.checks import Count, NotNegative, Positive, Share, Whole, settings
from lexicept.encoding.head_settings import Pooling
from lexicept.encoding.sources import DEFAULT_BACKBONE, Dtype
from lexicept.errors import InputError
from lexicept.training.own_parts import OR_OWN, OwnPart
from lexicept.training.pretraining.head_kinds import LanguageHead
from lexicept.training.sae.settings import SAESettings
from lexicept.vectors import Pruning

Length = Annotated[Count, Ge(8)]
"""Length of cut texts in tokens, special tokens included."""


@settings
class ModelSettings:
    """The encoder to train."""

    start: str | None = None
    """Saved encoder to start from: a folder or a hub name; null makes one of the settings below."""
    backbone: str = DEFAULT_BACKBONE
    """Backbone: a hub name or a folder."""
    layer: Count | None = None
    """Number of blocks to run; null for the blocks before a pretrained SAE, or all."""
    bidirectional: bool | None = None
    """Let a decoder's tokens attend to later tokens; null for the saved setting, which ``start``
    keeps, or true."""
    dtype: Dtype | None = None
    """Type of the backbone's weights, trained and saved; null for the saved type, or float32.
    bfloat16 halves the memory of a frozen backbone, also under adapters."""
    special_tokens: bool | None = None
    """Treat special tokens, such as [CLS] and [SEP], like any token in SAE training, pooling and
    the saved model (SAE-SPLADE, section 3); null for the saved setting, which ``start`` keeps, or
    false."""
    head: Annotated[Literal["sae", LanguageHead] | OwnPart, OR_OWN] = "sae"
    """Head: a sparse autoencoder, pretrained or first trained on the documents (``sae``); the
    backbone's own language head, masked or, for a decoder, causal (``mlm``); a language head over
    whole words, with means over the words' sub-words as rows (``expanded``); a language head with
    random rows (``random``); or a subclass of ``Head`` of your own."""
    sae: SAESettings = field(default_factory=SAESettings)
    """Training of the SAE for the head ``sae`` without ``pretrained``."""
    sae_input: Literal["states", "transformed"] = "states"
    """Input of the SAE: states after the last block, or these states after the transform of the
    backbone's language head (SAE-SPLADE, Table 2: "+ T")."""
    sae_queries: bool = False
    """Train the SAE on the training queries too, after the documents."""
    pretrained: str | None = None
    """Pretrained SAE for the head ``sae``: a folder or a hub name, of any layout of
    ``lexicept.neural.sae_formats``; for several layers, ``layer`` is required."""
    pretrained_width: Count | None = None
    """Number of latents of the pretrained SAE, to choose among several."""
    pretrained_l0: Positive | None = None
    """Active latents per token of the pretrained SAE: among several SAEs of a layer and width, the
    nearest is taken; null for 100."""
    size: Count | None = None
    """Dimensions of the heads ``expanded`` (the documents' most frequent words) and ``random``."""
    initial_active_dims: Count | None = None
    """Mean number of active dimensions per token before training, by an equal shift of all biases;
    null leaves the biases. Without k a head may begin with half of the dimensions active, too many
    for a short training to undo."""
    pooling: Pooling | None = None
    """Pooling of token activations to a text's: max, sum (of logarithms) or sqrt_sum (the root of
    the sum); null for the head's setting, max for a new head."""
    query_k: Whole | None = None
    """Active dimensions per query token; null for the head's setting, 0 for no constraint."""
    document_k: Whole | None = None
    """Active dimensions per document token; null for the head's setting, 0 for no constraint."""
    query_max_active_dims: Count | None = None
    """Most dimensions of a query of the trained model, unused in training; null for all."""
    document_max_active_dims: Count | None = None
    """Largest number of dimensions of a document of the trained model; null for all."""
    max_query_tokens: Length | None = None
    """Length at which the trained model cuts queries, special tokens included, rounded up to whole
    windows; null reads whole queries or follows ``start``."""
    max_document_tokens: Length | None = None
    """Length at which the trained model cuts documents, also in SAE training; null likewise."""
    pruning: Pruning | None = None
    """Order of a query's dimensions under a limit: the largest ``weight`` or, in an index, the
    largest ``impact``, the weight times the dimension's largest document weight; null for the
    head's setting, weight for a new head."""
    weighting: Literal["splade", "bm25"] = "splade"
    """Weighting of pooled activations in an index, whatever that of ``start``: as in training, or
    by BM25 with idf and length normalisation, which training never uses."""
    k1: NotNegative = 1.5
    """BM25's k1 (saturation)."""
    b: Share = 0.75
    """BM25's b (length normalisation), 0 to 1."""
    query_scale: Positive = 1.0
    """Factor on the trained model's query weights beside words, whatever that of ``start``; learned
    with ``loss.words``."""
    trained: Literal["head", "lora", "all"] = "head"
    """Parameters to learn: the head, on cached states of a frozen backbone; the head and low-rank
    adapters of the backbone; or all."""
    freeze_head: bool = False
    """Train the backbone alone (SPLARE); requires ``trained: lora`` or ``all``."""
    lora_rank: Count = 16
    """Rank r of the adapters, with a factor of 2."""

    def __post_init__(self) -> None:
        if self.pretrained and self.head != "sae":
            raise InputError(f"pretrained requires head: sae, not {self.head!r}")
        if self.freeze_head and self.trained == "head":
            raise InputError("freeze_head requires trained: lora or all; nothing learns otherwise")
        if self.head in ("expanded", "random") and not (self.size or self.start):
            raise InputError(f"size is missing: dimensions of the head {self.head!r}")
        dims = self.initial_active_dims
        if dims is not None and self.head == "sae" and self.sae.has_thresholds:
            raise InputError(
                "initial_active_dims shifts biases and so requires an SAE with k; "
                f"{self.sae.architecture} has thresholds"
            )
        size = self.sae.num_latents if self.head == "sae" else self.size
        if None not in (dims, size) and dims >= size:  # type: ignore[operator]
            raise InputError(f"initial_active_dims must be below {size}, not {dims}")
