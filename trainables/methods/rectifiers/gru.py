"""Gradient rectified unlearning: a gradient in conflict with the retain gradient is projected onto its normal plane."""

from __future__ import annotations

import math

import torch

from trainables.methods.rectifiers.base import (
    DEGENERATE,
    Outcome,
    Rectifier,
    Reduce,
    Shard,
    clip_scale,
    inner,
    products,
)


class GRU(Rectifier):
    """Algorithm 1 of the paper.

    m <- (1 - gamma) m + gamma g_r with m = 0 at the start (eq. 9, no bias correction; gamma None keeps g_r alone),
    g <- g_u - min(<g_u, m>, 0) / ||m||^2 m (eq. 5), then the norm is clipped to `tau` (eq. 10).

    The moving average is this rank's shard in fp32, the only state that lasts.
    """

    needs_retain = True

    def __init__(self, gamma: float | None, tau: float | None) -> None:
        self.gamma = 1.0 if gamma is None else gamma
        self.tau = tau
        self.average: list[torch.Tensor] = []

    def update_average(self, retain: Shard) -> None:
        """Take the retain gradient of this step into the moving average."""
        if not self.average:
            self.average = [torch.zeros_like(part, dtype=torch.float32) for part in retain]
        for mean, part in zip(self.average, retain, strict=True):
            mean.lerp_(part.to(mean.dtype), self.gamma)

    def apply(self, gradient: Shard, reduce: Reduce) -> Outcome:
        """Rectify and clip in place; leave a degenerate gradient as it is, for its step is skipped.

        Raises FloatingPointError where the moving average is not finite: no conflict would ever show again.
        """
        dot, average_square, square = (float(x) for x in reduce(products(gradient, self.average)))
        if not math.isfinite(average_square):
            raise FloatingPointError(f"squared norm of the averaged retain gradient is {average_square}")
        norm, average_norm = math.sqrt(square), math.sqrt(average_square)
        conflict = dot < 0 and average_square > 0
        coefficient = -dot / average_square if conflict else 0.0
        cos = dot / (norm * average_norm) if norm > 0 and average_norm > 0 else 0.0
        if conflict and abs(1 + cos) < DEGENERATE:
            return Outcome(norm, 0.0, average_norm, dot, cos, 0.0, coefficient, rectified=True, degenerate=True)
        rectified_norm = math.sqrt(max(square - dot * dot / average_square, 0.0)) if conflict else norm
        scale = clip_scale(rectified_norm, self.tau)
        for part, mean in zip(gradient, self.average, strict=True):
            if conflict:
                part.add_(mean.to(part.dtype), alpha=coefficient)
            if scale != 1.0:
                part.mul_(scale)
        cos_after = cos
        if conflict:  # measured, so that a write that is lost shows
            lengths = rectified_norm * scale * average_norm
            cos_after = float(reduce(inner(gradient, self.average))) / lengths if lengths > 0 else 0.0
        return Outcome(
            norm, rectified_norm * scale, average_norm, dot, cos, cos_after, coefficient, scale, rectified=conflict
        )

    def state(self) -> list[torch.Tensor]:
        return self.average

    def restore(self, state: list[torch.Tensor]) -> None:
        """Take copies, because a dot product's rounding depends on how memory is aligned."""
        self.average = [part.clone() for part in state]


class PCGrad(GRU):
    """Projection onto the normal plane of this step's retain gradient: GRU without moving average and clipping."""
