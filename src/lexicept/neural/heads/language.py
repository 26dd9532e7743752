"""Pretrained language heads: those of masked and of causal language models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer
from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING

from lexicept.checks import from_mapping
from lexicept.encoding.head_settings import HeadSettings
from lexicept.encoding.sources import fetch
from lexicept.errors import InputError, first_line_of
from lexicept.neural.backbones.loading import (
    check_files,
    modules_of,
    no_remote_code,
    quiet_transformers,
)
from lexicept.neural.heads.vocabulary import VocabularyHead
from lexicept.storage.files import disk_errors, json_if_present, read_json


def language_head(name: str, *, trained: bool = False) -> VocabularyHead:
    """Load a backbone's pretrained head over tokens, by a name as for ``Backbone.from_pretrained``;
    of a saved encoder, the vocabulary head. Of a ``SparseEncoder``, the settings are the pooling,
    logarithms and limit of dimensions.

    Without a head in an encoder's checkpoint, the rows are the input embeddings and the dense layer
    is the identity; such a head needs training by masked language modelling before use, and
    ``trained`` refuses it.

    A decoder's head is the norm after the last block and the output layer, applied to the states
    after any block (SPLARE, appendix F). Caps on logits are left out: Gemma 2's ``30 tanh(v / 30)``
    keeps order and signs.

    Raises InputError for an encoder's head that is not dense layer, activation and norm, for a
    decoder's that is not a norm and rows, and for a model that can't be loaded.
    """
    path = fetch(name)
    check_files(Path(path))
    head_type = f"{VocabularyHead.__module__}.{VocabularyHead.__name__}"
    for module_type, folder in modules_of(Path(path)):
        if module_type == head_type:
            return VocabularyHead.read(folder)
    try:
        with quiet_transformers(), no_remote_code(name), disk_errors(Path(path)):
            config = AutoConfig.from_pretrained(path, trust_remote_code=False)
            tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=False)
            options = {"dtype": "float32", "output_loading_info": True, "trust_remote_code": False}
            if type(config) in MODEL_FOR_MASKED_LM_MAPPING:
                model, report = AutoModelForMaskedLM.from_pretrained(path, **options)
                head = _masked(name, tokenizer, model, report, trained)
                head.settings = library_settings(Path(path))
                return head
            # The head alone: no block is loaded.
            model, report = AutoModelForCausalLM.from_pretrained(
                path, num_hidden_layers=0, **options
            )
            return _causal(name, tokenizer, model, report)
    except InputError:
        raise
    except (OSError, ValueError) as error:
        raise InputError(
            f"no language model can be made of {name!r}: {first_line_of(error)}"
        ) from None


def library_settings(folder: Path) -> HeadSettings:
    """Return the settings of a ``SparseEncoder`` of sentence-transformers as a head's: the default
    settings for any other folder. Raises InputError for two logarithms under a sum."""
    poolings = [path for name, path in modules_of(folder) if name.endswith(".SpladePooling")]
    if not poolings:
        return HeadSettings()
    pooling = read_json(poolings[0] / "config.json", InputError)
    config = json_if_present(folder / "config_sentence_transformers.json", InputError)
    limit = config.get("max_active_dims")
    two_logarithms = pooling.get("activation_function") == "log1p_relu"
    strategy = pooling.get("pooling_strategy", "max")
    if two_logarithms and strategy != "max":
        raise InputError(
            f"{poolings[0]}: the activation log1p_relu is read with the pooling max, not {strategy}"
        )
    settings = {"pooling": strategy, "double_log": two_logarithms}
    limits = {"query_max_active_dims": limit, "document_max_active_dims": limit}
    return from_mapping(HeadSettings, settings | limits, source=poolings[0] / "config.json")


def _masked(
    name: str, tokenizer: Any, model: Any, report: dict[str, Any], only_trained: bool
) -> VocabularyHead:
    output = model.get_output_embeddings()
    dense, norms = outer_layers(model)
    weight = model.get_input_embeddings().weight
    terms = token_terms(tokenizer, len(weight))
    new = {key.rsplit(".", 1)[0] for key in report["missing_keys"]}
    trained = not any(model.get_submodule(key) in dense for key in new if key)
    width, d = weight.shape[1], int(model.config.hidden_size)
    if not trained and (only_trained or width != d):
        sizes = "" if width == d else f", and embeddings of size {width} for states of size {d}"
        raise InputError(f"{name}: it has no weights of a language-model head{sizes}")
    # A backbone's states are those before any final norm.
    final = getattr(model.base_model, "final_norm", None)
    options: dict[str, Any] = {}
    if final is not None:
        options = {"final_norm": "layer", "layer_norm_eps": final.eps}
    bias = torch.zeros(len(weight))
    if trained:
        shapes = [tuple(layer.weight.shape) for layer in dense]
        if shapes != [(width, d)] or len(norms) != 1:
            raise InputError(f"{name}: its head is not one dense layer, activation and norm")
        keys, config = ("classifier_activation", "activation", "hidden_act"), model.config
        activation = next(getattr(config, key) for key in keys if hasattr(config, key))
        options |= {"activation": str(activation), "layer_norm_eps": norms[0].eps, "d_in": d}
        weight, bias = output.weight, bias if output.bias is None else output.bias
    head = VocabularyHead(weight, bias, terms, **options)
    if final is not None:
        head.final.load_state_dict(final.state_dict(), strict=False)  # it may have no bias
    if not trained:
        return head
    head.norm.load_state_dict(norms[0].state_dict(), strict=False)
    with torch.no_grad():
        head.dense.get_parameter("weight").copy_(dense[0].weight)
        if dense[0].bias is not None:
            head.dense.get_parameter("bias").copy_(dense[0].bias)
    return head


def outer_layers(model: Any) -> tuple[list[nn.Linear], list[nn.LayerNorm]]:
    """Return the dense layers and norms between a masked language model's backbone and output."""
    inside = {id(module) for module in model.base_model.modules()}
    output = model.get_output_embeddings()
    outside = [m for m in model.modules() if id(m) not in inside and m is not output]
    dense = [m for m in outside if isinstance(m, nn.Linear)]
    return dense, [m for m in outside if isinstance(m, nn.LayerNorm)]


def token_terms(tokenizer: Any, size: int) -> list[str]:
    """Return the token of each of ``size`` rows; a number for a row without a token."""
    return _numbered(tokenizer.convert_ids_to_tokens(range(len(tokenizer))), size)


def _causal(name: str, tokenizer: Any, model: Any, report: dict[str, Any]) -> VocabularyHead:
    output, norm = model.get_output_embeddings(), _final_norm(model.base_model)
    if any(model.get_submodule(key.rpartition(".")[0]) is output for key in report["missing_keys"]):
        raise InputError(f"{name}: this checkpoint has no language-model head")
    if norm is None or output.weight.shape[1:] != norm.weight.shape:
        raise InputError(f"{name}: its head is not one norm and rows")
    eps: float = norm.eps if hasattr(norm, "eps") else norm.variance_epsilon
    terms = readable_terms(tokenizer, len(output.weight))
    norm_type = "layer" if isinstance(norm, nn.LayerNorm) else "rms"
    head = VocabularyHead(output.weight, output.bias, terms, None, eps, norm_type)
    if isinstance(norm, nn.LayerNorm):
        head.final.load_state_dict(norm.state_dict(), strict=False)  # it may have no bias
        return head
    with torch.no_grad():
        head.final.get_parameter("weight").copy_(_plain_weight(name, norm, eps))
    return head


def _final_norm(blocks: nn.Module) -> Any:
    """Return the last norm of a decoder that was loaded without blocks; None without a norm."""
    norms = [
        module
        for name, module in blocks.named_modules()
        if "norm" in type(module).__name__.lower() and not name.endswith("embeddings_layernorm")
    ]
    return norms[-1] if norms else None


def _plain_weight(name: str, norm: nn.Module, eps: float) -> Tensor:
    """Return the w of a norm ``w · x / √(mean x² + ε)``: its weight, or 1 + its weight (Gemma)."""
    weight = norm.get_parameter("weight").detach()
    states = torch.randn(4, len(weight), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = norm(states)
    # Some norms multiply by 1 + weight: a run of the norm tells.
    for plain in (weight, 1 + weight):
        if torch.allclose(F.rms_norm(states, weight.shape, plain, eps), expected, atol=1e-5):
            return plain
    raise InputError(f"{name}: its head is not one norm and rows")


def readable_terms(tokenizer: Any, size: int) -> list[str]:
    """Return the token of each of ``size`` rows as text, with ▁ for a space; incomplete characters
    stay, and a row without a token has a number."""
    tokens = [token or "" for token in tokenizer.convert_ids_to_tokens(range(len(tokenizer)))]
    if "Ġ" not in tokenizer.get_vocab():  # byte-level tokenizers write a space so
        return _numbered(tokens, size)
    texts = [tokenizer.convert_tokens_to_string([token]).replace(" ", "▁") for token in tokens]
    readable = [
        text if text.isprintable() and "\ufffd" not in text else token
        for token, text in zip(tokens, texts, strict=True)
    ]
    return _numbered(readable, size)


def _numbered(terms: list[str], size: int) -> list[str]:
    """Return one term per row: a number for each row without a term."""
    terms = terms[:size] + [""] * (size - len(terms))
    return [term or f"#{index}" for index, term in enumerate(terms)]
