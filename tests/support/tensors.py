"""Random tensors, and tensors that are the same but for rounding."""

from collections.abc import Callable

import torch
from hypothesis import strategies as st


def assert_same(left: torch.Tensor, right: torch.Tensor) -> None:
    torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-5)


def few_numbers(data: st.DataObject) -> Callable[..., torch.Tensor]:
    """Draw four numbers; return a function that fills a tensor of any shape with them."""
    choice = st.sampled_from([0.0, 1.0, -1.0, 1.001, 0.999, 1e-30, 300.0, -300.0])
    values = torch.tensor(data.draw(st.lists(choice, min_size=4, max_size=4)))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 99)))
    return lambda *shape: values[torch.randint(4, shape, generator=generator)]
