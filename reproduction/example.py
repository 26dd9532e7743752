"""A worked example, computed by the code that trains and encodes at any size."""

from __future__ import annotations

import torch

from lexicept.ops.pooling import Activations, pool_sum
from lexicept.training.regularizers import flops, l1
from reproduction.jobs import ExampleJob
from reproduction.measuring import Measurements


def run_example(job: ExampleJob) -> Measurements:
    """Pool heads to γ, and compute its softmax, FLOPS and L1; terms are numbered from 1."""
    gamma = torch.tensor(job.weights, dtype=torch.float64)
    if job.heads:
        heads = torch.tensor(job.heads, dtype=torch.float64)
        # The heads are the states of an identity map.
        terms = heads.shape[1]
        identity = torch.eye(terms, dtype=torch.float64)
        text = torch.zeros(len(heads), dtype=torch.long)
        tokens = Activations(heads, text, 1, identity, heads.new_zeros(terms), None)
        gamma = pool_sum(tokens, log=True)
    measurements = Measurements()
    for name, values in (("γ", gamma.mean(dim=0)), ("p", gamma.softmax(dim=1).mean(dim=0))):
        for number, value in enumerate(values.tolist(), 1):
            measurements.values[f"{name}{number}"] = value
    measurements.values["FLOPS"] = float(flops(gamma))
    measurements.values["L1"] = job.l1_weight * float(l1(gamma))
    return measurements
