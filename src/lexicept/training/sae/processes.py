"""Processes in joint training of one SAE: each computes a share of every batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from lexicept.errors import InputError
from lexicept.models.sae.states import Reader

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Processes:
    """Processes of a launcher (``torchrun``) with a default group, or a single process.

    All processes take the same steps; batches, gradients and counts equal a single process's up to
    the rounding of sums.
    """

    rank: int = 0
    count: int = 1
    device: torch.device = CPU
    """Device of exchanged tensors."""

    @classmethod
    def current(cls, device: torch.device) -> Processes:
        """Return the processes of the default group, or this process alone without a group."""
        if not (dist.is_available() and dist.is_initialized()):
            return cls(device=device)
        return cls(dist.get_rank(), dist.get_world_size(), device)

    def share(self, batch: Tensor) -> Tensor:
        """Return this process's part of a batch [n, d]. Raises InputError if there are more
        processes than tokens."""
        if len(batch) < self.count:
            raise InputError(f"a batch of {len(batch)} tokens can't be shared by {self.count}")
        return batch.tensor_split(self.count)[self.rank]

    def __call__(self, reader: Reader, runs: Sequence[Sequence[int]]) -> list[Tensor]:
        """Return the states of ``count`` runs of texts; process i reads run i."""
        states = reader(runs[self.rank]) if runs[self.rank] else torch.empty(0, 0)
        states = states.to(self.device)
        return [
            self.spread(states if rank == self.rank else None, rank) for rank in range(self.count)
        ]

    def add(self, values: Tensor) -> Tensor:
        """Add up the processes' values, in place."""
        if self.count > 1:
            dist.all_reduce(values)
        return values

    def spread(self, values: Tensor | None, rank: int) -> Tensor:
        """Send values [n, d] from process ``rank`` to all; the other processes pass None."""
        shape = torch.zeros(2, dtype=torch.long, device=self.device)
        if values is not None:
            shape += torch.tensor(values.shape, device=self.device)
        dist.broadcast(shape, rank)
        n, d = shape.tolist()
        if values is None:
            values = torch.empty(n, d, device=self.device)
        if n:
            values = values.contiguous()
            dist.broadcast(values, rank)
        return values
