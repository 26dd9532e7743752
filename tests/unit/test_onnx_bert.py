"""Graphs in ONNX, node by node."""

import numpy as np
import pytest

from lexicept.encoding.onnx_bert import Declared, GraphBuilder, rounded

STATES: Declared = ("float32", ["texts", "length", 16])
PRODUCTS: Declared = ("float32", ["texts", "length", 8])


@pytest.fixture
def weights():
    draw = np.random.default_rng(0).normal
    made = {}
    for name in ("query", "key", "value"):
        made |= rounded(name, draw(size=(8, 16)).astype(np.float32))
        made[f"{name}.bias"] = draw(size=8).astype(np.float32)
    return made


def products(weights, names, x):
    graph = GraphBuilder(weights, x=STATES)
    for name in names:
        graph.linear("x", name, 8, 16)
    return graph.load(threads=1, **dict.fromkeys(names, PRODUCTS)).run(x=x)


def test_products_of_an_input_that_is_rounded_once_are_those_of_each_alone(weights):
    x = np.random.default_rng(1).normal(size=(1, 9, 16)).astype(np.float32)
    together = products(weights, ["query", "key", "value"], x)
    for name, of_name in zip(["query", "key", "value"], together, strict=True):
        (alone,) = products(weights, [name], x)
        assert (of_name == alone).all()
        matrix = weights[f"{name}.weight"] * weights[f"{name}.weight.factors"]
        assert of_name == pytest.approx(x @ matrix + weights[f"{name}.bias"], abs=0.15)


def test_products_in_single_precision_are_exact():
    draw = np.random.default_rng(0).normal
    weights = {"m.weight": draw(size=(8, 16)), "m.bias": draw(size=8)}
    weights = {name: values.astype(np.float32) for name, values in weights.items()}
    x = draw(size=(2, 3, 16)).astype(np.float32)
    (of_x,) = products(weights, ["m"], x)
    assert of_x == pytest.approx(x @ weights["m.weight"].T + weights["m.bias"], abs=1e-5)
