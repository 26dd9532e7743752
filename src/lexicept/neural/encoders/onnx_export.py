"""Encoders as ONNX graphs: token ids of texts → dimensions and weights.

A graph holds the blocks, the head, the k largest activations of every token, the pooling and the
limit of dimensions, so that any ONNX runtime encodes without lexicept, torch or transformers.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from lexicept.encoding.windows import BORDERS
from lexicept.errors import InputError, message_of
from lexicept.neural.backbones.backbone import Backbone
from lexicept.neural.backbones.blocks import find_blocks
from lexicept.neural.encoders.encoder import Encoder
from lexicept.neural.heads.base import Head
from lexicept.neural.kernels.linear_outputs import fire
from lexicept.storage.files import write_json

WeightFormat = Literal["float32", "int8"]
"""Format of the weights of the blocks."""

DESCRIPTION = "onnx.json"
"""The file that describes the graphs' inputs and outputs."""

OUTPUTS = ("text", "dimension", "weight")
"""Non-zero weights: number of the text in the batch, dimension, and weight, in the order of texts
and dimensions."""


class Graph(nn.Module):
    """An encoder for whole texts of one window, of operations that ONNX has."""

    left_out: Tensor
    """Ids of tokens left out of vectors."""

    def __init__(self, backbone: Backbone, head: Head, task: str) -> None:
        super().__init__()
        self.model, self.head, self._task = backbone.model, head, task
        tokenizer = backbone.tokenizer
        ids = {getattr(tokenizer, f"{name}_id") for name in BORDERS} - {None}
        ids = set() if backbone.special_tokens else ids
        self.register_buffer("left_out", torch.tensor(sorted(ids), dtype=torch.long))
        self._outputs: list[Tensor] = []
        block = find_blocks(backbone.model, backbone.num_layers)[-1]
        self._hook = block.register_forward_hook(self._keep)

    def _keep(self, module: Any, arguments: Any, output: Any) -> None:
        self._outputs.append(output[0] if isinstance(output, tuple) else output)

    def close(self) -> None:
        """Leave the backbone as it was."""
        self._hook.remove()

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return ``OUTPUTS`` of token ids and their mask, both [texts, length], without padding."""
        self._outputs.clear()
        self.model(input_ids=input_ids * attention_mask, attention_mask=attention_mask)
        counted = attention_mask != 0
        if len(self.left_out):  # ONNX has no "any" of nothing
            counted &= ~torch.eq(input_ids[:, :, None], self.left_out).any(-1)
        vectors = self._pool(self._outputs.pop(), counted)
        positions = torch.nonzero(vectors)
        return positions[:, 0], positions[:, 1], vectors[positions[:, 0], positions[:, 1]]

    def _pool(self, states: Tensor, counted: Tensor) -> Tensor:
        """Return the vectors [texts, size] of states [texts, length, d]; see ``Head.forward``."""
        head, settings = self.head, self.head.settings
        # A dense array of all tokens: ONNX has no sparse top k.
        acts = fire(head.transform(states) @ head.rows.T + head.bias, head.threshold)
        k = settings.k(self._task)
        if k is not None and k < head.size:
            acts = _largest(acts, k)
        acts = head.scaled(acts) * counted[:, :, None]
        if settings.pooling == "max":
            vectors = torch.log1p(acts.amax(1))
        else:
            vectors = head.finish(head.addends(acts).sum(1))
        limit = settings.max_active_dims(self._task)
        if limit is not None and limit < head.size:
            vectors = _largest(vectors, limit)
        return vectors * settings.query_scale if self._task == "query" else vectors


def _largest(values: Tensor, limit: int) -> Tensor:
    """Keep the ``limit`` largest values of the last axis."""
    largest, indices = torch.topk(values, limit, dim=-1)
    return torch.zeros_like(values).scatter(-1, indices, largest)


def write_onnx(encoder: Encoder, folder: Path, weights: WeightFormat = "float32") -> dict[str, Any]:
    """Write an encoder into an empty folder as graphs: ``model.onnx``, or ``document.onnx`` and
    ``query.onnx`` if the head treats queries and documents differently; tokenizer; and
    ``onnx.json``, whose content is returned.

    A graph takes whole texts: token ids with the tokenizer's special tokens, cut at the length in
    ``onnx.json``, and padded on the right with an attention mask of 0. In int8 the blocks' matrices
    are quantised, and inputs dynamically; the head's last layer stays in float32, since small
    differences decide the largest activations.

    Raises InputError for a model that can't be exported.
    """
    backbone, head = encoder.backbone, encoder.head
    _require_exportable(encoder)
    sides = ("document", "query")
    settings = head.settings
    # Alike but for the index's pruning of queries.
    as_document = replace(
        settings,
        query_k=settings.document_k,
        query_max_active_dims=settings.document_max_active_dims,
        query_scale=1.0,
    )
    alike = settings == as_document
    files = {side: "model.onnx" if alike else f"{side}.onnx" for side in sides}
    for side, name in files.items():
        if not (folder / name).exists():
            _export(backbone, head, side, folder / name)
            if weights == "int8":
                _quantise(folder / name)
    tokenizer = copy(backbone.tokenizer)  # threads share the tokenizer
    tokenizer.padding_side = "right"  # a graph counts positions from the first token
    tokenizer.save_pretrained(folder)
    longest = {side: backbone.max_tokens(side) or backbone.window for side in sides}
    description = {
        "graphs": files,
        "number": weights,
        "dimensions": head.size,
        "inputs": ["input_ids", "attention_mask"],
        "outputs": list(OUTPUTS),
        "max_tokens": {side: min(length, backbone.window) for side, length in longest.items()},
        "prompts": {side: encoder.prompt(side) for side in sides},
        "weighting": encoder.index_settings.weighting,
    }
    write_json(folder / DESCRIPTION, description)
    return description


def _require_exportable(encoder: Encoder) -> None:
    """Raise InputError for a tokenizer with special tokens unknown to a graph."""
    tokenizer = encoder.backbone.tokenizer
    added: Sequence[int] = tokenizer("")["input_ids"]
    borders = {getattr(tokenizer, f"{name}_id") for name in BORDERS}
    if not encoder.backbone.special_tokens and not set(added) <= borders:
        raise InputError(
            "its tokenizer adds special tokens other than bos, eos, cls and sep, which a graph "
            "can't leave out"
        )


def _export(backbone: Backbone, head: Head, task: str, path: Path) -> None:
    """Write the graph of a side, with any number of texts and tokens.

    A model on a GPU is on the CPU meanwhile.
    """
    device = backbone.model.device
    kernel, dtype = backbone.model.config._attn_implementation, backbone.model.dtype
    graph = Graph(backbone, head, task).to("cpu", torch.float32).eval().requires_grad_(False)
    ids = torch.tensor(
        backbone.tokenizer(["one text", "another, longer text"], padding=False)["input_ids"][1]
    )
    example = ids.repeat(2, 1), torch.ones(2, len(ids), dtype=torch.long)
    shape = {
        0: torch.export.Dim("texts"),
        1: torch.export.Dim("length", min=2, max=backbone.window),
    }
    try:
        backbone.model.set_attn_implementation("eager")
        with _quiet():
            program = torch.onnx.export(
                graph,
                example,
                dynamo=True,
                dynamic_shapes=(shape, shape),
                input_names=["input_ids", "attention_mask"],
                output_names=list(OUTPUTS),
                verbose=False,
            )
            cast(Any, program).save(path, external_data=False)
    except Exception as error:  # the exporter raises many kinds
        raise InputError(
            f"{backbone.source} can't be exported to ONNX: {message_of(error)}"
        ) from None
    finally:
        graph.close()
        graph.to(device)
        backbone.model.to(dtype).set_attn_implementation(kernel)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter's remarks on unneeded packages and operations."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _quantise(path: Path) -> None:
    """Quantise the matrices of a graph to int8, except the head's."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    nodes = onnx.load(path, load_external_data=False).graph.node
    products = [node.name for node in nodes if node.op_type in ("MatMul", "Gemm")]
    with _quiet():
        quantize_dynamic(path, path, weight_type=QuantType.QInt8, nodes_to_exclude=products[-1:])
