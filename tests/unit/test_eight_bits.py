"""A BERT in 8 bits: near single precision, a window at a time, from a file that may be damaged."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from safetensors.numpy import load_file, save_file

from lexicept.encoding import eight_bits
from lexicept.encoding.eight_bits import EightBitBert, PackedRows, _halved, dequantised, saturates
from lexicept.encoding.light_encoder import LightEncoder
from lexicept.encoding.onnx_bert import OnnxBert
from lexicept.encoding.sources import MINI_FOLDER
from lexicept.errors import InputError
from lexicept.neural.encoders.encoder import Encoder
from mini.encoder import calibrate, compare
from mini.rounding import packed, quantised
from support.tiny import WORDS, tiny_backbone

TEXTS = ["bade kilo", "delo", " ".join(WORDS), "kilo muba kilo", "z " * 40, "kiba mulo " * 90]
"""One is longer than a window."""

QUERY_WEIGHT = "encoder.layer.0.attention.self.query.weight"


def made_small(folder: Path) -> Any:
    """A small BERT in both precisions, its windows of ``TEXTS``, and its file."""
    backbone = tiny_backbone(folder / "bert")
    windows = backbone.windows(TEXTS)
    weights = {name: weight.numpy() for name, weight in backbone.model.state_dict().items()}
    rounded = quantised(weights, calibrate(backbone, windows), 2)
    path = folder / "encoder.safetensors"
    save_file({name: np.ascontiguousarray(values) for name, values in rounded.items()}, path)
    config = backbone.model.config.to_dict()
    return SimpleNamespace(
        backbone=backbone, windows=windows, weights=weights, path=path, config=config
    )


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return made_small(tmp_path_factory.mktemp("small"))


def states(bert: OnnxBert, windows: Any) -> list[Any]:
    """The states of each window's own tokens."""
    by_window = {}
    for indices, of_batch in bert.read(windows):
        ends = np.cumsum([windows[index].left_out.count(0) for index in indices])[:-1]
        by_window |= zip(indices, np.split(of_batch, ends), strict=True)
    return [by_window[index] for index in range(len(windows))]


def error(x_hat: list[Any], x: list[Any]) -> float:
    """The distance between states, by the distance of the exact states from their mean."""
    exact = np.concatenate(x)
    difference = np.linalg.norm(np.concatenate(x_hat) - exact)
    return float(difference / np.linalg.norm(exact - exact.mean(axis=0)))


# Rows in 6 bits


@given(
    arrays(
        np.float32,
        array_shapes(min_dims=2, max_dims=2, max_side=5).map(lambda s: (s[0], 4 * s[1])),
        elements=st.floats(-100, 100, width=32),
    )
)
def test_packed_rows_are_within_half_a_step(records):
    weights = packed("x", records)
    unpacked = PackedRows(weights, "x")[:]
    factors = weights["x.weight.factors"].astype(np.float32)
    assert (factors <= np.maximum(np.abs(records).max(axis=1, keepdims=True) / 30.9, 2**-14)).all()
    assert (np.abs(unpacked - records) <= 0.50001 * factors).all()


def test_every_step_comes_back_exactly_in_three_quarters_of_the_bytes():
    steps = np.array([*range(-31, 32), 0], np.float32)
    directions = np.stack([steps / 8, steps[::-1] * 2, 0 * steps])
    weights = packed("x", directions)
    assert weights["x.weight"].shape == (3, 48)
    unpacked = PackedRows(weights, "x")
    assert (len(unpacked), unpacked.shape) == (3, (3, 64))
    assert (unpacked[:] == directions).all()
    assert (unpacked[np.array([[2, 0], [1, 1]])] == directions[[[2, 0], [1, 1]]]).all()


# States


def test_states_are_near_those_of_single_precision(small):
    exact = states(OnnxBert(small.weights, small.config), small.windows)
    bert = EightBitBert.load_file(small.path, small.config)
    assert (bert.tokens, bert.positions, bert.d) == (82, 64, 32)
    rounded = states(bert, small.windows)
    assert 0 < error(rounded, exact) < (0.16 if saturates() else 0.08)
    measured, cosine = compare(small.backbone, bert, small.windows)
    assert measured == pytest.approx(error(rounded, exact), rel=1e-3)
    assert 0.99 < cosine < 1


def test_weights_in_single_precision_give_nearly_the_states_of_the_originals(small):
    single, stored = dequantised(small.path, 2), load_file(small.path)
    assert single.keys() == small.weights.keys()
    assert {values.dtype for values in single.values()} == {np.dtype(np.float32)}
    block = "encoder.layer.1"
    for name, shared in (
        ("attention.self.query", "attention.self"),
        ("attention.self.key", "attention.self"),
        ("intermediate.dense", "intermediate.dense"),
        ("output.dense", "output.dense"),
    ):
        weight = f"{block}.{name}.weight"
        steps = stored[f"{weight}.factors"][:, None] * stored[f"{block}.{shared}.smoothing"]
        assert (np.abs(single[weight] - small.weights[weight]) <= 0.501 * steps).all()
    # The values carry factors that the attention's output takes away.
    output, value = (f"{block}.attention.{name}.weight" for name in ("output.dense", "self.value"))
    exact, product = (weights[output] @ weights[value] for weights in (small.weights, single))
    assert np.linalg.norm(product - exact) <= 0.02 * np.linalg.norm(exact)
    exact = states(OnnxBert(small.weights, small.config), small.windows)
    assert 0 < error(states(OnnxBert(single, small.config), small.windows), exact) < 0.08


def test_a_window_s_states_depend_on_no_other_window(small):
    bert = EightBitBert.load_file(small.path, small.config)
    together = states(bert, small.windows)
    for window, of_window in zip(small.windows, together, strict=True):
        (alone,) = states(bert, [window])
        assert len(alone) == window.left_out.count(0)
        assert (alone == of_window).all()


def test_columns_of_large_activations_are_scaled_down(small):
    largest = calibrate(small.backbone, small.windows)
    name = "encoder.layer.0.intermediate.dense"
    largest[name] = largest[name].copy()
    largest[name][5] *= 100
    smoothing = quantised(small.weights, largest, 2)[f"{name}.smoothing"]
    assert smoothing.argmin() == 5
    assert np.log(smoothing).mean() == pytest.approx(0, abs=1e-5)


def test_calibration_is_the_largest_input_of_each_column(small):
    inputs = []
    module = small.backbone.model.get_submodule("encoder.layer.1.output.dense")
    hook = module.register_forward_pre_hook(lambda _, given: inputs.append(given[0][0]))
    largest = calibrate(small.backbone, small.windows)
    hook.remove()
    expected = torch.cat(inputs).abs().amax(dim=0).numpy()
    assert (largest["encoder.layer.1.output.dense"] == expected).all()
    assert len(largest) == 2 * 4


# Processors without VNNI


def test_half_of_the_steps_give_near_states(small, monkeypatch):
    weights = load_file(small.path)
    halved = _halved(weights)
    matrices = [values for values in halved.values() if values.dtype == np.int8]
    assert (len(halved), len(matrices)) == (2 * 12, 12)
    assert max(abs(int(extreme)) for m in matrices for extreme in (m.min(), m.max())) == 64
    exact = states(OnnxBert(small.weights, small.config), small.windows)
    rounded = states(EightBitBert({**weights, **halved}, small.config), small.windows)
    assert 0 < error(rounded, exact) < 0.16
    monkeypatch.setattr(eight_bits, "saturates", lambda: True)
    loaded = states(EightBitBert.load_file(small.path, small.config), small.windows)
    assert all(map(np.array_equal, loaded, rounded))


# Files


def _without(name: str) -> Any:
    def damage(path: Path) -> None:
        weights = load_file(path)
        del weights[name]
        save_file(weights, path)

    return damage


@pytest.mark.parametrize(
    "damage",
    [
        Path.unlink,
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:9000]),
        _without(QUERY_WEIGHT),
        _without("embeddings.word_embeddings.weight.factors"),
    ],
)
def test_damaged_and_missing_files_are_named(tmp_path, damage):
    small = made_small(tmp_path)
    damage(small.path)
    for read in (
        lambda: EightBitBert.load_file(small.path, small.config),
        lambda: dequantised(small.path, 2),
    ):
        with pytest.raises(InputError) as raised:
            read()
        assert str(raised.value).startswith(f"{small.path}: damaged or missing")


# The package's


def test_the_packaged_encoder_agrees_with_and_without_torch():
    texts = [
        "How do I join two file paths?",
        "A bank lends money and pays interest on deposits.",
        "naïve Bayes 日本 ??",
        "The bank of the river was covered with spring flowers. " * 40,
    ]
    light = LightEncoder.load(MINI_FOLDER)
    assert light is not None
    least = 0.98 if saturates() else 0.99
    for task in ("query", "document"):
        _, means = light.encode_with_means(texts, task)
        _, expected = Encoder.load(MINI_FOLDER).encode_with_means(texts, task)
        cosines = (means * expected).sum(axis=1)
        cosines /= np.linalg.norm(means, axis=1) * np.linalg.norm(expected, axis=1)
        assert cosines.min() > least
