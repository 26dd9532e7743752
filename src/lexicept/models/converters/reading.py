"""Read models of naver/splade, sentence-transformers and OpenSearch as lexicept's encoders.

All three compute a language model's logits, apply ``log1p(ReLU)``, and pool over all tokens of a
text, special tokens included. Texts are cut at the model's limit. OpenSearch's queries are encoded
by a table of weights.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules import Router
from sentence_transformers.base.modules.transformer import Transformer
from sentence_transformers.sparse_encoder.modules import (
    SparseAutoEncoder,
    SparseStaticEmbedding,
    SpladePooling,
)
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from lexicept.errors import InputError, message_of
from lexicept.models.backbone import Backbone
from lexicept.models.encoder import Encoder
from lexicept.models.heads.settings import HeadSettings
from lexicept.models.heads.vocabulary import VocabularyHead
from lexicept.models.index_settings import IndexSettings
from lexicept.models.language_heads import language_head
from lexicept.models.loading import quiet_transformers
from lexicept.models.lookup import Lookup
from lexicept.models.windows import LONGEST_WINDOW

WEIGHT_FILES = ("query_token_weights.txt", "idf.json")
"""Files of OpenSearch's models that hold the query tokens' weights, by precedence."""


class Kind(StrEnum):
    """A layout of model folders, recognised by its files."""

    sentence_transformers = "sentence-transformers"
    splade = "splade"
    opensearch = "opensearch"
    lexicept = "lexicept"


def recognise(folder: Path) -> Kind | None:
    """Return the layout of a model's folder; None if it holds no model. Raises InputError for a
    damaged configuration, or for a model without language-model head."""
    modules = _read(folder / "modules.json")
    if modules is not None:
        if _has_own_module(folder, modules):
            return Kind.lexicept
        plain = Kind.sentence_transformers
    else:
        config = _read(folder / "config.json")
        architectures = config.get("architectures") if isinstance(config, dict) else None
        if not isinstance(architectures, list) or not architectures:
            return None
        if not any(str(name).endswith(("ForMaskedLM", "ForCausalLM")) for name in architectures):
            raise InputError(f"{folder}: {architectures[0]!s:.80} has no language-model head")
        plain = Kind.splade
    weighted = any((folder / name).exists() for name in WEIGHT_FILES)
    return Kind.opensearch if weighted else plain


def _has_own_module(folder: Path, modules: Any) -> bool:
    """Return whether any module, also behind a router, is lexicept's."""
    router = _read(folder / "router_config.json")
    behind = router.get("types") if isinstance(router, dict) else None
    entries = modules if isinstance(modules, list) else []
    types = [entry.get("type") for entry in entries if isinstance(entry, dict)]
    types += list(behind.values()) if isinstance(behind, dict) else []
    return any(str(kind).startswith("lexicept.") for kind in types)


def _read(path: Path) -> Any:
    """Return a file's JSON; None if there is no such file."""
    if not path.exists():
        return None
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: {error}") from None


def read_model(folder: Path, kind: Kind) -> Encoder:
    """Read a model as an encoder with vectors equal to the model's library.

    An OpenSearch model without ``modules.json`` is from the first two generations, which apply the
    logarithm once.

    Args:
        kind: the layout that ``recognise`` returned; not lexicept.

    Raises:
        InputError: the model does not pool a language model's logits (CSR does not), has pickled
            weights, Python code or another similarity than the dot product, or is damaged.
    """
    if kind is Kind.splade and _is_decoder(folder):
        _require_safetensors(folder)
        return _read_decoder(folder)
    source = load_in_own_library(folder)
    transformer, pooling, queries = _library_modules(folder, source)
    limit, path = source.max_active_dims, _place_of_transformer(folder)
    backbone = _backbone(path, transformer.max_seq_length, bidirectional=True)
    head = language_head(str(path))
    head.settings = HeadSettings(
        pooling=pooling.pooling_strategy,
        double_log=pooling.activation_function == "log1p_relu",
        query_max_active_dims=limit,
        document_max_active_dims=limit,
    )
    require_same_logits(str(folder), transformer.model, backbone, head)
    lookup = None
    if queries is not None:
        lookup = _lookup(folder, queries.tokenizer, queries.weight.detach(), head.size)
    elif kind is Kind.opensearch:
        weight = _token_weights(folder, transformer.tokenizer)
        lookup = _lookup(folder, transformer.tokenizer, weight, head.size)
    if lookup is not None:  # queries have the length of the lookup's tokenizer
        backbone.cut(None, backbone.max_document_tokens)
    encoder = Encoder.of(backbone, head, lookup, IndexSettings("splade"))
    encoder.prompts, encoder.default_prompt_name = source.prompts, source.default_prompt_name
    if lookup is not None:  # the head's limit does not apply to a lookup
        encoder.max_active_dims = limit
    return encoder


def _require_safetensors(folder: Path) -> None:
    for pickle in sorted(folder.rglob("*.bin")):
        if pickle.name.startswith("pytorch_model") and not any(pickle.parent.glob("*.safetensors")):
            raise InputError(f"{pickle}: a pickle is not read: save the model as safetensors")


def load_in_own_library(folder: Path) -> SparseEncoder:
    """Load a model in sentence-transformers, without running its code or unpickling.

    Raises InputError for pickled weights, Python code in the folder, damage, or a dense model, for
    which the library would add an autoencoder of random weights.
    """
    _require_safetensors(folder)
    listed = [_read(folder / name) for name in ("modules.json", "router_config.json")]
    if listed[0] is not None and "sparse_encoder" not in str(listed):
        raise InputError(f"{folder}: no module of it makes sparse vectors")
    safe = {"use_safetensors": True, "dtype": "float32"}
    try:
        with quiet_transformers():
            return SparseEncoder(
                str(folder), device="cpu", local_files_only=True, model_kwargs=safe
            )
    except Exception as error:  # the libraries that read its modules raise many kinds
        raise InputError(
            f"{folder}: sentence-transformers can't load it: {message_of(error)}"
        ) from None


def _library_modules(
    folder: Path, source: SparseEncoder
) -> tuple[Transformer, SpladePooling, SparseStaticEmbedding | None]:
    """Return the transformer, SPLADE's pooling and, behind a router, the table for queries."""
    modules, queries = list(source), None
    if len(modules) == 1 and isinstance(modules[0], Router):
        routes = modules[0].sub_modules
        sides = [list(routes[name]) if name in routes else [] for name in ("query", "document")]
        if len(sides[0]) == 1 and isinstance(sides[0][0], SparseStaticEmbedding):
            (queries,), modules = sides
    names = " → ".join(type(module).__name__ for module in modules)
    if any(isinstance(module, SparseAutoEncoder) for module in modules):
        raise InputError(
            f"{folder}: {names} (CSR): its autoencoder reads one dense vector of a whole text; "
            "lexicept's read the states of tokens"
        )
    kinds = (Transformer, SpladePooling)
    fits = len(modules) == len(kinds) and all(map(isinstance, modules, kinds))
    if not fits or modules[0].transformer_task != "fill-mask":
        raise InputError(f"{folder}: {names} is not a masked language model and SpladePooling")
    if source.similarity_fn_name not in (None, "dot"):
        raise InputError(
            f"{folder}: its vectors are compared by {source.similarity_fn_name}; an index adds up "
            "products of weights, which is the dot product"
        )
    if getattr(modules[0], "do_lower_case", False):
        raise InputError(f"{folder}: do_lower_case outside the tokenizer can't be kept")
    return modules[0], modules[1], queries


def _place_of_transformer(folder: Path) -> Path:
    """Return the folder of the language model."""
    modules = _read(folder / "modules.json")
    first = folder if modules is None else folder / modules[0]["path"]
    router = _read(first / "router_config.json")
    return first if router is None else first / router["structure"]["document"][0]


def _backbone(path: Path, length: int | None, *, bidirectional: bool) -> Backbone:
    """Load a backbone that cuts texts after a model's limit of tokens."""
    backbone = Backbone(str(path), bidirectional=bidirectional, special_tokens=True)
    backbone.max_seq_length = min(length or LONGEST_WINDOW, LONGEST_WINDOW)
    backbone.cut(backbone.max_seq_length, backbone.max_seq_length)
    backbone.eval()
    return backbone


def _lookup(folder: Path, tokenizer: Any, weight: Tensor, size: int) -> Lookup:
    if len(weight) > size or not bool((weight.isfinite() & (weight >= 0)).all()):
        raise InputError(
            f"{folder}: queries need a weight of at least 0 for each of {size} tokens at most"
        )
    # Rows of the head beyond the tokenizer have no token.
    padded = torch.cat([weight.float(), torch.zeros(size - len(weight))])
    return Lookup(tokenizer, padded, frozen=True)


def _token_weights(folder: Path, tokenizer: Any) -> Tensor:
    """Read the query tokens' weights [tokens] of an OpenSearch model; 0 for unlisted tokens."""
    path = next(folder / name for name in WEIGHT_FILES if (folder / name).exists())
    vocabulary: Mapping[str, int] = tokenizer.get_vocab()
    weight = torch.zeros(len(vocabulary))
    try:
        if path.suffix == ".json":
            named = json.loads(path.read_bytes()).items()
        else:
            lines = path.read_text().split("\n")
            named = [line.split("\t") for line in lines if line.strip()]
        for token, number in named:
            if not math.isfinite(float(number)):
                raise ValueError(f"{token!r} weighs {number}")
            if token in vocabulary:
                weight[vocabulary[token]] = float(number)
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{path}: not a weight for each token: {error}") from None
    return weight


def _is_decoder(folder: Path) -> bool:
    config = _read(folder / "config.json")
    return any(str(name).endswith("ForCausalLM") for name in config["architectures"])


def _read_decoder(folder: Path) -> Encoder:
    """Read a causal language model, pooled as naver/splade pools.

    It attends in both directions only if its configuration sets ``is_causal`` to false.
    """
    try:
        with quiet_transformers():
            model = AutoModelForCausalLM.from_pretrained(
                folder, use_safetensors=True, dtype="float32", trust_remote_code=False
            )
            tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except Exception as error:  # transformers and safetensors raise many kinds
        raise InputError(f"{folder}: transformers can't load it: {message_of(error)}") from None
    causal = getattr(model.config, "is_causal", None) is not False
    length = min(tokenizer.model_max_length, model.config.max_position_embeddings)
    backbone = _backbone(folder, length, bidirectional=not causal)
    head = language_head(str(folder))
    head.settings = HeadSettings()
    require_same_logits(str(folder), model, backbone, head)
    return Encoder.of(backbone, head, index_settings=IndexSettings("splade"))


TOLERANCE = 1e-3
"""Largest difference of logits, relative to the largest logit, that rounding may explain."""

TOKENS = 16


def require_same_logits(name: str, model: Any, backbone: Backbone, head: VocabularyHead) -> None:
    """Compare the logits of a few tokens, evenly spread over the vocabulary, with those of a
    language model of transformers. Raises InputError if they differ, so that the model computes
    more than backbone and head do."""
    # Tokens from the whole vocabulary, since rows may have been replaced.
    step = max(1, len(backbone.tokenizer) // TOKENS)
    ids = torch.arange(0, len(backbone.tokenizer), step)[None, :TOKENS]
    mask = torch.ones_like(ids)
    with torch.inference_mode():
        theirs: Tensor = model.eval()(input_ids=ids, attention_mask=mask).logits[0].float()
        ours = head.transform(backbone.states(ids, mask)[0]) @ head.rows.T + head.bias
    if theirs.shape != ours.shape:
        raise InputError(f"{name}: logits over {theirs.shape[1]} tokens, a head over {head.size}")
    largest = float((theirs - ours).abs().max() / theirs.abs().max())
    if not largest <= TOLERANCE:  # refuses NaN too
        raise InputError(
            f"{name}: {type(model).__name__} computes more than blocks, a dense layer, norms and "
            f"rows: its logits differ by {largest:.1g} of the largest"
        )
