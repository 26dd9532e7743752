"""The learning rate's schedule."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LearningRate:
    """Linear warm-up to ``peak``, then constant, then linear decay to 0 over the last steps."""

    peak: float
    """The highest learning rate."""
    warmup_steps: int
    """Steps of warm-up; 0 starts at ``peak``."""
    steps: int
    """Steps of the whole training."""
    decay_steps: int | None = None
    """Last steps, over which the learning rate falls to 0; None keeps it constant."""

    def at(self, step: int) -> float:
        """Return the learning rate of a step, counted from 0."""
        rate = self.peak * min(1.0, (step + 1) / max(1, self.warmup_steps))
        if self.decay_steps is not None:
            rate *= min(1.0, (self.steps - step) / max(1, self.decay_steps))
        return rate
