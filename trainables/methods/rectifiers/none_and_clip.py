"""The objective's own gradient, as it is or clipped."""

from __future__ import annotations

import math

from trainables.methods.rectifiers.base import Combination, Outcome, Rectifier, Reduce, Shard, clip_scale, inner


class Plain(Rectifier):
    """No rectification; with `tau`, gradient clipping alone (the paper's ablation "w/ GC")."""

    def __init__(self, gamma: None = None, tau: float | None = None) -> None:
        self.tau = tau

    def decide(self, dot: float, average_square: float, square: float) -> Combination:
        """Return how to clip to `tau` (eq. 10). There is no average: only ||g||^2 is read."""
        norm = math.sqrt(square)
        scale = clip_scale(norm, self.tau)
        return Combination(scale, 0.0, Outcome(grad_norm=norm, rectified_norm=norm * scale, clip_scale=scale))

    def apply(self, gradient: Shard, reduce: Reduce) -> Outcome:
        """Clip in place, as `decide` says."""
        square = float(reduce(inner(gradient, gradient)))
        scale, _, found = self.decide(math.nan, math.nan, square)
        for part in gradient if scale != 1.0 else ():
            part.mul_(scale)
        return found
