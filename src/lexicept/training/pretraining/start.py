"""The encoder that pretraining starts from."""

from __future__ import annotations

from collections.abc import Sequence

from lexicept.models.backbone import Backbone
from lexicept.models.encoder import Encoder
from lexicept.models.heads.vocabulary import VocabularyHead
from lexicept.models.language_heads import language_head
from lexicept.models.resources import check_checkpointing, use_attention
from lexicept.models.word_vocabulary import expanded_words
from lexicept.training.pretraining.settings import HeadKind, PretrainingSettings
from lexicept.training.pretraining.windows import mask_token


def load_models(
    backbone: str, layer: int | None, settings: PretrainingSettings
) -> tuple[Backbone, VocabularyHead]:
    """Load a backbone and its language head, before any text is stored.

    Args:
        backbone: a hub name or a folder.
        layer: number of blocks to run; all by default.

    Raises:
        InputError: a model that can't be loaded, or that can't be trained as the settings say.
    """
    base = Backbone.from_pretrained(
        backbone, layer, bidirectional=settings.bidirectional, dtype=settings.dtype
    )
    if settings.attn_implementation is not None:
        use_attention(base, settings.attn_implementation)
    if settings.gradient_checkpointing and settings.trained != "head":
        check_checkpointing(base)
    if settings.masking != "causal":
        mask_token(base.tokenizer)
    return base, language_head(backbone)


def initial_encoder(
    models: tuple[Backbone, VocabularyHead],
    head: HeadKind,
    size: int | None,
    texts: Sequence[str],
    settings: PretrainingSettings,
) -> Encoder:
    """Return a backbone and its language head, or one that is made of it.

    Args:
        models: what ``load_models`` returned.
        head: initial rows of the head; see ``pipelines.pretrain``.
        size: largest number of words that are dimensions; None where sub-words are.
        texts: the words' source.

    Raises:
        InputError: texts without words.
    """
    base, own = models
    terms: Sequence[str] = own.terms
    if size is not None:
        terms, pieces = expanded_words(texts, base.tokenizer, size)
        if head == "expanded":
            return Encoder.of(base, own.expanded(pieces, terms))
    if head == "random":
        drawn = own.random(len(terms), settings.seed)
        return Encoder.of(base, own.with_rows(drawn.rows, drawn.bias, terms))
    return Encoder.of(base, own)
