"""Gradient rectified unlearning and its parts: the moving average (eq. 9), the projection (5), the clipping (10)."""

import math
from dataclasses import replace

import torch

from trainables.methods.rectifiers import base
from trainables.methods.rectifiers.base import GradientMixture, Outcome, Rectifier, Reduce, Shard


class MovingAverageRectifier(Rectifier):
    """Keeps the moving average of the retain gradient: this rank's shard in fp32, the only state that lasts.

    m <- (1 - gamma) m + gamma g_r with m = 0 at the start (eq. 9, no bias correction; gamma None keeps g_r alone).
    `tau` is for those that clip.
    """

    needs_retain = True

    def __init__(self, gamma: float | None = None, tau: float | None = None) -> None:
        self.gamma = 1.0 if gamma is None else gamma
        self.tau = tau
        self.average: Shard = []

    def take_retain_gradient(self, retain: Shard) -> None:
        if not self.average:
            self.average = [torch.zeros_like(part, dtype=torch.float32) for part in retain]
        for mean, part in zip(self.average, retain, strict=True):
            if kernels := base.find_triton_kernels(mean):
                kernels.lerp(mean, part, self.gamma)
            else:
                mean.lerp_(part.to(mean.dtype), self.gamma)

    def state(self) -> list[torch.Tensor]:
        return list(self.average)

    def restore(self, state: list[torch.Tensor]) -> None:
        """Take copies, because a dot product's rounding depends on how memory is aligned."""
        self.average = [part.clone() for part in state]


class GRU(MovingAverageRectifier):
    """Algorithm 1 of the paper: g <- g_u - min(<g_u, m>, 0) / ||m||^2 m (eq. 5), then clipped to norm `tau` (eq. 10).

    m: the moving average.
    """

    def decide(self, dot: float, average_square: float, square: float) -> GradientMixture:
        """Return how to rectify and clip; a degenerate gradient's step is skipped.

        Raises FloatingPointError where the moving average is not finite: no conflict would ever show again.
        """
        if not math.isfinite(average_square):
            raise FloatingPointError(f"squared norm of the averaged retain gradient is {average_square}")
        norm, average_norm = math.sqrt(square), math.sqrt(average_square)
        conflict = dot < 0 and average_square > 0
        coefficient = -dot / average_square if conflict else 0.0
        cos = dot / (norm * average_norm) if norm > 0 and average_norm > 0 else 0.0
        if conflict and abs(1 + cos) < base.DEGENERATE_TOLERANCE:
            found = Outcome(norm, 0.0, average_norm, dot, cos, 0.0, coefficient, rectified=True, degenerate=True)
            return GradientMixture(1.0, 0.0, found)
        rectified_norm = math.sqrt(max(square - dot * dot / average_square, 0.0)) if conflict else norm
        scale = compute_clip_scale(rectified_norm, self.tau)
        cos_after, clipped = 0.0 if conflict else cos, rectified_norm * scale
        found = Outcome(norm, clipped, average_norm, dot, cos, cos_after, coefficient, scale, rectified=conflict)
        return GradientMixture(scale, scale * coefficient, found)

    def apply(self, gradient: Shard, reduce: Reduce) -> Outcome:
        """Rectify and clip in place, as `decide` says; leave a degenerate gradient as it is."""
        found = self.decide(*reduce(base.shard_dot_products(gradient, self.average)).tolist()).outcome
        if found.degenerate:
            return found
        for part, mean in zip(gradient, self.average, strict=True):
            if found.rectified:
                part.add_(mean.to(part.dtype), alpha=found.coefficient)
            if found.clip_scale != 1.0:
                part.mul_(found.clip_scale)
        lengths = found.rectified_norm * found.average_norm
        if not found.rectified or not lengths > 0:
            return found
        # measured, so that a write that is lost shows
        return replace(found, cos_after=float(reduce(base.shard_inner_product(gradient, self.average))) / lengths)


class ClippingRectifier(Rectifier):
    """No rectification; with `tau`, gradient clipping alone (the paper's ablation "w/ GC")."""

    def __init__(self, gamma: None = None, tau: float | None = None) -> None:
        self.tau = tau

    def decide(self, dot: float, average_square: float, square: float) -> GradientMixture:
        """Return how to clip to `tau` (eq. 10). There is no average: only ||g||^2 is read."""
        norm = math.sqrt(square)
        scale = compute_clip_scale(norm, self.tau)
        return GradientMixture(scale, 0.0, Outcome(grad_norm=norm, rectified_norm=norm * scale, clip_scale=scale))

    def apply(self, gradient: Shard, reduce: Reduce) -> Outcome:
        square = float(reduce(base.shard_inner_product(gradient, gradient)))
        scale, _, found = self.decide(math.nan, math.nan, square)
        for part in gradient if scale != 1.0 else ():
            part.mul_(scale)
        return found


def compute_clip_scale(norm: float, tau: float | None) -> float:
    return tau / norm if tau is not None and norm > tau else 1.0
