"""BERT as an ONNX graph, written from its configuration: 18 kB without weights.

A graph is a message of protobuf, whose wire format takes less code than the package ``onnx`` takes
time to import. Weights stay in their files of safetensors, from where ONNX Runtime reads them.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self, TypeAlias, cast

import numpy as np

from lexicept.encoding.sources import Reference
from lexicept.encoding.windows import Window, group_windows
from lexicept.errors import InputError, LexiceptError, message_of
from lexicept.kernels.compiled import num_threads
from lexicept.storage.files import read_json
from lexicept.vectors import Floats, Integers

_EXPECTED = {
    "model_type": "bert",
    "hidden_act": "gelu",
    "is_decoder": False,
    "position_embedding_type": "absolute",
}

RUNTIME = "com.microsoft"
"""Domain of ONNX Runtime's own operations."""

_TYPES = {"float32": 1, "int8": 3, "int64": 7, "bool": 9}
"""Numbers of types in ONNX."""

_STORED = {"F32": "<f4", "F16": "<f2", "I8": "i1", "U8": "u1"}
"""Types of safetensors that are read; others are bytes."""

MATRIX_STEPS = 63
"""Largest whole number of a matrix in 8 bits: the sum of two products has to fit 16 bits on
processors without VNNI."""

Declared: TypeAlias = tuple[str, list[int | str]]
"""Type and shape; texts name sizes that vary."""


def is_plain(config: Mapping[str, Any]) -> bool:
    """Return True for the configuration of a BERT without variants."""
    return all(config.get(name, value) == value for name, value in _EXPECTED.items())


@contextmanager
def damage_of(path: Path, other: Path | None = None) -> Iterator[None]:
    """Turn errors of a file's contents, or of two files together, into InputErrors that name the
    file, or both."""
    message = "damaged or missing" if other is None else f"damaged or missing, or {other} is"
    try:
        yield
    except LexiceptError:
        raise
    except Exception as error:  # ONNX Runtime raises many kinds
        raise InputError(f"{path}: {message}: {message_of(error)}") from None


def map_safetensors(path: Path) -> dict[str, Any]:
    """Memory-map the arrays of a file. Raises InputError for a missing or damaged file."""
    with damage_of(path):
        encoded = np.asarray(np.memmap(path, np.uint8, "r"))
        start = 8 + int.from_bytes(encoded[:8].tobytes(), "little")
        tensors = json.loads(encoded[8:start].tobytes())
        tensors.pop("__metadata__", None)
        arrays = {}
        for name, tensor in tensors.items():
            first, last = tensor["data_offsets"]
            array = encoded[start + first : start + last]
            if kind := _STORED.get(tensor["dtype"]):
                array = array.view(kind).reshape(tensor["shape"])
            arrays[name] = np.require(array, requirements="A")
        return arrays


class GraphBuilder:
    """A graph, node by node, over weights that are not copied."""

    def __init__(self, weights: Mapping[str, Floats], **inputs: Declared) -> None:
        self._weights = weights
        self._used: dict[str, Floats] = {}
        self._rounded: dict[str, tuple[str, str, str]] = {}
        self._fields: list[tuple[int, Any]] = [(2, "graph")]
        self._fields += [(11, _declared(name, *inputs[name])) for name in inputs]

    def add(
        self, kind: str, inputs: Sequence[str], *outputs: str, domain: str = "", **attributes: Any
    ) -> str:
        """Add an operation; return the first output. Inputs are earlier outputs or weights."""
        self._used |= {name: self._weights[name] for name in inputs if name in self._weights}
        fields: list[tuple[int, Any]] = [(1, name) for name in inputs]
        fields += [*((2, name) for name in outputs), (4, kind), (7, domain)]
        for name, value in attributes.items():
            number, type_ = (2, 1) if isinstance(value, float) else (3, 2)
            fields.append((5, _message([(1, name), (number, value), (20, type_)])))
        self._fields.append((1, _message(fields)))
        return outputs[0]

    def weight(self, name: str, *shape: int) -> str:
        """Return a weight's name. Raises KeyError or ValueError if absent or of another shape."""
        if self._weights[name].shape != shape:
            raise ValueError(f"{name} is {self._weights[name].shape}, not {shape}")
        return name

    def linear(self, x: str, name: str, rows: int, columns: int) -> str:
        """Add ``x weightᵀ + bias`` with a weight [rows, columns], which may be ``rounded``, and x
        ``smoothed``."""
        x = self.smoothed(x, name)
        weight, bias = f"{name}.weight", self.weight(f"{name}.bias", rows)
        if (factors := f"{weight}.factors") not in self._weights:
            inputs = [x, self.weight(weight, rows, columns)]
            self.add("FusedMatMul", inputs, f"{name}.product", domain=RUNTIME, transB=1)
            return self.add("Add", [f"{name}.product", bias], name)
        if x not in self._rounded:  # once for all products
            self._rounded[x] = steps, factor, zero = f"{x}.steps", f"{x}.factor", f"{x}.zero"
            self.add("DynamicQuantizeLinear", [x], steps, factor, zero)
        steps, factor, zero = self._rounded[x]
        weight, factors = self.weight(weight, columns, rows), self.weight(factors, rows)
        inputs = [steps, weight, factor, factors, zero, "", bias]
        return self.add("MatMulIntegerToFloat", inputs, name, domain=RUNTIME)

    def smoothed(self, x: str, name: str) -> str:
        """Add ``x`` times the factors of its columns, if there are such for the input ``name``."""
        factors = f"{name}.smoothing"
        return self.add("Mul", [x, factors], f"{name}.x") if factors in self._weights else x

    def load(self, threads: int | None = None, **outputs: Declared) -> Self:
        """Load the graph into ONNX Runtime, on the CPU, with ``num_threads`` by default."""
        import onnxruntime

        self._fields += [(12, _declared(name, *declared)) for name, declared in outputs.items()]
        location = (13, _message([(1, "location"), (2, "weights")])), (14, 1)
        for name, weight in self._used.items():
            # Shapes and axes have to be in the graph itself.
            stored = [(9, weight.tobytes())] if weight.dtype == np.int64 else location
            tensor = [(1, size) for size in weight.shape]
            tensor += [(2, _TYPES[weight.dtype.name]), (8, name), *stored]
            self._fields.append((5, _message(tensor)))
        versions = [(8, _message([(1, ""), (2, 23)])), (8, _message([(1, RUNTIME), (2, 1)]))]
        encoded = _message([(1, 8), (7, _message(self._fields)), *versions])
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4  # errors are raised, too
        options.intra_op_num_threads = num_threads() if threads is None else threads
        # Threads that wait for work leave the processor to other threads.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        # ONNX Runtime refers to the memory of the weights, which the graph keeps.
        large = {name: weight for name, weight in self._used.items() if weight.dtype != np.int64}
        values = map(onnxruntime.OrtValue.ortvalue_from_numpy, large.values())
        options.add_external_initializers([*large], [*values])
        # A sum and a norm apart are faster than the fused operation.
        unfused, providers = ["SkipLayerNormFusion"], ["CPUExecutionProvider"]
        self._session = onnxruntime.InferenceSession(
            encoded, options, providers, disabled_optimizers=unfused
        )
        return self

    def run(self, **inputs: Any) -> list[Any]:
        """Return the outputs of a loaded graph."""
        outputs: list[Any] = self._session.run(None, inputs)
        return outputs


class OnnxBert:
    """A BERT in ONNX Runtime.

    Args:
        weights: by transformers' names, without a prefix.
    """

    batch_tokens = 256
    """Most tokens of a batch, padding included, unless a single window has more."""
    threads: int | None = None
    """Threads of a batch; see ``GraphBuilder.load``."""

    def __init__(self, weights: Mapping[str, Any], config: Mapping[str, Any]) -> None:
        self._blocks = _blocks(weights, config, self.threads, self.batch_tokens > 1)
        self._words = self._word_embeddings(weights)
        self._places = weights["embeddings.position_embeddings.weight"]
        self._type = weights["embeddings.token_type_embeddings.weight"][0]
        self.tokens, self.positions = len(self._words), len(self._places)
        """Number of tokens with an embedding, and most tokens of a text."""
        self.d = len(self._type)
        """Size of a state."""
        sizes = {self._words.shape[1], self._places.shape[1], self.d}
        if sizes != {config["hidden_size"]}:
            raise ValueError("embeddings of other sizes than the blocks")

    def _word_embeddings(self, weights: Mapping[str, Any]) -> Any:
        return weights["embeddings.word_embeddings.weight"]

    @classmethod
    def load(cls, folder: Path) -> OnnxBert | None:
        """Load a saved BERT; None for another kind of model, adapters, several files of weights,
        or other types than float32.

        Raises InputError or IndexFormatError for damaged or missing files.
        """
        config, reference = read_json(folder / "config.json"), Reference.read(folder)
        source = folder if reference is None else reference.find()
        several = (source / "model.safetensors.index.json").exists()
        if several or (folder / "adapter_config.json").exists() or not is_plain(config):
            return None
        path = source / "model.safetensors"
        weights = {name.removeprefix("bert."): w for name, w in map_safetensors(path).items()}
        weights.pop("embeddings.position_ids", None)
        if any(weight.dtype != np.float32 for weight in weights.values()):
            return None
        with damage_of(path, folder / "config.json"):
            return cls(weights, config)

    def read(self, windows: Sequence[Window]) -> Iterator[tuple[list[int], Floats]]:
        """Yield batches as ``Backbone.token_states`` does."""
        for numbers in group_windows(windows, self.batch_tokens):
            # A window without tokens is a token of padding: attention to nothing is NaN.
            lengths = np.array([max(1, len(windows[number].token_ids)) for number in numbers])
            mask = np.arange(lengths.max()) < lengths[:, None]
            counted, ids = np.zeros(mask.shape, bool), np.zeros(mask.shape, np.int64)
            for row, number in enumerate(numbers):
                length = len(windows[number].token_ids)
                ids[row, :length] = windows[number].token_ids
                counted[row, :length] = np.logical_not(windows[number].left_out)
            states = self.states(ids, mask)
            yield numbers, states[counted.ravel()]

    def states(self, ids: Integers, mask: Any) -> Floats:
        """Return the output of the last block [texts * length, d] for token ids and a mask, False
        for padding, both [texts, length]."""
        x = self._words[ids] + self._type + self._places[: ids.shape[1]]
        inputs = {"x": x}
        if self.batch_tokens > 1:
            inputs["mask"] = np.repeat(mask[:, None, None], mask.shape[1], axis=2)
        (states,) = self._blocks.run(**inputs)
        return cast(Floats, states.reshape(ids.size, self.d))


def _blocks(
    weights: Mapping[str, Floats], config: Mapping[str, Any], threads: int | None, masked: bool
) -> GraphBuilder:
    """Load the blocks of a BERT.

    Inputs are the sums of embeddings ``x`` [texts, length, d] and, if ``masked``, the ``mask``
    [texts, 1, length, length], False for padding. The output is the last block's.
    """
    heads, eps = int(config["num_attention_heads"]), float(config["layer_norm_eps"])
    d, inner_d = int(config["hidden_size"]), int(config["intermediate_size"])
    states: Declared = ("float32", ["texts", "length", d])
    masks: dict[str, Declared] = (
        {"mask": ("bool", ["texts", 1, "length", "length"])} if masked else {}
    )
    graph = GraphBuilder(weights, x=states, **masks)

    def norm(name: str) -> list[str]:
        return [graph.weight(f"{name}.LayerNorm.{kind}", d) for kind in ("weight", "bias")]

    def add_norm(x: str, residual: str, name: str) -> str:
        total = graph.add("Add", [x, residual], f"{name}.sum")
        return graph.add("LayerNormalization", [total, *norm(name)], name, axis=-1, epsilon=eps)

    x = graph.add("LayerNormalization", ["x", *norm("embeddings")], "sums", axis=-1, epsilon=eps)
    for block in (f"encoder.layer.{number}" for number in range(config["num_hidden_layers"])):
        attending = graph.smoothed(x, f"{block}.attention.self")
        projections = [
            graph.linear(attending, f"{block}.attention.self.{name}", d, d)
            for name in ("query", "key", "value")
        ]
        of_heads: dict[str, Any] = {"q_num_heads": heads, "kv_num_heads": heads}
        read = graph.add("Attention", [*projections, *masks], f"{block}.attended", **of_heads)
        read = graph.linear(read, f"{block}.attention.output.dense", d, d)
        read = add_norm(read, x, f"{block}.attention.output")
        inner = graph.linear(read, f"{block}.intermediate.dense", inner_d, d)
        inner = graph.add("Gelu", [inner], f"{block}.gelu")
        outer = graph.linear(inner, f"{block}.output.dense", d, inner_d)
        x = add_norm(outer, read, f"{block}.output")
    return graph.load(threads, **{x: states})


def rounded(name: str, matrix: Floats) -> dict[str, Any]:
    """Return a matrix [rows, columns] for ``GraphBuilder.linear`` in 8 bits: whole numbers up to
    ``MATRIX_STEPS`` [columns, rows], and a factor for each row."""
    factors = np.abs(matrix).max(axis=1).astype(np.float32) / MATRIX_STEPS
    factors[factors == 0] = 1
    numbers = np.ascontiguousarray(np.rint(matrix.T / factors), np.int8)
    return {f"{name}.weight": numbers, f"{name}.weight.factors": factors}


def _declared(name: str, kind: str, shape: Sequence[int | str]) -> bytes:
    sizes = [(1, _message([(1 if isinstance(size, int) else 2, size)])) for size in shape]
    tensor = _message([(1, _TYPES[kind]), (2, _message(sizes))])
    return _message([(1, name), (2, _message([(1, tensor)]))])


def _message(fields: Iterable[tuple[int, Any]]) -> bytes:
    """Return a message of protobuf. A value is a whole number, a float, a text or a message."""
    encoded = bytearray()
    for number, value in fields:
        if isinstance(value, float):
            encoded += _varint(number << 3 | 5) + struct.pack("<f", value)
        elif isinstance(value, int):
            encoded += _varint(number << 3) + _varint(value % 2**64)
        else:
            value = value.encode() if isinstance(value, str) else value
            encoded += _varint(number << 3 | 2) + _varint(len(value)) + value
    return bytes(encoded)


def _varint(number: int) -> bytes:
    """Return seven bits a byte, the lowest first."""
    groups = bytearray()
    while number > 127:
        groups.append(number & 127 | 128)
        number >>= 7
    return bytes([*groups, number])
