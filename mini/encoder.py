"""``python -m mini.encoder TEXTS OUT``: all-MiniLM-L6-v2 in 8 bits, lexicept-mini's encoder.

OUT gets the weights, calibrated on some of the corpus that ``mini.texts`` made, the configuration
and the tokenizer. The error is printed, on texts that follow those of the calibration.
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save

from lexicept.encoding.eight_bits import FILE, SHARED_INPUTS, EightBitBert
from lexicept.encoding.windows import Window
from lexicept.neural.backbones.backbone import Backbone
from lexicept.storage.files import replace_file
from lexicept.vectors import Floats
from mini.rounding import quantised
from mini.texts import read

CALIBRATION_TEXTS, CHECKED_TEXTS = 300, 100

MOST_BYTES = 22_000_000


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m mini.encoder", description=__doc__)
    parser.add_argument("texts", type=Path, help="What mini.texts made.")
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    texts, out = read(arguments.texts), arguments.out
    backbone = Backbone.from_pretrained()
    model = backbone.model
    largest = calibrate(backbone, backbone.windows(texts[:CALIBRATION_TEXTS]))
    weights = {name: weight.numpy() for name, weight in model.state_dict().items()}
    rounded = quantised(weights, largest, backbone.num_layers)
    data = save({name: np.ascontiguousarray(values) for name, values in rounded.items()})
    print(f"{len(data):,} bytes")
    assert len(data) < MOST_BYTES
    replace_file(out / FILE, data)
    model.config.type_vocab_size = 1  # a text has one segment
    model.config.save_pretrained(out)
    backbone.processor.save_pretrained(out)
    backbone.save_config(str(out))
    bert = EightBitBert.load_file(out / FILE, model.config.to_dict())
    checked = texts[CALIBRATION_TEXTS : CALIBRATION_TEXTS + CHECKED_TEXTS]
    error, cosine = compare(backbone, bert, backbone.windows(checked))
    print(f"relative error of states {error:.3f}, cosine of windows' mean states {cosine:.4f}")


def calibrate(backbone: Backbone, windows: list[Window]) -> dict[str, Floats]:
    """Return the largest absolute activation of every column of each input of a product."""
    largest: dict[str, torch.Tensor] = {}

    def record(name: str, _: Any, inputs: tuple[torch.Tensor, ...]) -> None:
        columns = inputs[0].abs().flatten(end_dim=-2).amax(dim=0)
        largest[name] = torch.maximum(largest.get(name, columns), columns)

    shared = [(name, f"{name}.{names[0]}".rstrip(".")) for name, names in SHARED_INPUTS.items()]
    shared.append(("attention.output.dense", "attention.output.dense"))
    with ExitStack() as hooks, torch.inference_mode():
        for index in range(backbone.num_layers):
            for name, matrix in shared:
                module = backbone.model.get_submodule(f"encoder.layer.{index}.{matrix}")
                hook = partial(record, f"encoder.layer.{index}.{name}")
                hooks.enter_context(module.register_forward_pre_hook(hook))
        for window in windows:  # one by one: padding has activations too
            ids = torch.tensor([window.token_ids])
            backbone.states(ids, torch.ones_like(ids))
    return {name: columns.numpy() for name, columns in largest.items()}


def compare(backbone: Backbone, bert: EightBitBert, windows: list[Window]) -> tuple[float, float]:
    """Return the relative error of states, by their distance from the mean state, and the mean
    cosine of windows' mean states."""
    exact, rounded = [], []
    for window in windows:
        ((_, states),) = backbone.token_states([window])
        exact.append(states.numpy())
        rounded += [states for _, states in bert.read([window])]
    means = [np.stack([states.mean(axis=0) for states in side]) for side in (exact, rounded)]
    lengths = [np.linalg.norm(side, axis=1) for side in means]
    cosines = (means[0] * means[1]).sum(axis=1) / (lengths[0] * lengths[1])
    x, x_hat = np.concatenate(exact), np.concatenate(rounded)
    error = np.linalg.norm(x_hat - x) / np.linalg.norm(x - x.mean(axis=0))
    return float(error), float(cosines.mean())


if __name__ == "__main__":
    main()
