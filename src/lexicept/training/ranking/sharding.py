"""A backbone divided among processes (fully sharded data parallelism, FSDP).

The first dimension of every backbone weight is cut into one shard for each process, and with it the
gradient and AdamW's moments. A block's weights are gathered for the block's forward and backward
pass and freed afterwards; gradients are averaged over the processes and divided again. Heads and
factors are whole in every process.

Checkpoints and models have whole tensors, as in training with one process. All processes pass
through the backbone together: see ``Shards.rounds``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from copy import deepcopy
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from lexicept.neural.backbones.backbone import Backbone
from lexicept.neural.backbones.blocks import find_blocks


class Shards:
    """The divided weights of a backbone; every process makes ``Shards`` of an equal backbone, on
    its device. The whole weights are moved to the CPU first, and stay there in the first
    process."""

    def __init__(self, backbone: Backbone, device: torch.device) -> None:
        self._backbone, self._device = backbone, device
        model = backbone.model.to("cpu")
        # A whole copy in the first process, for the trained weights in the end.
        self._whole = deepcopy(model) if dist.get_rank() == 0 else None
        mesh = init_device_mesh(device.type, (dist.get_world_size(),))
        # Blocks are gathered one at a time; the outer module has what is left.
        for block in find_blocks(model, backbone.num_layers):
            fully_shard(block, mesh=mesh)
        # By default the outermost weights, embeddings, would stay gathered after a forward pass.
        fully_shard(model, mesh=mesh, reshard_after_forward=True)
        backbone.rounds = self.rounds

    def rounds(self, count: int) -> int:
        """Return the number of passes of every process: the largest over all processes.

        A process with fewer mini-batches repeats a pass and drops the result.
        """
        passes = torch.tensor(count, device=self._device)
        dist.all_reduce(passes, dist.ReduceOp.MAX)
        return int(passes)

    def gather(self) -> None:
        """Restore the first process's trained backbone, whole and on the CPU. All processes call
        this; the other backbones stay divided."""
        for name, parameter in self._backbone.model.named_parameters():
            if parameter.requires_grad:
                value = whole(parameter.detach())
                if self._whole is not None:
                    self._whole.get_parameter(name).data.copy_(value)
        if self._whole is not None:
            self._backbone.model = self._whole
            self._backbone.rounds = int


def whole(value: Tensor) -> Tensor:
    """Gather a divided tensor, in all processes together; return other tensors as they are."""
    return value.full_tensor() if isinstance(value, DTensor) else value


def divided_as(value: Tensor, template: Tensor) -> Tensor:
    """Return a whole tensor divided like ``template``."""
    if not isinstance(template, DTensor):
        return value
    local = value.to(template.device)
    return distribute_tensor(local, template.device_mesh, template.placements, src_data_rank=None)


def optimizer_state(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Return an optimiser's state with whole tensors, in all processes together. Divided tensors
    are gathered on the CPU of the first process, and left out in the other processes."""
    state_dict = optimizer.state_dict()
    is_main = not dist.is_initialized() or dist.get_rank() == 0
    state: dict[int, dict[str, Any]] = {}
    for index, values in state_dict["state"].items():
        state[index] = {}
        for name, value in values.items():
            if not isinstance(value, DTensor):
                state[index][name] = value
            elif (gathered := value.full_tensor()) is not None and is_main:
                state[index][name] = gathered.cpu()
    return {**state_dict, "state": state}


def load_optimizer_state(optimizer: torch.optim.Optimizer, state_dict: dict[str, Any]) -> None:
    """Continue from the first process's ``optimizer_state``."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    state = {
        index: {
            name: divided_as(value, parameters[index]) if name != "step" else value
            for name, value in values.items()
        }
        for index, values in state_dict["state"].items()
    }
    optimizer.load_state_dict({**state_dict, "state": state})


def group_apart(
    groups: Sequence[dict[str, Any]], apart: Iterable[nn.Parameter]
) -> list[dict[str, Any]]:
    """Split an optimiser's groups by membership in ``apart``, as a kernel takes either divided or
    whole tensors."""
    apart_ids = {id(parameter) for parameter in apart}
    split = []
    for group in groups:
        for inside in (True, False):
            parameters = [p for p in group["params"] if (id(p) in apart_ids) == inside]
            if parameters:
                split.append({**group, "params": parameters})
    return split


def clip_gradients(parameters: Iterable[nn.Parameter], most: float) -> Tensor:
    """Clip the joint norm of divided and whole gradients; return the norm before, 0 without any."""
    learned = [p for p in parameters if p.grad is not None]
    divided = [p for p in learned if isinstance(p.grad, DTensor)]
    undivided = [p for p in learned if not isinstance(p.grad, DTensor)]
    groups = [parameters for parameters in (divided, undivided) if parameters]
    if not groups:
        return torch.zeros(())
    gradients = ([p.grad for p in group if p.grad is not None] for group in groups)
    norms = [whole(get_total_norm(group_gradients)) for group_gradients in gradients]
    total = norms[0] if len(norms) == 1 else torch.linalg.vector_norm(torch.stack(norms))
    if math.isfinite(most):
        for group in groups:
            clip_grads_with_norm_(group, most, total)
    return total
