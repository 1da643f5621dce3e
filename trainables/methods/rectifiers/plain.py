"""The objective's own gradient, as it is or clipped."""

from __future__ import annotations

import math

import torch

from trainables.methods.rectifiers.base import Outcome, Reduce, Shard, clip_scale, inner, multiply


class Plain:
    """No rectification; with `tau`, gradient clipping alone (the paper's ablation "w/ GC")."""

    needs_retain = False

    def __init__(self, gamma: None = None, tau: float | None = None) -> None:
        self.tau = tau

    def fold(self, retain: Shard) -> None:
        raise AssertionError("a rectifier without retain gradient was given one")

    def apply(self, gradient: Shard, reduce: Reduce) -> Outcome:
        """Clip to `tau` (eq. 10)."""
        norm = math.sqrt(float(reduce(inner(gradient, gradient))))
        scale = clip_scale(norm, self.tau)
        multiply(gradient, scale)
        return Outcome(grad_norm=norm, rectified_norm=norm * scale, clip_scale=scale)

    def state(self) -> list[torch.Tensor]:
        return []

    def restore(self, state: list[torch.Tensor]) -> None:
        """Nothing lasts from step to step."""
