"""Memory and speed of backbones: types of weights, kernels of attention, gradient checkpointing."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from lexicept.neural.backbones.backbone import Backbone
from lexicept.neural.backbones.blocks import checkpoint_blocks
from lexicept.neural.encoders.encoder import Encoder
from lexicept.pipelines.pretrain import pretrain
from lexicept.training.ranking.run import train
from support.runs import LORA, assert_same_run, configuration
from support.tiny import save_decoder, text, tiny_backbone

pytestmark = pytest.mark.usefixtures("_hasty")

TEXTS = [text(*range(n, n + 7)) for n in range(12)]
MNTP = {"masking": "mntp", "trained": "lora", "lora_rank": 4, "steps": 3, "batch_size": 4}


def kinds(folder: Path) -> set[torch.dtype]:
    """Return the types of a saved backbone's weights."""
    return {tensor.dtype for tensor in load_file(folder / "model.safetensors").values()}


def backward(backbone: Backbone) -> tuple[dict[str, torch.Tensor], int]:
    """Return the gradients of a sum of states, and the bytes kept for the backward pass."""
    kept = 0

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal kept
        kept += tensor.nbytes
        return tensor

    torch.manual_seed(7)
    backbone.train()
    ids = torch.arange(6, 26).repeat(8, 1)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        total = backbone.states(ids, torch.ones_like(ids)).square().sum()
    total.backward()
    named = backbone.named_parameters()
    return {name: value.grad for name, value in named if value.grad is not None}, kept


@pytest.mark.parametrize("model_type", ["bert", "llama"])
def test_checkpointed_blocks_have_the_same_gradients_and_keep_less(tmp_path, model_type):
    if model_type == "bert":  # with dropout, the same when blocks are computed again
        backbones = [tiny_backbone(tmp_path / str(n)) for n in range(2)]
    else:
        folder = save_decoder(tmp_path / "llama")
        backbones = [Backbone.from_pretrained(folder) for _ in range(2)]
    checkpoint_blocks(backbones[1])
    (expected, whole), (result, less) = map(backward, backbones)
    assert result.keys() == expected.keys()
    assert len(result) > 10
    for name, gradient in expected.items():
        torch.testing.assert_close(result[name], gradient, msg=name)
    assert less < 0.35 * whole


def test_a_run_with_gradient_checkpointing_ends_with_the_same_model(inputs, unbroken, tmp_path):
    config = configuration(inputs, model=LORA, optimizer={"gradient_checkpointing": True})
    train(config, tmp_path / "run")
    assert_same_run(tmp_path / "run", unbroken("frozen head"))


def test_adaptation_in_half_precision_is_saved_and_loaded_so(tmp_path):
    llama = save_decoder(tmp_path / "llama")
    half: dict[str, Any] = {**MNTP, "dtype": "bfloat16", "gradient_checkpointing": True}
    out = pretrain(TEXTS, tmp_path / "half", backbone=llama, **half)
    assert kinds(out) == {torch.bfloat16}
    assert Backbone.from_pretrained(str(out)).dtype == "bfloat16"
    assert Encoder.load(out).backbone.dtype == "bfloat16"
    before, after = (
        load_file(Path(llama) / "model.safetensors"),
        load_file(out / "model.safetensors"),
    )
    changed = {n for n, v in after.items() if not torch.equal(v, before[f"model.{n}"].bfloat16())}
    assert changed
    assert all(name.startswith("layers.") and name.endswith("_proj.weight") for name in changed)
    assert kinds(pretrain(TEXTS, tmp_path / "whole", backbone=llama, **MNTP)) == {torch.float32}


def test_a_saved_start_may_be_trained_in_half_precision(inputs, tmp_path):
    model = {**LORA, "dtype": "bfloat16"}
    train(configuration(inputs, model=model, optimizer={"steps": 1}), tmp_path / "run")
    assert kinds(tmp_path / "run" / "model") == {torch.bfloat16}
    assert Encoder.load(tmp_path / "run" / "model").backbone.dtype == "bfloat16"
