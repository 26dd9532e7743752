"""Read models of naver/splade and sentence-transformers as lexicept's encoders.

Both compute a language model's logits, apply ``log1p(ReLU)``, and pool over all tokens of a text,
special tokens included. Texts are cut at the model's limit.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules.transformer import Transformer
from sentence_transformers.sparse_encoder.modules import SparseAutoEncoder, SpladePooling
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.models.auto import modeling_auto

from lexicept.encoding.head_settings import HeadSettings
from lexicept.encoding.hub import is_name, model_folder, refuse_missing, suggestion
from lexicept.encoding.index_settings import IndexSettings
from lexicept.encoding.sources import MINI, MINI_FOLDER, fetch
from lexicept.encoding.windows import LONGEST_WINDOW
from lexicept.errors import InputError, LexiceptWarning, message_of
from lexicept.neural.backbones.backbone import Backbone
from lexicept.neural.backbones.loading import (
    check_files,
    data_alone,
    modules_of,
    quiet_transformers,
)
from lexicept.neural.encoders.encoder import Encoder
from lexicept.neural.heads.language import language_head, library_settings
from lexicept.neural.heads.vocabulary import VocabularyHead
from lexicept.storage.files import json_if_present
from lexicept.storage.texts import TextStore

WEIGHT_FILES = ("query_token_weights.txt", "idf.json")
"""Files of OpenSearch's models that hold the query tokens' weights."""

_TABLE = ".SparseStaticEmbedding"
"""Ending of the class of modules that weigh the tokens of queries."""

SMALL_FILES = ("modules.json", "model/modules.json", "router_config.json", "config.json")
"""Files by which a model on the hub is recognised."""

HEADS = ("ForMaskedLM", "ForCausalLM", "LMHeadModel", "ForPreTraining")
"""Endings of the classes of transformers with a language-model head; ELECTRA's discriminator has
the last ending too, without the head, which its weights tell."""

MASKED = modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES


class ModelLayout(StrEnum):
    """A layout of model folders, recognised by its files."""

    sentence_transformers = "sentence-transformers"
    splade = "splade"
    lexicept = "lexicept"


def open_encoder(source: str | os.PathLike[str]) -> Encoder:
    """Open a model of any layout as an encoder: lexicept's as saved, and other libraries' with
    vectors equal to the library's. The source is a folder, the hub's name of a model, or ``MINI``.
    A folder ``model`` inside may have the names of the dimensions beside it. Raises InputError for
    no such model, or a model of another kind (see ``read_model``)."""
    folder, layout = find_model(source)
    if layout is None:
        if not is_name(source):
            refuse_missing(source)
        raise InputError(
            f"{os.fspath(source)}: no model of sentence-transformers, naver/splade or lexicept; an "
            "SAE alone goes with a backbone, not as a model"
        )
    inner = folder / "model"
    _refuse_query_table(os.fspath(source), inner if (inner / "modules.json").exists() else folder)
    if layout is not ModelLayout.lexicept:
        return read_model(folder, layout)
    if not (inner / "modules.json").exists():
        return Encoder.load(folder)
    encoder, names = Encoder.load(inner), TextStore(folder / "terms")
    if len(names) != encoder.head.size:
        raise InputError(f"{folder}: {len(names)} names for another number of dimensions")
    encoder.names = names
    return encoder


def find_model(source: str | os.PathLike[str]) -> tuple[Path, ModelLayout | None]:
    """Return the folder, downloaded from the hub if necessary, and the layout of a model; None as
    the layout of anything else, such as an SAE. Raises InputError for no such folder, or a model
    that can't be loaded or makes no sparse vectors."""
    name, layout = os.fspath(source), None
    if name == MINI:
        return MINI_FOLDER, ModelLayout.lexicept
    refuse_missing(name, inside=True)
    if is_name(name):
        layout = recognise(model_folder(name, files=SMALL_FILES))
        return (Path(name) if layout is None else model_folder(name)), layout
    folder = Path(os.path.expanduser(name))
    if not folder.exists() and "/" not in name:
        raise InputError(f"{name}: no such folder{suggestion(folder)}")
    check_files(folder)
    return folder, recognise(folder) if folder.is_dir() else None


def recognise(folder: Path) -> ModelLayout | None:
    """Return the layout of a model's folder; None if it holds no model. Raises InputError for a
    damaged configuration, a ``Router`` of encoders, or a model without language-model head."""
    modules = modules_of(folder)
    ours = any(module_type.startswith("lexicept.") for module_type, _ in modules)
    if ours and modules[0][0].endswith(".Router"):
        raise InputError(f"{folder}: queries and documents have separate encoders; one is required")
    if ours or (folder / "model" / "modules.json").exists():
        return ModelLayout.lexicept
    if modules:
        return ModelLayout.sentence_transformers
    config = json_if_present(folder / "config.json", InputError)
    if not {"architectures", "model_type"} & config.keys():
        return None
    _require_head(folder, config)
    return ModelLayout.splade


def _refuse_query_table(name: str, folder: Path) -> None:
    """Raise InputError for a model whose queries have a table of weights in place of the model."""
    tables = [module_type for module_type, _ in modules_of(folder) if module_type.endswith(_TABLE)]
    if tables or any((folder / file).exists() for file in WEIGHT_FILES):
        raise InputError(
            f"{name}: a table of weights encodes its queries, not the model that encodes documents"
        )


def _require_head(folder: Path, config: Mapping[str, Any]) -> None:
    """Raise InputError for a model of transformers whose class has no language-model head or,
    without a class in the configuration, none of whose classes has."""
    classes, model_type = config.get("architectures") or [], str(config.get("model_type"))
    classes = classes if isinstance(classes, list) else [classes]
    if classes:
        fits = any(str(name).endswith(HEADS) for name in classes)
    else:
        fits = model_type in MASKED or model_type in modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    if not fits:
        name = str(classes[0]) if classes else f"a {model_type}"
        raise InputError(f"{folder}: {name:.80} has no masked or causal language-model head")


def read_model(folder: Path, layout: ModelLayout) -> Encoder:
    """Read a model of a layout by ``recognise``, not lexicept's, as an encoder with vectors equal
    to the model's library.

    Raises InputError if the model does not pool a language model's logits (CSR does not), has
    pickled weights, Python code or another similarity than the dot product, or is damaged."""
    if layout is ModelLayout.splade and _is_decoder(folder):
        _require_safetensors(folder)
        return _read_decoder(folder)
    source = load_in_own_library(folder)
    transformer, modules = _transformer(folder, source), modules_of(folder)
    path = modules[0][1] if modules else folder
    backbone = _backbone(path, transformer.max_seq_length, bidirectional=True)
    head = language_head(str(path), trained=True)
    head.settings = library_settings(folder)
    require_same_logits(str(folder), transformer.model, backbone, head)
    encoder = Encoder.of(backbone, head, IndexSettings("splade"))
    encoder.prompts, encoder.default_prompt_name = source.prompts, source.default_prompt_name
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
    listed = modules_of(folder)
    if listed and not any("sparse_encoder" in module_type for module_type, _ in listed):
        raise InputError(f"{folder}: no module of it makes sparse vectors")
    safe = {"use_safetensors": True, "dtype": "float32"}
    try:
        with quiet_transformers():
            if not listed:  # for some classes the library would choose an autoencoder
                task: Any = {"transformer_task": "fill-mask", **data_alone({}, "float32")}
                modules = [Transformer(str(folder), **task), SpladePooling()]
                return SparseEncoder(modules=modules, device="cpu", similarity_fn_name="dot")
            return SparseEncoder(
                str(folder), device="cpu", local_files_only=True, model_kwargs=safe
            )
    except Exception as error:  # the libraries that read its modules raise many kinds
        raise InputError(
            f"{folder}: sentence-transformers can't load it: {message_of(error)}"
        ) from None


def _transformer(folder: Path, source: SparseEncoder) -> Transformer:
    """Return the transformer before SPLADE's pooling."""
    modules = list(source)
    names = " → ".join(type(module).__name__ for module in modules)
    if any(isinstance(module, SparseAutoEncoder) for module in modules):
        raise InputError(
            f"{folder}: {names} (CSR): its autoencoder reads one dense vector of a whole text; "
            "lexicept's read the states of tokens"
        )
    expected = (Transformer, SpladePooling)
    fits = len(modules) == len(expected) and all(map(isinstance, modules, expected))
    if not fits or modules[0].transformer_task != "fill-mask":
        raise InputError(f"{folder}: {names} is not a masked language model and SpladePooling")
    if source.similarity_fn_name not in (None, "dot"):
        raise InputError(
            f"{folder}: its vectors are compared by {source.similarity_fn_name}; an index adds up "
            "products of weights, which is the dot product"
        )
    if getattr(modules[0], "do_lower_case", False):
        raise InputError(f"{folder}: do_lower_case outside the tokenizer can't be kept")
    return modules[0]


def _backbone(path: Path, length: int | None, *, bidirectional: bool) -> Backbone:
    """Load a backbone that cuts texts after a model's limit of tokens."""
    try:
        backbone = Backbone(str(path), bidirectional=bidirectional, special_tokens=True)
    except InputError as error:
        raise InputError(str(error) if str(path) in str(error) else f"{path}: {error}") from None
    backbone.max_seq_length = min(length or LONGEST_WINDOW, LONGEST_WINDOW)
    backbone.cut(backbone.max_seq_length, backbone.max_seq_length)
    backbone.eval()
    return backbone


def check_backbone(name: str, *, own_head: bool) -> None:
    """Raise InputError for a sparse encoder of which training its backbone and head would lose a
    part; warn about the prompts of a dense model. ``own_head``: the encoder's language head is
    trained too, not a new SAE."""
    folder = Path(fetch(name))
    config = json_if_present(folder / "config_sentence_transformers.json", InputError)
    types = [module_type for module_type, _ in modules_of(folder)]
    sparse = any("sparse_encoder" in name or name.startswith("lexicept.") for name in types)
    prompts = config.get("prompts")
    if isinstance(prompts, dict) and any(prompts.values()):
        if sparse:
            raise InputError(
                f"{name}: it puts prompts before texts, which its backbone would lose; "
                "model.start keeps them"
            )
        warnings.warn(f"{name}: training leaves its prompts out", LexiceptWarning, stacklevel=2)
    if not own_head:
        return
    similarity = config.get("similarity_fn_name")
    if sparse and similarity not in (None, "dot"):
        raise InputError(f"{name}: its vectors are compared by {similarity}, not by dot products")
    _refuse_query_table(name, folder)


def _is_decoder(folder: Path) -> bool:
    config = json_if_present(folder / "config.json", InputError)
    if not (classes := config.get("architectures")):
        return config.get("model_type") not in MASKED
    return any(str(name).endswith(("ForCausalLM", "LMHeadModel")) for name in classes)


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
    positions = getattr(model.config, "max_position_embeddings", LONGEST_WINDOW)
    length = int(min(tokenizer.model_max_length, positions))
    backbone = _backbone(folder, length, bidirectional=not causal)
    head = language_head(str(folder), trained=True)
    head.settings = HeadSettings()
    require_same_logits(str(folder), model, backbone, head)
    return Encoder.of(backbone, head, IndexSettings("splade"))


TOLERANCE = 1e-3
"""Largest difference of logits, relative to the largest logit, that rounding may explain."""

TOKENS = 16


def require_same_logits(name: str, model: Any, backbone: Backbone, head: VocabularyHead) -> None:
    """Compare the logits of a few tokens, evenly spread over the vocabulary, with those of a
    language model of transformers. Raises InputError if they differ, so that the model computes
    more than backbone and head do."""
    # Tokens from the whole vocabulary, since rows may have been replaced.
    count = min(len(backbone.tokenizer), len(backbone.model.get_input_embeddings().weight))
    ids = torch.arange(0, count, max(1, count // TOKENS))[None, :TOKENS]
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
