"""The objective's own gradient, as it is or clipped."""

from __future__ import annotations

import math

from trainables.methods.rectifiers.base import Outcome, Rectifier, Reduce, Shard, clip_scale, inner


class Plain(Rectifier):
    """No rectification; with `tau`, gradient clipping alone (the paper's ablation "w/ GC")."""

    def __init__(self, gamma: None = None, tau: float | None = None) -> None:
        self.tau = tau

    def apply(self, gradient: Shard, reduce: Reduce) -> Outcome:
        """Clip to `tau` (eq. 10)."""
        norm = math.sqrt(float(reduce(inner(gradient, gradient))))
        scale = clip_scale(norm, self.tau)
        for part in gradient if scale != 1.0 else ():
            part.mul_(scale)
        return Outcome(grad_norm=norm, rectified_norm=norm * scale, clip_scale=scale)
