"""Write lexicept's encoders as models of naver/splade and sentence-transformers."""

from __future__ import annotations

import warnings
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules.transformer import Transformer
from sentence_transformers.sentence_transformer.modules import WordWeights
from sentence_transformers.sparse_encoder.modules import SpladePooling
from transformers import AutoModelForMaskedLM
from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING

from lexicept.encoding.windows import BORDERS
from lexicept.errors import InputError, LexiceptWarning, message_of
from lexicept.neural.backbones.backbone import Backbone
from lexicept.neural.backbones.loading import quiet_transformers
from lexicept.neural.converters.reading import ModelLayout, require_same_logits
from lexicept.neural.encoders.encoder import Encoder
from lexicept.neural.heads.language import outer_layers, token_terms
from lexicept.neural.heads.vocabulary import VocabularyHead
from lexicept.storage.files import remove


def write_model(encoder: Encoder, layout: ModelLayout, folder: Path) -> None:
    """Write an encoder into an empty folder so that other libraries load it, without lexicept and
    without any code.

    Both layouts are folders that ``SparseEncoder`` loads, with the masked language model at the
    root, for ``AutoModelForMaskedLM``. None reads long texts in windows: texts are cut at the
    backbone's limit. Queries get the documents' length, with a warning about a change. Raises
    InputError if the layout can't express the encoder; see ``refusal``."""
    backbone, head = encoder.backbone, encoder.head
    if reason := refusal(encoder, layout):
        raise InputError(f"this encoder can't be written for {layout}: {reason}")
    assert isinstance(head, VocabularyHead)
    length = min(backbone.window, backbone.max_query_tokens or backbone.window)
    if length != backbone.one_window:
        message = f"{layout} has one length: queries will be cut after {backbone.one_window} tokens"
        warnings.warn(f"{message} like documents, not after {length}", LexiceptWarning, 2)
    work = folder / "masked"
    with quiet_transformers():
        tokenizer = backbone.tokenizer
        _masked_model(backbone, head).save_pretrained(work)
        tokenizer.save_pretrained(work)
        try:
            transformer = Transformer(
                str(work), transformer_task="fill-mask", max_seq_length=backbone.one_window
            )
        except Exception as error:  # transformers hides those of the disk
            raise InputError(
                f"{folder}: the written model can't be read: {message_of(error)}"
            ) from None
        require_same_logits("the written model", transformer.model, backbone, head)
        activation = "log1p_relu" if head.settings.double_log else "relu"
        pooling = SpladePooling(head.settings.pooling, activation)
        converted = SparseEncoder(
            modules=[transformer, *_without_special(backbone), pooling],
            prompts=encoder.prompts,
            default_prompt_name=encoder.default_prompt_name,
            similarity_fn_name="dot",
            max_active_dims=head.settings.document_max_active_dims,
            device="cpu",
        )
        converted.save(str(folder), create_model_card=False)
    remove(work)


def refusal(encoder: Encoder, layout: ModelLayout) -> str | None:
    """Return the encoder's first property without a place in a layout; None without any."""
    backbone, head = encoder.backbone, encoder.head
    settings = head.settings
    # Limits that a layout has no place for.
    limits = ("query_k", "document_k", "query_max_active_dims", "document_max_active_dims")
    limited = [name for name in limits if getattr(settings, name) is not None]
    pools_itself = layout is ModelLayout.splade
    if not pools_itself and settings.query_max_active_dims == settings.document_max_active_dims:
        limited = [name for name in limited if name not in limits[2:]]
    if settings.pruning != "weight" and settings.query_max_active_dims is not None:
        limited.append("pruning")
    if encoder.index_settings.query_max_qd_flops is not None:
        limited.append("query_max_qd_flops")
    for refused, reason in (
        (
            type(backbone.model.config) not in MODEL_FOR_MASKED_LM_MAPPING,
            f"{type(backbone.model).__name__} has no masked-language-model class",
        ),
        (not isinstance(head, VocabularyHead), "its dimensions are latents, not sub-words"),
        (not names_own_subwords(encoder), "its dimensions are not the backbone's own sub-words"),
        (bool(limited), f"{', '.join(limited)}: limits have no place there"),
        (pools_itself and any(encoder.prompts.values()), "prompts have no place there"),
        (settings.query_scale != 1, "query_scale has no place there"),
        (backbone.dtype != "float32", f"weights in {backbone.dtype}; only float32 is exact there"),
        (
            pools_itself and not backbone.special_tokens,
            "special tokens are left out of its vectors, and that layout's readers pool them: "
            "--to sentence-transformers leaves them out",
        ),
        (pools_itself and settings.pooling != "max", "that layout's readers take the maximum"),
        (settings.pooling == "sqrt_sum", "that layout has no root of sums (pooling sqrt_sum)"),
        (pools_itself and settings.double_log, "a second logarithm is in no reader of that layout"),
        (encoder.index_settings.weighting == "bm25", "its BM25 weighting has no place there"),
    ):
        if refused:
            return reason
    return None


def names_own_subwords(encoder: Encoder) -> bool:
    """Return True if the dimensions are the backbone's sub-words, as in SPLADE."""
    backbone, head = encoder.backbone, encoder.head
    return isinstance(head, VocabularyHead) and (
        head.size == backbone.model.config.vocab_size
        and list(head.terms) == token_terms(backbone.tokenizer, head.size)
    )


def _masked_model(backbone: Backbone, head: VocabularyHead) -> Any:
    """Return backbone and head as one masked language model of transformers."""
    config = deepcopy(backbone.model.config)
    with torch.no_grad():
        inputs = backbone.model.get_input_embeddings().weight
        config.tie_word_embeddings = bool(torch.equal(inputs, head.weight))
        model = AutoModelForMaskedLM.from_config(config, dtype=torch.float32)
        model.base_model.load_state_dict(backbone.model.state_dict())
        if head.final_norm is not None:
            model.base_model.final_norm.load_state_dict(head.final.state_dict(), strict=False)
        dense, norms = outer_layers(model)
        fits = len(dense) == len(norms) == 1
        output = model.get_output_embeddings()
        if not fits or head.activation is None or output.bias is None:
            raise InputError(f"{type(model).__name__} has another head than this encoder's")
        # The model's layers may have no biases; the head's are then zeros, as the logits show.
        dense[0].load_state_dict(head.dense.state_dict(), strict=False)
        norms[0].load_state_dict(head.norm.state_dict(), strict=False)
        output.weight.copy_(head.weight)
        output.bias.copy_(head.offset)
    return model.eval()


def _without_special(backbone: Backbone) -> list[Any]:
    """Return a module that sets skipped special tokens' logits to 0; none if all tokens count."""
    if backbone.special_tokens:
        return []
    tokenizer = backbone.tokenizer
    terms = token_terms(tokenizer, backbone.model.config.vocab_size)
    special = {getattr(tokenizer, name) for name in BORDERS}
    special |= set(tokenizer.convert_ids_to_tokens(tokenizer("")["input_ids"]))
    # All terms are listed, since the library looks up a missing term in lower case.
    return [WordWeights(terms, {term: float(term not in special) for term in terms})]
