"""A backbone that processes divide among them (fully sharded data parallelism, FSDP).

The first dimension of every weight of the backbone is cut into as many parts as there are
processes. A process keeps one part of the weight, of its gradient, and so of AdamW's moments. The
weights of a block are gathered where it runs, forwards and backwards, and freed after it; gradients
are averaged over the processes, each of which gets its part. Heads, lookups and factors are whole
in every process.

Checkpoints and models have whole tensors, as those of one process have. A pass through the backbone
is something that all processes do together: see ``Shards.rounds``.
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

from lexicept.models.backbone import Backbone
from lexicept.models.blocks import find_blocks


class Shards:
    """The divided weights of a backbone; all processes make one, of equal backbones.

    Args:
        device: where this process keeps its part. The whole weights are moved to the CPU first, and
            the first process keeps them there.
    """

    def __init__(self, backbone: Backbone, device: torch.device) -> None:
        self._backbone, self._device = backbone, device
        model = backbone.model.to("cpu")
        self._whole = deepcopy(model) if dist.get_rank() == 0 else None
        mesh = init_device_mesh(device.type, (dist.get_world_size(),))
        for block in find_blocks(model, backbone.num_layers):
            fully_shard(block, mesh=mesh)
        # By default the outermost weights, embeddings, would stay gathered after a forward pass.
        fully_shard(model, mesh=mesh, reshard_after_forward=True)
        backbone.rounds = self.rounds

    def rounds(self, own: int) -> int:
        """Return the number of passes that every process takes: the largest number of any.

        A process with fewer of its own repeats one and drops the result.
        """
        number = torch.tensor(own, device=self._device)
        dist.all_reduce(number, dist.ReduceOp.MAX)
        return int(number)

    def gather(self) -> None:
        """Give the first process its backbone back, whole and on the CPU, as it was trained.

        All processes call this; those of the others stay divided.
        """
        for name, parameter in self._backbone.model.named_parameters():
            if parameter.requires_grad:
                value = whole(parameter.detach())
                if self._whole is not None:
                    self._whole.get_parameter(name).data.copy_(value)
        if self._whole is not None:
            self._backbone.model = self._whole
            self._backbone.rounds = int


def whole(value: Tensor) -> Tensor:
    """Return a tensor, whole where it is divided; all processes call this for the same tensor."""
    return value.full_tensor() if isinstance(value, DTensor) else value


def divided_as(value: Tensor, other: Tensor) -> Tensor:
    """Return a whole tensor, or this process's part of it where ``other`` is divided."""
    if not isinstance(other, DTensor):
        return value
    here = value.to(other.device)
    return distribute_tensor(here, other.device_mesh, other.placements, src_data_rank=None)


def optimizer_state(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Return an optimiser's state with whole tensors; all processes call this. Tensors that were
    divided are on the CPU of the first process, and left out in the others."""
    content = optimizer.state_dict()
    first = not dist.is_initialized() or dist.get_rank() == 0
    state: dict[int, dict[str, Any]] = {}
    for number, values in content["state"].items():
        state[number] = {}
        for name, value in values.items():
            if not isinstance(value, DTensor):
                state[number][name] = value
            elif (gathered := value.full_tensor()) is not None and first:
                state[number][name] = gathered.cpu()
    return {**content, "state": state}


def load_optimizer_state(optimizer: torch.optim.Optimizer, content: dict[str, Any]) -> None:
    """Continue from what ``optimizer_state`` returned in the first process."""
    parameters = [one for group in optimizer.param_groups for one in group["params"]]
    state = {
        number: {
            name: divided_as(value, parameters[number]) if name != "step" else value
            for name, value in values.items()
        }
        for number, values in content["state"].items()
    }
    optimizer.load_state_dict({**content, "state": state})


def group_apart(
    groups: Sequence[dict[str, Any]], apart: Iterable[nn.Parameter]
) -> list[dict[str, Any]]:
    """Return an optimiser's groups, each cut into those of some parameters and the others: a kernel
    takes either divided tensors or whole ones."""
    own = {id(parameter) for parameter in apart}
    cut = []
    for group in groups:
        for inside in (True, False):
            some = [one for one in group["params"] if (id(one) in own) == inside]
            if some:
                cut.append({**group, "params": some})
    return cut


def clip_gradients(parameters: Iterable[nn.Parameter], most: float) -> Tensor:
    """Clip the norm of all gradients together, some of them divided; return it as it was, 0 where
    there are none."""
    learned = [one for one in parameters if one.grad is not None]
    if not learned:
        return torch.zeros(())
    kinds = [
        [one for one in learned if isinstance(one.grad, DTensor)],
        [one for one in learned if not isinstance(one.grad, DTensor)],
    ]
    norms = [
        whole(get_total_norm([one.grad for one in kind if one.grad is not None]))
        for kind in kinds
        if kind
    ]
    total = norms[0] if len(norms) == 1 else torch.linalg.vector_norm(torch.stack(norms))
    if math.isfinite(most):
        for kind in filter(None, kinds):
            clip_grads_with_norm_(kind, most, total)
    return total
